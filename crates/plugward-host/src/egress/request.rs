//! What a program asks the proxy for.
//!
//! Owns reading a `CONNECT` request and the answers to it. Refuses every other method, and hosts that are written in more
//! than one way: what a rule was compared with has to be what is dialled.

use plugward_policy::{NetRule, NetTarget};

/// Longest head of a request in bytes, as usual for HTTP servers.
pub(super) const MAX_HEAD_BYTES: usize = 8 * 1024;

pub(super) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
pub(super) const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
pub(super) const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
pub(super) const BAD_GATEWAY: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// The head of a request, as far as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Head {
    /// More is needed.
    Unfinished,
    /// A tunnel to this host, and how many bytes the head has: what follows belongs to the tunnel.
    Connect { host: String, port: u16, length: usize },
    /// A request that names a target which is no host, as it was written.
    NoHost(String),
    /// Anything else.
    Malformed,
}

/// Reads what a program has sent so far.
pub(super) fn read(bytes: &[u8]) -> Head {
    const END: &[u8] = b"\r\n\r\n";
    let Some(length) = bytes.windows(END.len()).position(|window| window == END).map(|at| at + END.len()) else {
        return if bytes.len() >= MAX_HEAD_BYTES { Head::Malformed } else { Head::Unfinished };
    };
    let line = bytes[..length].split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return Head::Malformed };
    let mut words = line.split(' ');
    let (Some("CONNECT"), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Head::Malformed;
    };
    // The one spelling that rules have, but for capitals.
    let lower = target.to_ascii_lowercase();
    match NetRule::new(&lower) {
        // A target always names its port.
        Ok(rule) if rule.to_string() == lower => match (rule.target(), rule.port()) {
            (NetTarget::Name(name), Some(port)) => Head::Connect { host: name.to_owned(), port, length },
            (NetTarget::Address(address), Some(port)) => Head::Connect { host: address.to_string(), port, length },
            _ => Head::NoHost(target.to_owned()),
        },
        _ => Head::NoHost(target.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(target: &str) -> Head {
        read(format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\nrest").as_bytes())
    }

    // Threat row 20: every spelling of a host that some program reads as another one.
    #[test]
    fn a_host_has_one_spelling() {
        let Head::Connect { host, port, length } = connect("API.example.test:443") else { panic!("no host") };
        assert_eq!((host.as_str(), port), ("api.example.test", 443));
        assert_eq!(length, "CONNECT API.example.test:443 HTTP/1.1\r\nHost: x\r\n\r\n".len());
        assert!(matches!(connect("[2001:db8::1]:443"), Head::Connect { host, .. } if host == "2001:db8::1"));
        for bad in [
            "api.example.test",
            "api.example.test.:443",
            "evil.test\0.api.example.test:443",
            "*:443",
            "*.example.test:443",
            "user@api.example.test:443",
            "2130706433:80",
            "0x7f000001:80",
            "0177.0.0.1:80",
            "127.1:80",
            "[0:0:0:0:0:0:0:1]:80",
            "[::1%lo]:80",
            "api.example.test:0443",
            "api.example.test:443:443",
            "http://api.example.test/",
            "bücher.example:443",
            "",
        ] {
            assert_eq!(connect(bad), Head::NoHost(bad.to_owned()), "{bad}");
        }
    }

    #[test]
    fn only_a_whole_connect_is_a_request() {
        for malformed in [
            &b"GET http://api.example.test/ HTTP/1.1\r\n\r\n"[..],
            b"CONNECT a.test:443\r\n\r\n",
            b"CONNECT a.test:443 HTTP/2\r\n\r\n",
            b"CONNECT  a.test:443 HTTP/1.1\r\n\r\n",
            b"connect a.test:443 HTTP/1.1\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            assert_eq!(read(malformed), Head::Malformed, "{malformed:?}");
        }
        assert_eq!(read(b"CONNECT a.test:443 HTTP/1.1\r\n"), Head::Unfinished);
        assert_eq!(read(&[b'x'; MAX_HEAD_BYTES]), Head::Malformed);
    }
}
