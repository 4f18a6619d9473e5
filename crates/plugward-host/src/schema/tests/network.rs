//! A schema never makes the host read anything: no address, no file.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use super::{check, fault, input};

/// A listener that must not be reached, and proof that it could have been.
struct Witness {
    listener: TcpListener,
    address: String,
}

impl Witness {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        listener.set_nonblocking(true).unwrap();
        Self { listener, address }
    }

    fn connections(&self) -> usize {
        std::iter::from_fn(|| self.listener.accept().ok()).count()
    }
}

#[test]
fn references_outside_are_refused_and_never_followed() {
    // A hostile plugin could otherwise make the host ask a cloud's metadata service, or read its files.
    let witness = Witness::new();
    let at = &witness.address;
    for (text, pointer) in [
        (format!(r#"{{"type":"object","properties":{{"x":{{"$ref":"{at}/meta-data"}}}}}}"#), "/properties/x/$ref"),
        (
            format!(r#"{{"type":"object","properties":{{"x":{{"$dynamicRef":"{at}/a#b"}}}}}}"#),
            "/properties/x/$dynamicRef",
        ),
        (
            format!(r#"{{"$id":"{at}/base/","type":"object","properties":{{"x":{{"$ref":"next.json"}}}}}}"#),
            "/properties/x/$ref",
        ),
        (
            format!(r#"{{"$id":"{at}/base","type":"object","properties":{{"x":{{"$ref":"{at}/base/sub"}}}}}}"#),
            "/properties/x/$ref",
        ),
        (r#"{"type":"object","properties":{"x":{"$ref":"file:///etc/hostname"}}}"#.into(), "/properties/x/$ref"),
        (r#"{"type":"object","properties":{"x":{"$ref":"//meta.test/x"}}}"#.into(), "/properties/x/$ref"),
        (r#"{"type":"object","$defs":{"unused":{"$ref":"urn:x:y"}}}"#.into(), "/$defs/unused/$ref"),
        (
            format!(
                r##"{{"type":"object","properties":{{"x":{{"$id":"{at}/in/","items":{{"$ref":"#/a"}}}}}},"a":{{}}}}"##
            ),
            "/properties/x/items/$ref",
        ),
        (
            format!(
                r##"{{"type":"object","allOf":[{{"$ref":"#/odd/place"}}],"odd":{{"place":{{"$ref":"{at}/x"}}}}}}"##
            ),
            "/odd/place/$ref",
        ),
    ] {
        let fault = fault(&text);
        assert_eq!(fault.pointer, pointer, "{fault}");
        assert!(fault.reason.contains("nothing outside is ever read"), "{fault}");
    }
    for text in [
        format!(r#"{{"$schema":"{at}/own-edition","type":"object"}}"#),
        format!(r#"{{"type":"object","properties":{{"x":{{"$schema":"{at}/inner","$id":"{at}/id"}}}}}}"#),
        format!(r#"{{"type":"object","properties":{{"x":{{"default":{{"$ref":"{at}/data"}},"enum":["v"]}}}}}}"#),
    ] {
        let compiled = input(&text).unwrap();
        assert!(check(&compiled, r#"{"x":"v"}"#).is_ok(), "{text}");
    }
    assert_eq!(witness.connections(), 0);

    // The witness does see a connection.
    let mut control = TcpStream::connect(witness.listener.local_addr().unwrap()).unwrap();
    control.write_all(b"x").unwrap();
    let seen = (0..1_000_000).any(|_| witness.connections() == 1);
    assert!(seen);
}

#[test]
fn known_meta_schemas_come_from_memory() {
    let compiled =
        input(r#"{"type":"object","properties":{"schema":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}"#)
            .unwrap();
    assert!(check(&compiled, r#"{"schema":{"type":"string"}}"#).is_ok());
    assert!(check(&compiled, r#"{"schema":{"type":"strong"}}"#).is_err());
}
