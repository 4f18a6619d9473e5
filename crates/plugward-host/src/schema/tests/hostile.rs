//! Schemas and values made to cost: each must be decided, and soon.
//!
//! The time limits are generous: what they catch takes minutes, or never ends.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::{Use, check, compile, fault, input, raw};
use crate::schema::compile::{MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH};

/// Far above what anything here takes on a busy machine, far below what it takes unbounded.
const SOON: Duration = Duration::from_secs(20);

fn soon<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = run();
    let took = start.elapsed();
    println!("{what}: {took:?}");
    assert!(took < SOON, "{what} took {took:?}");
    outcome
}

/// Runs on a thread with the stack of a runtime's worker: an overflow there would end the whole host.
fn on_a_worker_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run).unwrap();
    thread.join().unwrap();
}

#[test]
fn large_and_deep_texts_are_refused() {
    let large = format!(r#"{{"type":"object","description":"{}"}}"#, "x".repeat(MAX_SCHEMA_BYTES));
    assert_eq!(fault(&large).reason, "the schema is larger than 262144 bytes");
    let depth = |levels: u64| {
        let levels = usize::try_from(levels).unwrap() - 1;
        format!(r#"{{"type":"object","x":{}1{}}}"#, "[".repeat(levels), "]".repeat(levels))
    };
    assert!(input(&depth(MAX_SCHEMA_DEPTH)).is_ok());
    assert_eq!(fault(&depth(MAX_SCHEMA_DEPTH + 1)).reason, "the schema is nested deeper than 64 levels");
    assert!(fault(&depth(100_000)).reason.starts_with("nested deeper than 128 levels"));
}

#[test]
fn doubling_references_are_refused() {
    // 1.5 KB that mean a thousand million schemas.
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let mut defs = String::new();
        for level in 0..30 {
            let next = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, level + 1);
            write!(defs, r#""d{level}":{{"{keyword}":[{next},{next}]}},"#).unwrap();
        }
        let text = format!(r##"{{"type":"object","$defs":{{{defs}"d30":{{}}}},"$ref":"#/$defs/d0"}}"##);
        let fault = soon("doubling", || fault(&text));
        assert!(fault.reason.contains("more than 100000 parts"), "{fault}");
    }
    // The same through properties.
    let mut defs = String::new();
    for level in 0..30 {
        let next = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, level + 1);
        write!(defs, r#""d{level}":{{"properties":{{"a":{next},"b":{next}}}}},"#).unwrap();
    }
    let text = format!(r##"{{"type":"object","$defs":{{{defs}"d30":{{}}}},"$ref":"#/$defs/d0"}}"##);
    assert!(soon("doubling properties", || fault(&text)).reason.contains("more than 100000 parts"));
}

#[test]
fn circles_that_never_enter_the_value_are_refused() {
    for text in [
        r##"{"type":"object","$ref":"#"}"##.to_owned(),
        r##"{"type":"object","properties":{"x":{"$ref":"#/properties/x"}}}"##.to_owned(),
        r##"{"type":"object","$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}},"items":{"$ref":"#/$defs/a"}}"##
            .to_owned(),
        r##"{"type":"object","$dynamicAnchor":"me","anyOf":[{"$dynamicRef":"#me"}]}"##.to_owned(),
        everyone_refers_to_everyone("allOf", 12),
    ] {
        let fault = soon("circle", || fault(&text));
        assert_eq!(fault.reason, "the schema refers back to itself without going into the value");
    }
}

/// `count` definitions, each of which refers to all of them under `keyword`.
fn everyone_refers_to_everyone(keyword: &str, count: usize) -> String {
    let references: Vec<_> = (0..count).map(|index| format!(r##"{{"$ref":"#/$defs/d{index}"}}"##)).collect();
    let defs: Vec<_> =
        (0..count).map(|index| format!(r#""d{index}":{{"{keyword}":[{}]}}"#, references.join(","))).collect();
    format!(r##"{{"type":"object","$defs":{{{}}},"properties":{{"x":{{"$ref":"#/$defs/d0"}}}}}}"##, defs.join(","))
}

#[test]
fn mutual_recursion_through_the_value_is_fine() {
    // A language's syntax tree looks like this: every kind of node may hold every other.
    let count = 40;
    let defs: Vec<_> = (0..count)
        .map(|index| {
            let parts: Vec<_> = (0..count).map(|part| format!(r##""p{part}":{{"$ref":"#/$defs/d{part}"}}"##)).collect();
            format!(r#""d{index}":{{"type":"object","properties":{{{}}}}}"#, parts.join(","))
        })
        .collect();
    let text =
        format!(r##"{{"type":"object","$defs":{{{}}},"properties":{{"x":{{"$ref":"#/$defs/d0"}}}}}}"##, defs.join(","));
    on_a_worker_stack(move || {
        let compiled = soon("syntax tree", || input(&text)).unwrap();
        assert!(check(&compiled, r#"{"x":{"p1":{"p2":{"p39":{"p0":{}}}}}}"#).is_ok());
        let violations = check(&compiled, r#"{"x":{"p1":{"p2":{"p39":{"p0":1}}}}}"#).unwrap_err();
        assert_eq!(violations.list[0].path, "/x/p1/p2/p39/p0");
    });
}

#[test]
fn long_chains_of_references_do_not_exhaust_the_stack() {
    for (shape, count) in
        [("plain", 5_000), ("plain", 100), ("entering", 4_000), ("entering", 300), ("circle", 4_000), ("circle", 400)]
    {
        on_a_worker_stack(move || {
            let mut defs = String::new();
            for level in 0..count {
                let next = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, level + 1);
                match shape {
                    "plain" => write!(defs, r#""d{level}":{next},"#).unwrap(),
                    _ => write!(defs, r#""d{level}":{{"properties":{{"a":{next}}}}},"#).unwrap(),
                }
            }
            let last = if shape == "circle" { r##"{"items":{"$ref":"#/$defs/d0"}}"## } else { "{}" };
            let text = format!(r##"{{"type":"object","$defs":{{{defs}"d{count}":{last}}},"$ref":"#/$defs/d0"}}"##);
            let outcome = soon("chain", || input(&text));
            assert_eq!(outcome.is_err(), (shape, count) == ("plain", 5_000), "{shape} {count}");
            if let Ok(compiled) = outcome {
                let deep = format!("{}{{}}{}", r#"{"a":"#.repeat(100), "}".repeat(100));
                assert!(soon("chain value", || check(&compiled, &deep)).is_ok(), "{shape} {count}");
            }
        });
    }
}

#[test]
fn values_that_multiply_in_a_recursive_schema_are_refused() {
    // Each level of the value is checked twice as often as the one above it.
    let text = r##"{"type":"object","$defs":{"n":{"anyOf":[
        {"properties":{"k":{"$ref":"#/$defs/n"}},"required":["left"]},
        {"properties":{"k":{"$ref":"#/$defs/n"}},"required":["right"]},
        {"properties":{"k":{"$ref":"#/$defs/n"}},"type":"null"}]}},"properties":{"x":{"$ref":"#/$defs/n"}}}"##;
    on_a_worker_stack(move || {
        let compiled = input(text).unwrap();
        for levels in [3, 10, 20, 60, 120] {
            let value = format!(r#"{{"x":{}1{}}}"#, r#"{"k":"#.repeat(levels), "}".repeat(levels));
            let outcome = soon("multiplying", || check(&compiled, &value));
            let refused_for_cost = outcome.is_err_and(|violations| violations.to_string().contains("to check"));
            assert_eq!(refused_for_cost, levels > 12, "{levels}");
        }
    });
}

#[test]
fn the_product_of_schema_and_value_is_bounded() {
    // Both sides may come from the same hostile plugin: the output schema and the result.
    let checks = vec![r#"{"type":"integer"}"#; 10_000].join(",");
    let text = format!(r#"{{"type":"object","properties":{{"a":{{"items":{{"allOf":[{checks}]}}}}}}}}"#);
    let compiled = soon("wide schema", || compile(&raw(&text), Use::Output)).unwrap();
    let value = |items: usize| format!(r#"{{"a":[{}1]}}"#, "1,".repeat(items));
    assert!(soon("small value", || check(&compiled, &value(10))).is_ok());
    let violations = soon("large value", || check(&compiled, &value(100_000))).unwrap_err();
    assert!(violations.to_string().contains("takes too long"), "{violations}");
}

#[test]
fn comparing_all_items_is_bounded() {
    let mut inner = r#"{"type":"integer"}"#.to_owned();
    for _ in 0..20 {
        inner = format!(r#"{{"uniqueItems":true,"contains":{{}},"items":{inner}}}"#);
    }
    let compiled = input(&format!(r#"{{"type":"object","properties":{{"a":{inner}}}}}"#)).unwrap();
    let numbers: Vec<_> = (0..100_000).map(|number: u32| number.to_string()).collect();
    assert!(soon("unique numbers", || check(&compiled, &format!(r#"{{"a":[{}]}}"#, numbers.join(",")))).is_ok());
    let nested = (0..15).fold("1".to_owned(), |inner, _| format!("[{inner},2]"));
    let wide = format!(r#"{{"a":[{}]}}"#, vec![nested; 20_000].join(","));
    assert!(soon("unique trees", || check(&compiled, &wide)).is_err());
}

#[test]
fn catastrophic_patterns_are_decided() {
    let compiled = input(
        r#"{"type":"object","properties":{"s":{"type":"string","pattern":"^(a+)+$"},
            "t":{"type":"string","pattern":"^((?=a)a+)+$"},"u":{"type":"string","pattern":"^(a|a)*\\1b$"},
            "v":{"type":"string","pattern":"(a|b)*a(a|b){400}c"}}}"#,
    )
    .unwrap();
    let bomb = format!("{}!", "a".repeat(40));
    let outcome = soon("linear", || check(&compiled, &format!(r#"{{"s":"{bomb}"}}"#)));
    assert_eq!(outcome.unwrap_err().list[0].path, "/s");
    // Undecided within its steps: counts as not checked, never as an error of the caller.
    assert!(soon("look ahead", || check(&compiled, &format!(r#"{{"t":"{bomb}"}}"#))).is_ok());
    assert!(soon("back reference", || check(&compiled, &format!(r#"{{"u":"{bomb}"}}"#))).is_ok());
    // A rule that is certainly broken is still found beside one that is undecided.
    let both = soon("both", || check(&compiled, &format!(r#"{{"t":"{bomb}","s":1}}"#))).unwrap_err();
    assert_eq!(both.list.iter().map(|violation| violation.path.as_str()).collect::<Vec<_>>(), ["/s"]);
    let long = "ab".repeat(400_000);
    assert!(soon("many states", || check(&compiled, &format!(r#"{{"v":"{long}"}}"#))).is_err());
}

#[test]
fn many_catastrophic_matches_are_bounded() {
    let compiled = input(r#"{"type":"object","properties":{"a":{"items":{"pattern":"^((?=a)a+)+$"}}}}"#).unwrap();
    let item = format!(r#""{}!""#, "a".repeat(40));
    let few = format!(r#"{{"a":[{}]}}"#, vec![item.as_str(); 20].join(","));
    assert!(soon("few matches", || check(&compiled, &few)).is_ok());
    let varied: Vec<_> = (0..400).map(|count| format!(r#""{}!""#, "a".repeat(40 + count))).collect();
    soon("different matches", || check(&compiled, &format!(r#"{{"a":[{}]}}"#, varied.join(",")))).ok();
    let many = format!(r#"{{"a":[{}]}}"#, vec![item.as_str(); 10_000].join(","));
    let violations = soon("many matches", || check(&compiled, &many)).unwrap_err();
    assert!(violations.to_string().contains("takes too long"), "{violations}");
}

#[test]
fn pattern_numbers_and_sizes_are_bounded() {
    let schema = |count: usize, pattern: &dyn Fn(usize) -> String| {
        let named: Vec<_> =
            (0..count).map(|index| format!(r#""p{index}":{{"pattern":"{}"}}"#, pattern(index))).collect();
        format!(r#"{{"type":"object","properties":{{{}}}}}"#, named.join(","))
    };
    assert!(input(&schema(200, &|index| format!("^x{index}$"))).is_ok());
    assert!(input(&schema(5_000, &|_| "^same$".into())).is_ok(), "the same pattern counts once");
    assert_eq!(fault(&schema(201, &|index| format!("^x{index}$"))).reason, "there are more than 200 patterns");
    assert_eq!(fault(&schema(1, &|_| "x".repeat(1025))).reason, "a pattern is larger than 1024 bytes");
    let giant = soon("giant repeat", || input(&schema(1, &|_| "((a{1000}){1000}){100}".into()))).unwrap();
    assert_eq!(giant.warnings[0].pointer, "/properties/p0/pattern");
    for pattern in [r"^(\\p{L}{20}){20}", r"\\w{90}(?=x)", "(a{40}){24}", r"(?i)(\\p{Greek}|\\w){70}"] {
        let text = schema(200, &|index| format!("{pattern}{index}"));
        let outcome = soon(pattern, || input(&text));
        println!("{pattern}: {:?}", outcome.map(|compiled| compiled.warnings.len()));
    }
}

#[test]
fn very_wide_schemas_compile() {
    let named: Vec<_> = (0..20_000).map(|index| format!(r#""a{index}":{{}}"#)).collect();
    let text = format!(r#"{{"type":"object","properties":{{{}}}}}"#, named.join(","));
    assert!(text.len() < MAX_SCHEMA_BYTES);
    let compiled = soon("20,000 properties", || input(&text)).unwrap();
    assert!(soon("one of them", || check(&compiled, r#"{"a7":1}"#)).is_ok());
}

#[test]
fn a_second_look_at_every_level_is_bounded() {
    // `unevaluatedProperties` asks every schema for the same value again, and so do those inside.
    let mut inner = r#"{"properties":{"a":true}}"#.to_owned();
    for _ in 0..14 {
        inner = format!(r#"{{"anyOf":[{inner}],"unevaluatedProperties":false}}"#);
    }
    let text = format!(r#"{{"type":"object","properties":{{"x":{inner}}}}}"#);
    let compiled = soon("nested second looks", || input(&text)).unwrap();
    let outcome = soon("value for them", || check(&compiled, r#"{"x":{"a":1,"b":2}}"#));
    assert!(outcome.is_err());
}

#[test]
fn deep_values_are_refused_before_they_are_checked() {
    on_a_worker_stack(|| {
        let compiled = input(r#"{"type":"object"}"#).unwrap();
        for levels in [200, 500_000] {
            let value = format!(r#"{{"x":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
            let violations = soon("deep value", || check(&compiled, &value)).unwrap_err();
            assert!(violations.to_string().contains("nested deeper"), "{violations}");
        }
    });
}
