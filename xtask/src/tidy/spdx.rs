//! Owns reading SPDX licence expressions. Refuses what is no expression: an unreadable licence is not an allowed one.

/// A licence expression as a tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    /// One licence, with its exception if it has one.
    Licence { id: String, exception: Option<String> },
    /// All of them apply.
    And(Vec<Expression>),
    /// The user chooses one.
    Or(Vec<Expression>),
}

impl Expression {
    /// Reads an expression; `/` between licences, an old habit of registries, means OR.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut reader = Reader { words: &words, at: 0 };
        let expression = reader.either()?;
        match reader.peek() {
            None => Ok(expression),
            Some(word) => Err(format!("licence expression `{text}` has `{word}` too much")),
        }
    }

    /// Whether the licences that `allowed` accepts are enough. `allowed` gets the id and the exception.
    pub(crate) fn satisfied_by(&self, allowed: &impl Fn(&str, Option<&str>) -> bool) -> bool {
        match self {
            Self::Licence { id, exception } => allowed(id, exception.as_deref()),
            Self::And(parts) => parts.iter().all(|part| part.satisfied_by(allowed)),
            Self::Or(parts) => parts.iter().any(|part| part.satisfied_by(allowed)),
        }
    }
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let there = self.peek().is_some_and(|next| next.eq_ignore_ascii_case(word));
        self.at += usize::from(there);
        there
    }

    /// OR binds least.
    fn either(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.both()?];
        while self.take("OR") {
            parts.push(self.both()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Or(parts) })
    }

    fn both(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.single()?];
        while self.take("AND") {
            parts.push(self.single()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::And(parts) })
    }

    fn single(&mut self) -> Result<Expression, String> {
        if self.take("(") {
            let inner = self.either()?;
            return if self.take(")") { Ok(inner) } else { Err("licence expression has an open bracket".into()) };
        }
        let id = self.name()?;
        let exception = if self.take("WITH") { Some(self.name()?) } else { None };
        Ok(Expression::Licence { id, exception })
    }

    fn name(&mut self) -> Result<String, String> {
        let word = self.peek().ok_or("licence expression ends too early")?;
        let keyword = ["and", "or", "with"].contains(&word.to_ascii_lowercase().as_str());
        let legal = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.+:".contains(&byte));
        if keyword || !legal {
            return Err(format!("licence expression has `{word}` where a licence belongs"));
        }
        self.at += 1;
        Ok(word.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(text: &str) -> bool {
        let allowed = |id: &str, exception: Option<&str>| {
            matches!((id, exception), ("MIT" | "Apache-2.0", None) | ("Apache-2.0", Some("LLVM-exception")))
        };
        Expression::parse(text).unwrap().satisfied_by(&allowed)
    }

    #[test]
    fn a_choice_needs_one_allowed_and_a_sum_needs_all() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only/MIT",
            "MIT AND Apache-2.0",
            "(MIT OR GPL-2.0-only) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
            "GPL-3.0-only OR MIT AND Apache-2.0",
        ] {
            assert!(passes(good), "{good}");
        }
        for bad in [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "MIT WITH LLVM-exception",
            "(MIT OR Apache-2.0) AND GPL-3.0-only",
            "MIT AND GPL-3.0-only OR AGPL-3.0-only",
        ] {
            assert!(!passes(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for text in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "AND MIT", "MIT WITH", "see LICENSE.txt", "a,b"] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }
}
