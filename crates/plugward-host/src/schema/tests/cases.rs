//! Faults seen in the field, in small: what a tool's author gets wrong, and what still has to work.

use super::{Use, check, clean, compile, fault, input, paths, raw};
use crate::schema::violation::MAX_VIOLATIONS;

#[test]
fn recursive_references_are_followed_and_named_by_path() {
    // Requirement 61: a tree-shaped argument must reach the server, and a wrong leaf must be found.
    let tree = clean(
        r##"{"type":"object","required":["root"],"properties":{"root":{"$ref":"#/$defs/twig"}},
            "$defs":{"twig":{"type":"object","required":["v"],"properties":{
                "v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/twig"}}}}}}"##,
    );
    assert!(check(&tree, r#"{"root":{"v":1,"kids":[{"v":2,"kids":[{"v":3}]}]}}"#).is_ok());
    let violations = check(&tree, r#"{"root":{"v":1,"kids":[{"v":"x"}]}}"#).unwrap_err();
    assert_eq!(violations.list[0].path, "/root/kids/0/v");
    assert_eq!(violations.to_string(), "`/root/kids/0/v`: expected integer");
}

#[test]
fn a_dangling_reference_is_named() {
    // One tool is lost (or its output schema), with the name of what is missing; never the plugin.
    let text = r##"{"type":"object","properties":{"x":{"$ref":"#/$defs/Lost"}}}"##;
    for usage in [Use::Input, Use::Output] {
        let fault = compile(&raw(text), usage).unwrap_err();
        assert_eq!(fault.pointer, "/properties/x/$ref");
        assert_eq!(fault.reason, "the reference `#/$defs/Lost` leads nowhere");
    }
    assert!(fault(r##"{"type":"object","properties":{"x":{"$ref":"#nowhere"}}}"##).reason.contains("`#nowhere`"));
}

#[test]
fn a_bare_object_takes_anything() {
    let bare = clean(r#"{"type":"object"}"#);
    assert!(check(&bare, "{}").is_ok());
    assert!(check(&bare, r#"{"extra":1}"#).is_ok());
    assert_eq!(paths(&bare, "[]"), [""]);
}

#[test]
fn a_missing_input_schema_is_a_tool_without_arguments() {
    // Without this, one forgetful tool would be lost although it works.
    let compiled = input("null").unwrap();
    assert_eq!(compiled.warnings.len(), 1);
    assert!(check(&compiled, "{}").is_ok());
    assert_eq!(compiled.exposed.unwrap().get(), r#"{"type":"object","properties":{}}"#);
    let fault = compile(&raw("null"), Use::Output).unwrap_err();
    assert_eq!(fault.to_string(), "schema: the schema must be a JSON object");
}

#[test]
fn the_root_of_arguments_is_an_object() {
    // Requirement 60
    for text in [r#"{"type":"string"}"#, r#"{"type":["array","null"]}"#, r#"{"type":"array","items":{}}"#] {
        assert_eq!(fault(text).to_string(), "schema at `/type`: the root of an input schema must be an object");
    }
    for text in ["true", "[]", "\"object\"", "7"] {
        assert_eq!(fault(text).reason, "the schema must be a JSON object");
    }
    // Clients refuse a whole list for one root without the type, so it is added to what is shown.
    for (text, shown) in [
        (r#"{"properties":{"a":{}}}"#, r#"{"properties":{"a":{}},"type":"object"}"#),
        (r#"{"type":["object","null"]}"#, r#"{"type":"object"}"#),
        ("{}", r#"{"type":"object"}"#),
    ] {
        let compiled = input(text).unwrap();
        assert_eq!((compiled.warnings.len(), compiled.warnings[0].pointer.as_str()), (1, "/type"));
        assert_eq!(compiled.exposed.unwrap().get(), shown);
    }
    assert_eq!(fault(r#"{"type":7}"#).pointer, "/type");
}

#[test]
fn results_may_be_of_any_type() {
    for (text, fits, misfit) in [
        (r#"{"type":"array","items":{"type":"number"}}"#, "[1,2.5]", r#"["x"]"#),
        (r#"{"type":["string","null"]}"#, "null", "1"),
        ("{\"anyOf\":[{\"const\":1},{\"const\":2}]}", "2", "3"),
        ("false", "", "null"),
    ] {
        let compiled = compile(&raw(text), Use::Output).unwrap();
        assert!(fits.is_empty() || check(&compiled, fits).is_ok());
        assert!(check(&compiled, misfit).is_err());
    }
}

#[test]
fn invalid_schemas_are_refused_with_their_place() {
    // Requirements 45 and 60: the reason must lead the author to the line.
    for (text, pointer) in [
        (r#"{"type":"object","properties":{"n":{"type":"int"}}}"#, "/properties/n/type"),
        (r#"{"type":"object","properties":{"c":{"type":"string"},"required":["c"]}}"#, "/properties/required"),
        (r#"{"type":"object","required":"x"}"#, "/required"),
        (r#"{"type":"object","properties":{"x":{"minLength":-1}}}"#, "/properties/x/minLength"),
        (r#"{"type":"object","properties":[]}"#, "/properties"),
        (r#"{"type":"object","properties":{"x":7}}"#, "/properties/x"),
        (r#"{"type":"object","anyOf":{}}"#, "/anyOf"),
    ] {
        let fault = fault(text);
        assert_eq!(fault.pointer, pointer, "{fault}");
        assert!(!fault.reason.is_empty());
    }
    let reason = fault(r#"{"type":"object","properties":{"n":{"type":"int"}}}"#).to_string();
    assert_eq!(reason, "schema at `/properties/n/type`: `int` is not a type of JSON Schema");
}

#[test]
fn boolean_schemas_and_odd_property_names_pass() {
    // Requirement 61: nothing legal may be refused, however unusual.
    let any = clean(r#"{"type":"object","properties":{"any":true,"none":false,"$ref":{"type":"string"},"$id":{}}}"#);
    assert!(check(&any, r#"{"any":[1],"$ref":"x","$id":3}"#).is_ok());
    assert_eq!(paths(&any, r#"{"none":1}"#), ["/none"]);
    assert_eq!(paths(&any, r#"{"$ref":1}"#), ["/$ref"]);
}

#[test]
fn dynamic_property_names_are_checked_by_the_full_schema() {
    // Requirement 61
    let map = clean(
        r#"{"type":"object","patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":{"type":"string"}}"#,
    );
    assert!(check(&map, r#"{"x_a":1,"free":"text"}"#).is_ok());
    assert_eq!(paths(&map, r#"{"x_a":"1"}"#), ["/x_a"]);
    assert_eq!(paths(&map, r#"{"free":1}"#), ["/free"]);
}

#[test]
fn each_edition_keeps_its_meaning() {
    let draft_07 = clean(
        r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","required":["id"],
            "definitions":{"id":{"type":"integer","minimum":1}},
            "properties":{"id":{"$ref":"#/definitions/id"},
                "two":{"type":"array","items":[{"type":"string"},{"type":"number"}],"additionalItems":false}}}"##,
    );
    assert!(check(&draft_07, r#"{"id":1,"two":["a",2]}"#).is_ok());
    for wrong in [r#"{"id":1,"two":["a","b"]}"#, r#"{"id":1,"two":["a",2,3]}"#, r#"{"id":0}"#] {
        assert!(check(&draft_07, wrong).is_err(), "{wrong}");
    }
    let current = clean(
        r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{
            "two":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":false}}}"#,
    );
    assert!(check(&current, r#"{"two":["a",2]}"#).is_ok());
    assert_eq!(paths(&current, r#"{"two":["a",2,3]}"#), ["/two/2"]);
    let middle = clean(
        r##"{"$schema":"https://json-schema.org/draft/2019-09/schema#","type":"object",
            "properties":{"a":{"type":"object","$recursiveRef":"#"}},"dependentRequired":{"b":["c"]}}"##,
    );
    assert!(check(&middle, r#"{"a":{"a":{}},"b":1,"c":2}"#).is_ok());
    assert!(check(&middle, r#"{"a":{"b":1}}"#).is_err());
    let draft_04 = clean(
        r#"{"$schema":"http://json-schema.org/draft-04/schema","id":"https://tools.example/x","type":"object",
            "properties":{"ttl":{"type":"integer","minimum":0,"exclusiveMinimum":true}}}"#,
    );
    assert!(check(&draft_04, r#"{"ttl":1}"#).is_ok());
    assert_eq!(paths(&draft_04, r#"{"ttl":0}"#), ["/ttl"]);
}

#[test]
fn an_unknown_edition_is_read_as_the_current_one() {
    let compiled = input(
        r#"{"$schema":"https://editions.example.test/tool/v9","type":"object","properties":{"n":{"type":"integer"}}}"#,
    )
    .unwrap();
    assert_eq!(compiled.warnings.len(), 1);
    assert_eq!(compiled.warnings[0].pointer, "/$schema");
    assert!(compiled.exposed.is_none());
    assert!(check(&compiled, r#"{"n":1}"#).is_ok());
    assert!(check(&compiled, r#"{"n":"1"}"#).is_err());
}

#[test]
fn lists_of_types_keep_null() {
    let nullable = clean(
        r#"{"type":"object","required":["owner"],"properties":{"owner":{"type":["integer","null"]},
            "tags":{"type":["array","null"],"items":{"type":["object","null"],"properties":{"v":true}}}}}"#,
    );
    assert!(check(&nullable, r#"{"owner":null}"#).is_ok());
    assert!(check(&nullable, r#"{"owner":3,"tags":[null,{"v":1}]}"#).is_ok());
    assert_eq!(paths(&nullable, r#"{"owner":"3"}"#), ["/owner"]);
    assert_eq!(paths(&nullable, r#"{"owner":1,"tags":["x"]}"#), ["/tags/0"]);
    let violations = check(&nullable, r#"{"owner":"3"}"#).unwrap_err();
    assert!(matches!(violations.list[0].message.as_str(), "expected integer or null" | "expected null or integer"));
}

#[test]
fn patterns_use_what_they_need() {
    let look = clean(
        r#"{"type":"object","properties":{"path":{"type":"string","pattern":"^(?!.*\\.\\.)[a-z./]+$"},
            "pw":{"type":"string","pattern":"^(?=.*\\d)(?=.*[A-Z]).{8,}$"}}}"#,
    );
    assert!(check(&look, r#"{"path":"a/b.txt","pw":"Passw0rdX"}"#).is_ok());
    assert_eq!(paths(&look, r#"{"path":"a/../b"}"#), ["/path"]);
    assert_eq!(paths(&look, r#"{"pw":"password"}"#), ["/pw"]);
    let unicode = clean(r#"{"type":"object","properties":{"u":{"type":"string","pattern":"^\\p{Lu}\\d+$"}}}"#);
    assert!(check(&unicode, r#"{"u":"Ä1"}"#).is_ok());
    assert_eq!(paths(&unicode, r#"{"u":"ä1"}"#), ["/u"]);
}

#[test]
fn an_unusable_pattern_costs_the_pattern_not_the_tool() {
    let compiled = input(r#"{"type":"object","properties":{"s":{"type":"string","pattern":"([unclosed"}}}"#).unwrap();
    assert_eq!(compiled.warnings[0].pointer, "/properties/s/pattern");
    assert!(compiled.exposed.is_none(), "what is shown keeps the pattern");
    assert!(check(&compiled, r#"{"s":"x"}"#).is_ok());
    assert_eq!(paths(&compiled, r#"{"s":1}"#), ["/s"]);
    // Rules that turn around what is inside them must not begin to refuse what was fine.
    let turned = input(
        r#"{"type":"object","properties":{"s":{"not":{"pattern":"("}},"t":{"oneOf":[{"pattern":"("},{"type":"string"}]},
            "u":{"if":{"items":{"pattern":"("}},"then":false}}}"#,
    )
    .unwrap();
    assert!(check(&turned, r#"{"s":"x","t":"x","u":["x"]}"#).is_ok());
    let places: Vec<_> = turned.warnings.iter().map(|warning| warning.pointer.as_str()).collect();
    assert_eq!(places, ["/properties/s/not", "/properties/t/oneOf", "/properties/u/if"]);
    // A rule for all other names must not hit those the lost pattern was for.
    let named = input(r#"{"type":"object","patternProperties":{"(":{}},"additionalProperties":false}"#).unwrap();
    assert_eq!(named.warnings[0].pointer, "/patternProperties");
    assert!(check(&named, r#"{"(":1}"#).is_ok());
}

#[test]
fn numbers_keep_their_digits() {
    let compiled = clean(
        r#"{"type":"object","properties":{"id":{"type":"integer"},"x":{"type":"integer","maximum":9007199254740992}}}"#,
    );
    for value in [
        "9007199254740993",
        "-9223372036854775808",
        "18446744073709551615",
        "123456789012345678901234567890",
        "1.0",
        "1e3",
        "-0",
    ] {
        assert!(check(&compiled, &format!(r#"{{"id":{value}}}"#)).is_ok(), "{value}");
    }
    assert_eq!(paths(&compiled, r#"{"id":1.5}"#), ["/id"]);
    assert!(check(&compiled, r#"{"x":9007199254740992}"#).is_ok());
    assert_eq!(paths(&compiled, r#"{"x":9007199254740993}"#), ["/x"]);
}

#[test]
fn boolean_bounds_are_repaired() {
    let compiled = input(
        r#"{"type":"object","properties":{"ttl":{"type":"integer","minimum":0,"exclusiveMinimum":true,
            "maximum":9,"exclusiveMaximum":false}}}"#,
    )
    .unwrap();
    let places: Vec<_> = compiled.warnings.iter().map(|warning| warning.pointer.as_str()).collect();
    assert_eq!(places, ["/properties/ttl/exclusiveMinimum", "/properties/ttl/exclusiveMaximum"]);
    for (ttl, fits) in [(1, true), (0, false), (9, true), (10, false)] {
        assert_eq!(check(&compiled, &format!(r#"{{"ttl":{ttl}}}"#)).is_ok(), fits, "{ttl}");
    }
    assert_eq!(
        compiled.exposed.unwrap().get(),
        r#"{"type":"object","properties":{"ttl":{"type":"integer","exclusiveMinimum":0,"maximum":9}}}"#
    );
}

#[test]
fn required_on_a_property_moves_to_its_object() {
    let compiled = input(
        r#"{"type":"object","properties":{"a":{"type":"string","required":true},
            "b":{"type":"string","format":"x-own-format","required":false}}}"#,
    )
    .unwrap();
    assert_eq!(compiled.warnings.len(), 2);
    assert_eq!(compiled.warnings[0].pointer, "/properties/a/required");
    assert!(check(&compiled, r#"{"a":"1","b":"anything"}"#).is_ok(), "a format is an annotation");
    assert_eq!(check(&compiled, r#"{"b":"2"}"#).unwrap_err().to_string(), "`/`: missing property `a`");
    assert_eq!(
        compiled.exposed.unwrap().get(),
        r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string","format":"x-own-format"}},"required":["a"]}"#
    );
    assert_eq!(fault(r#"{"type":"object","properties":{"a":{"required":"yes"}}}"#).pointer, "/properties/a/required");
}

#[test]
fn references_by_the_schemas_own_address_are_local() {
    // Generators write the address of the schema into it; that is no reason to lose the tool.
    let compiled = clean(
        r##"{"$id":"https://tools.example/s.json","type":"object","properties":{
            "a":{"$ref":"https://tools.example/s.json#/$defs/n"},"b":{"$ref":"#count"},"c":{"$ref":"#/x/%6E"},
            "d":{"$ref":"#/properties/a~1b"},"a/b":{"type":"null"}},
            "$defs":{"n":{"type":"integer"},"m":{"$anchor":"count","type":"boolean"}},"x":{"n":{"type":"string"}}}"##,
    );
    assert!(check(&compiled, r#"{"a":1,"b":true,"c":"t","d":null}"#).is_ok());
    for (value, path) in [(r#"{"a":"1"}"#, "/a"), (r#"{"b":1}"#, "/b"), (r#"{"c":1}"#, "/c"), (r#"{"d":1}"#, "/d")] {
        assert_eq!(paths(&compiled, value), [path]);
    }
}

#[test]
fn texts_say_what_was_expected_and_never_what_was_there() {
    // Values may be secrets; these texts reach logs, traces and models.
    let compiled = clean(
        r#"{"type":"object","required":["must"],"additionalProperties":false,"properties":{"must":{},
            "a":{"type":"integer"},"b":{"enum":["x","y"]},"c":{"const":5},"d":{"minLength":99},"e":{"pattern":"^z$"},
            "f":{"maximum":3},"g":{"type":"array","uniqueItems":true},"h":{"not":{"type":"string"}},
            "i":{"anyOf":[{"type":"integer"},{"type":"object","properties":{"k":{"type":"null"}}}]},
            "j":{"oneOf":[{"type":"string"},{"minLength":1}]},"k":{"propertyNames":{"maxLength":2}},
            "l":{"contains":{"type":"null"}},"m":{"maxItems":1},"n":{"multipleOf":7},"o":false,"p":{"format":"date"}}}"#,
    );
    let value = r#"{"a":"hush","b":"hush","c":"hush","d":"hush","e":"hush","f":4711,"g":["hush","hush"],"h":"hush",
        "i":{"k":"hush"},"j":"hush","k":{"abc":"hush"},"l":["hush"],"m":["hush","hush"],"n":4711,"o":"hush","z":"hush"}"#;
    let violations = check(&compiled, value).unwrap_err();
    assert!(violations.list.len() >= 16, "{violations}");
    let text = format!("{violations} {violations:?}");
    assert!(!text.contains("hush") && !text.contains("4711"), "{text}");
    for expected in [
        "`/a`: expected integer",
        "`/b`: expected one of `x`, `y`",
        "`/c`: expected `5`",
        "`/d`: expected at least 99 characters",
        "`/f`: expected at most `3`",
        "`/i`: fits none of the 2 alternatives; nearest: `/i/k`: expected null",
        "`/`: missing property `must`",
        "`/`: unexpected property `z`",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

#[test]
fn names_in_texts_cannot_act_on_a_terminal() {
    let compiled = clean(r#"{"type":"object","additionalProperties":false}"#);
    let text = check(&compiled, "{\"\\u001b[2Jx\\u202e\\n\":1}").unwrap_err().to_string();
    assert!(text.chars().all(|character| !character.is_control() && character != '\u{202e}'), "{text:?}");
    let long = format!(r#"{{"{}":1}}"#, "k".repeat(100_000));
    assert!(check(&compiled, &long).unwrap_err().to_string().len() < 1_000);
}

#[test]
fn a_value_with_the_same_key_twice_does_not_fit() {
    // The plugin might read the other one than the one that was checked.
    let compiled = clean(r#"{"type":"object","properties":{"path":{"const":"safe"}}}"#);
    assert!(check(&compiled, r#"{"path":"safe"}"#).is_ok());
    let violations = check(&compiled, r#"{"path":"unsafe","path":"safe"}"#).unwrap_err();
    assert!(violations.to_string().contains("the same key twice"), "{violations}");
    assert!(fault(r#"{"type":"object","type":"object"}"#).reason.contains("the same key twice"));
}

#[test]
fn only_a_bounded_number_of_violations_is_listed() {
    let compiled = clean(r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"null"}}}}"#);
    let value = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(500));
    let violations = check(&compiled, &value).unwrap_err();
    assert_eq!(violations.list.len(), MAX_VIOLATIONS);
    assert!(violations.more && violations.to_string().ends_with("; and more"));
}

#[test]
fn the_same_text_is_compiled_once() {
    // Ten thousand tools from one generator, or a restart, must not cost ten thousand compilations.
    let text = raw(r#"{"type":"object","properties":{"only-in-this-test":{"pattern":"^[a-z]+$"}}}"#);
    let first = compile(&text, Use::Input).unwrap().schema;
    for _ in 0..10_000 {
        assert!(compile(&text, Use::Input).unwrap().schema.is_same(&first));
    }
    assert!(!compile(&text, Use::Output).unwrap().schema.is_same(&first));
}
