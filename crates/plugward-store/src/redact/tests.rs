//! Tests of redaction: what must go, and what must stay.

use super::*;

const SECRET: &str = "s3cr3t-DEMO-7f3a";

fn knowing(values: &[&str]) -> Redactor {
    let redactor = Redactor::new();
    redactor.set_secrets("demo", &values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>());
    redactor
}

/// B020: the error of a server still arrives, without the key in it.
#[test]
fn a_known_value_is_replaced_wherever_it_stands() {
    let redactor = knowing(&[SECRET]);
    assert_eq!(redactor.redact(&format!("bad key {SECRET}")), "bad key ***");
    assert_eq!(redactor.redact(&format!("{SECRET}{SECRET}, x{SECRET}y")), "******, x***y");
    assert_eq!(redactor.redact("DEMO_KEY, --api-key and Authorization"), "DEMO_KEY, --api-key and Authorization");
    // Positive control: without the value it would have stayed.
    assert_eq!(Redactor::new().redact(&format!("bad key {SECRET}")), format!("bad key {SECRET}"));
}

/// A program prints its key inside JSON, a URL or a header as often as plainly.
#[test]
fn a_known_value_is_replaced_in_every_spelling() {
    let value = "pä\"ss\\wörd/1 x";
    let redactor = knowing(&[value]);
    let json = serde_json::to_string(value).unwrap();
    let nested = serde_json::to_string(&json).unwrap();
    let spellings = [
        value.to_owned(),
        json.clone(),
        nested,
        json.replace('/', "\\/"),
        r#""p\u00e4\"ss\\w\u00f6rd/1 x""#.to_owned(),
        r#""p\u00E4\"ss\\w\u00F6rd/1 x""#.to_owned(),
        "p%C3%A4%22ss%5Cw%C3%B6rd%2F1%20x".to_owned(),
        "p%c3%a4%22ss%5cw%c3%b6rd%2f1+x".to_owned(),
        "cMOkInNzXHfDtnJkLzEgeA==".to_owned(),
    ];
    for spelling in spellings {
        let redacted = redactor.redact(&spelling).into_owned();
        assert!(redacted.contains(SECRET_MARK), "{spelling} became {redacted}");
        assert!(!redacted.contains("ss") && !redacted.contains("MOk"), "{spelling} became {redacted}");
    }
}

/// Of two secrets of which one begins with the other, nothing of the longer one is left.
#[test]
fn the_longest_value_wins() {
    let redactor = knowing(&["abcdef", "abcdef-and-more"]);
    assert_eq!(redactor.redact("abcdef-and-more abcdef"), "*** ***");
}

/// A value read from a file ends in a line break; programs print it without.
#[test]
fn line_breaks_around_a_value_do_not_hide_it() {
    let redactor = knowing(&[&format!("{SECRET}\n")]);
    assert_eq!(redactor.redact(&format!("[{SECRET}]")), "[***]");
}

/// Secrets of a plugin are forgotten with it, but not those another plugin still has.
#[test]
fn clearing_one_plugin_keeps_the_values_of_others() {
    let redactor = knowing(&[SECRET, "only-of-demo"]);
    redactor.set_secrets("other", &[SECRET.to_owned()]);
    // Clones share what they know.
    let clone = redactor.clone();
    clone.clear("demo");
    assert_eq!(redactor.redact(&format!("{SECRET} only-of-demo")), "*** only-of-demo");
    redactor.clear("other");
    assert_eq!(redactor.redact(SECRET), SECRET);
}

/// Debug output of anything that holds the redactor is safe to log.
#[test]
fn debug_shows_no_value() {
    assert!(!format!("{:?}", knowing(&[SECRET])).contains(SECRET));
}

/// Credentials that nobody told us about are recognised by their shape.
#[test]
fn shapes_of_credentials_are_replaced() {
    let cases = [
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: ***"),
        ("sent bearer abc.def-ghi twice", "sent bearer *** twice"),
        ("key sk-proj-Abc123Def456Ghi789 is bad", "key *** is bad"),
        ("ghp_0123456789abcdefghij0123456789abcdef.", "***"),
        ("github_pat_11ABCDEFG0abcdefghij", "***"),
        ("xoxb-123456789012-abc", "***"),
        ("id AKIAIOSFODNN7EXAMPLE!", "id ***!"),
        ("t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", "t=***"),
        ("GET /x?api_key=hunter2&y=1", "GET /x?api_key=***&y=1"),
        ("password=\"two words\" next", "password=\"***\" next"),
        ("run --api-key hunter2 --fast", "run --api-key *** --fast"),
        (r#"failed: {"api_key": "hunter2", "n": 1}"#, r#"failed: {"api_key": "***", "n": 1}"#),
        (r#"failed: {\"token\":\"hunter2\",\"n\":1}"#, r#"failed: {\"token\":\"***\",\"n\":1}"#),
        ("postgres://app:hunter2@db.test/x", "postgres://app:***@db.test/x"),
        ("https://0123456789abcdefghij@git.test/x", "https://***@git.test/x"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY----- b", "a *** b"),
        ("-----BEGIN PRIVATE KEY-----\nMIIB cut", "***"),
        ("Cookie: sid=1; b=2\nHost: x.test", "Cookie: ***\nHost: x.test"),
    ];
    for (text, expected) in cases {
        assert_eq!(Redactor::new().redact(text), expected);
    }
}

/// A trace full of marks helps nobody: ordinary text stays as it is, without a copy.
#[test]
fn ordinary_text_is_left_alone() {
    let texts = [
        "",
        "unexpected token: `}` at line 3",
        "the bearer of news",
        "task-oriented-programming-language-2",
        "https://example.test/a@b?x=1",
        "git@git.test:me/it.git and ssh://git@git.test/me/it",
        "run --token --fast",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "grüße, 世界 🦀 ://",
        "set password= and go",
    ];
    for text in texts {
        assert!(matches!(Redactor::new().redact(text), Cow::Borrowed(same) if same == text), "{text}");
    }
}

/// Redacting twice changes nothing more: text passes several doors on its way.
#[test]
fn redaction_is_idempotent() {
    let redactor = knowing(&[SECRET]);
    let text = format!("Authorization: Bearer {SECRET} password={SECRET} https://u:{SECRET}@h.test --token {SECRET}");
    let once = redactor.redact(&text).into_owned();
    assert_eq!(redactor.redact(&once), once);
}

/// A tool that was asked for a document gives it back as it is, but for the values it was trusted with.
#[test]
fn results_lose_known_values_only() {
    let redactor = knowing(&[SECRET]);
    let result = |value: &str| format!(r#"{{"text":"password=abc Bearer abcdefgh {value}","password":"x","n":1.0}}"#);
    assert_eq!(redactor.redact_values(&result(SECRET)), result(SECRET_MARK));
    assert!(matches!(redactor.redact_values(&result("")), Cow::Borrowed(_)));
}

/// Text made to be slow costs no more than other text of its length.
#[test]
fn hostile_text_costs_linear_time() {
    let begun = std::time::Instant::now();
    for unit in ["sk-", "://", "-----BEGIN ", "token\":", "password=", "bearer ", "eyJ", "\\\"", "{\"a\":"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let _ = Redactor::new().redact(&text);
        let _ = Redactor::new().redact_json(&text);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
}

#[test]
fn json_loses_values_under_secret_names() {
    let redactor = Redactor::new();
    let json = r#"{"user":"me","password":"hunter2","headers":{"Authorization":["x"],"n":1},"max_tokens":5,"apiKey":1,"token":null,"secret_set":true}"#;
    assert_eq!(
        redactor.redact_json(json),
        r#"{"user":"me","password":"[REDACTED]","headers":{"Authorization":"[REDACTED]","n":1},"max_tokens":5,"apiKey":"[REDACTED]","token":null,"secret_set":true}"#
    );
    assert_eq!(redactor.redact_json(r#"["--api-key","hunter2","-v"]"#), r#"["--api-key","[REDACTED]","-v"]"#);
    // A tool result says the same twice, once as text.
    assert_eq!(
        redactor.redact_json(r#"{"text":"{\"password\":\"hunter2\",\"n\":1}"}"#),
        r#"{"text":"{\"password\":\"[REDACTED]\",\"n\":1}"}"#
    );
}

#[test]
fn json_loses_known_values_in_keys_values_and_numbers() {
    let redactor = knowing(&[SECRET, "12345678"]);
    let json = format!(r#"{{"{SECRET}":["{SECRET}",12345678,{{"n":1}}]}}"#);
    assert_eq!(redactor.redact_json(&json), r#"{"***":["***","***",{"n":1}]}"#);
}

/// What is not a secret is shown as it was: big numbers, key order, duplicate keys.
#[test]
fn json_keeps_the_rest_as_it_was() {
    let json = r#"{"z":12345678901234567890123,"a":1.10,"a":-0,"t":[true,null,""]}"#;
    assert_eq!(Redactor::new().redact_json(json), json);
}

/// One call with a huge result does not fill the trace.
#[test]
fn json_is_cut_to_its_limits() {
    let redactor = Redactor::new();
    let parse = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };

    let long = parse(&redactor.redact_json(&format!("\"{}\"", "ä".repeat(5000))));
    assert_eq!(long.as_str().unwrap(), format!("{}… [904 characters more]", "ä".repeat(4096)));

    let list = parse(&redactor.redact_json(&serde_json::to_string(&vec![7; 123]).unwrap()));
    assert_eq!(list.as_array().unwrap().len(), 101);
    assert_eq!(list[100], "[TRUNCATED] 23 more");

    let object: serde_json::Map<_, _> = (0..123).map(|n| (format!("k{n}"), n.into())).collect();
    let object = parse(&redactor.redact_json(&serde_json::to_string(&object).unwrap()));
    assert_eq!((object.as_object().unwrap().len(), &object["[TRUNCATED]"]), (101, &23.into()));

    let deep = redactor.redact_json(&format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000)));
    assert_eq!(deep, "[[[[[[[[\"[TRUNCATED]\"]]]]]]]]");

    let wide = serde_json::to_string(&vec![vec!["x".repeat(2000); 90]; 90]).unwrap();
    assert!(wide.len() > 1 << 20);
    assert_eq!(redactor.redact_json(&wide), format!("\"[TRUNCATED] {} bytes\"", wide.len()));
    let wide = redactor.redact_json(&wide[..].replace("xxxx", "x"));
    assert!(wide.len() < 80 * 1024, "{}", wide.len());
    parse(&wide);
}

/// The cut comes after the search: a secret across the cut is not kept in half.
#[test]
fn a_cut_never_leaves_part_of_a_secret() {
    let redactor = knowing(&[SECRET]);
    for before in TEXT_MAX_CHARS - SECRET.len()..TEXT_MAX_CHARS {
        let text = format!("{}{SECRET} and more", ".".repeat(before));
        assert!(!redactor.redact_json(&serde_json::to_string(&text).unwrap()).contains("s3c"));
        assert!(!redactor.matcher().redact_to(&text, TEXT_MAX_CHARS).contains("s3c"));
    }
}

/// Whatever comes in, what is stored can be read as JSON again.
#[test]
fn the_output_is_always_json() {
    let texts = [
        "",
        "no json",
        "{",
        "[1,",
        "\"\\ud800\"",
        "{\"\\ud800\":1}",
        "[\"\\ud800\"]",
        "nul",
        "1e999",
        "\u{0}",
        "{\"a\":1} x",
    ];
    for text in texts {
        let redacted = knowing(&[SECRET]).redact_json(text);
        assert!(serde_json::from_str::<&serde_json::value::RawValue>(&redacted).is_ok(), "{text:?} became {redacted}");
    }
}
