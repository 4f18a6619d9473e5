//! Which edition of JSON Schema a schema is written in.
//!
//! Owns the reading of `$schema`. Refuses to look anything up: an address it does not know is the current edition,
//! with a warning.

use jsonschema::Draft;
use serde_json::Value;

/// The edition a schema without `$schema` is read as; MCP says so since revision 2025-11-25.
pub(super) const DEFAULT: Draft = Draft::Draft202012;

/// The edition that `$schema` names, or `None` for an address this host does not know.
///
/// The scheme and a trailing `#` make no difference: tools write all four combinations.
pub(super) fn by_address(address: &str) -> Option<Draft> {
    let address = address.strip_suffix('#').unwrap_or(address);
    let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"))?;
    match rest.strip_prefix("json-schema.org/")? {
        "draft-04/schema" => Some(Draft::Draft4),
        "draft-06/schema" => Some(Draft::Draft6),
        "draft-07/schema" => Some(Draft::Draft7),
        "draft/2019-09/schema" => Some(Draft::Draft201909),
        "draft/2020-12/schema" => Some(Draft::Draft202012),
        _ => None,
    }
}

/// The edition of `schema` and whether it had to be guessed.
pub(super) fn of(schema: &Value) -> (Draft, Option<&'static str>) {
    match schema.get("$schema") {
        None => (DEFAULT, None),
        Some(Value::String(address)) => match by_address(address) {
            Some(draft) => (draft, None),
            None => (DEFAULT, Some("names an edition that is not known here; it is read as 2020-12")),
        },
        Some(_) => (DEFAULT, Some("must be text; the schema is read as 2020-12")),
    }
}

/// Whether keywords beside `$ref` count. Before 2019-09 they did not.
pub(super) fn ref_has_siblings(draft: Draft) -> bool {
    !matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
}

/// The keyword that gives a schema its address.
pub(super) fn id_keyword(draft: Draft) -> &'static str {
    if draft == Draft::Draft4 { "id" } else { "$id" }
}

/// The edition's name in texts for people.
pub(super) fn name(draft: Draft) -> &'static str {
    match draft {
        Draft::Draft4 => "draft-04",
        Draft::Draft6 => "draft-06",
        Draft::Draft7 => "draft-07",
        Draft::Draft201909 => "2019-09",
        _ => "2020-12",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_and_trailing_hash_make_no_difference() {
        for (path, draft) in [
            ("draft-04/schema", Draft::Draft4),
            ("draft-06/schema", Draft::Draft6),
            ("draft-07/schema", Draft::Draft7),
            ("draft/2019-09/schema", Draft::Draft201909),
            ("draft/2020-12/schema", Draft::Draft202012),
        ] {
            for scheme in ["http", "https"] {
                for end in ["", "#"] {
                    assert_eq!(by_address(&format!("{scheme}://json-schema.org/{path}{end}")), Some(draft));
                }
            }
        }
        assert_eq!(by_address("https://schemas.example.test/tool/v9"), None);
        assert_eq!(by_address("file:///draft-07/schema"), None);
    }
}
