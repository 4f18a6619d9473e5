//! What a tool costs in a model's context: an estimate.
//!
//! Owns the estimate, which looks at what clients hand to a model: name, description and argument schema. It needs no
//! tokenizer and gives the same number everywhere. Refuses to be a bill: models count differently.
//!
//! # How it was found
//!
//! The 145 tools of ten published servers were counted with two published tokenizers (an older Claude's and
//! `o200k_base`), and a straight line was laid through words and signs. Of these tools nine in ten are estimated within 5 %
//! of the mean of both, and the sum of each server within 7 % of either. Texts in other scripts than Latin are estimated
//! by one token for each character, which was not measured.

use serde_json::{Value, json};

/// Letters of a word that are one piece: common words are one token, long ones are cut.
const LETTERS_PER_PIECE: u64 = 8;

/// Digits that are one piece.
const DIGITS_PER_PIECE: u64 = 3;

/// Hundredths of a token for a piece of a word, and for a run of signs or digits.
const PER_WORD_PIECE: u64 = 87;
const PER_SIGN_RUN: u64 = 124;

/// Tokens that the line begins below nothing.
const OFFSET_TOKENS: u64 = 5;

/// What a run of characters is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Letters,
    Digits,
    Signs,
    Other,
    Blank,
}

/// Tokens of one tool.
pub(crate) fn of_tool(name: &str, description: &str, schema: &str) -> u64 {
    let (name, description) = (json!(name), json!(description));
    // However the plugin laid it out, a client hands it on in its own way.
    let schema = serde_json::from_str::<Value>(schema).map_or_else(|_| schema.to_owned(), |schema| schema.to_string());
    of_text(&format!("{{\"name\":{name},\"description\":{description},\"input_schema\":{schema}}}"))
        .saturating_sub(OFFSET_TOKENS)
}

/// Tokens of a definition as it is listed.
pub(crate) fn of_definition(definition: &str) -> u64 {
    let read: Value = serde_json::from_str(definition).unwrap_or(Value::Null);
    let text = |key: &str| read[key].as_str().unwrap_or_default();
    of_tool(text("name"), text("description"), &read["inputSchema"].to_string())
}

fn of_text(text: &str) -> u64 {
    let (mut hundredths, mut run) = (0_u64, 0_u64);
    let mut last = Kind::Blank;
    let mut end = |kind: Kind, run: u64| match kind {
        Kind::Letters => hundredths += run.div_ceil(LETTERS_PER_PIECE) * PER_WORD_PIECE,
        Kind::Digits => hundredths += run.div_ceil(DIGITS_PER_PIECE) * PER_SIGN_RUN,
        Kind::Signs => hundredths += PER_SIGN_RUN,
        Kind::Other => hundredths += run * 100,
        Kind::Blank => {}
    };
    for character in text.chars() {
        let kind = match character {
            'a'..='z' | 'A'..='Z' => Kind::Letters,
            '0'..='9' => Kind::Digits,
            character if character.is_whitespace() => Kind::Blank,
            character if character.is_ascii() => Kind::Signs,
            _ => Kind::Other,
        };
        if kind == last {
            run += 1;
        } else {
            end(last, run);
            (last, run) = (kind, 1);
        }
    }
    end(last, run);
    hundredths / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Definitions of ours with the mean of what the two tokenizers count. A person sets a budget by these numbers.
    #[test]
    fn the_estimate_is_close_to_what_tokenizers_count() {
        let counted = [
            (
                r#"{"name":"notes_add","description":"Adds a note to a notebook. Returns the id of the note.","inputSchema":{"type":"object","properties":{"text":{"type":"string","description":"What the note says"},"notebook":{"type":"string","description":"Name of the notebook; the first one if absent"},"tags":{"type":"array","items":{"type":"string"}}},"required":["text"],"additionalProperties":false}}"#,
                89,
            ),
            (
                r#"{"name":"weather_forecast","description":"Gives the forecast for a place, hour by hour.\n\nUse coordinates where you have them; names of places are looked up and may be ambiguous.","inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"latitude":{"type":"number","minimum":-90,"maximum":90},"longitude":{"type":"number","minimum":-180,"maximum":180},"place":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":16,"default":3},"units":{"enum":["metric","imperial"]}}}}"#,
                135,
            ),
            (r#"{"name":"ping","inputSchema":{"type":"object"}}"#, 14),
        ];
        for (definition, tokens) in counted {
            let estimate = of_definition(definition);
            assert!(estimate.abs_diff(tokens) * 10 <= tokens.max(40), "{estimate} for {tokens}: {definition}");
        }
    }

    #[test]
    fn layout_costs_nothing_and_other_scripts_something() {
        let tight = of_tool("a", "b", r#"{"type":"object"}"#);
        assert_eq!(of_tool("a", "b", "{ \"type\" :\n  \"object\" }"), tight);
        assert!(of_tool("a", "読み取り", "{}") >= of_tool("a", "", "{}") + 4);
        assert_eq!(of_text(""), 0);
    }
}
