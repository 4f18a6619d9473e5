//! `${NAME}` in a backend's texts. Owns the reference syntax and its errors with the field they are
//! in. Refuses bare `$NAME`, nesting and recursion: what a variable holds is never looked at again,
//! so a value cannot smuggle in a reference. Reads no environment: the caller's lookup does.

use std::fmt;

use crate::manifest::Backend;
use crate::secret;
use crate::visible::quoted;

/// A reference that cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The variable has no value and the reference no default.
    #[error("variable `{name}` is not set")]
    MissingVariable {
        /// The variable.
        name: String,
    },
    /// `${` that does not begin a reference.
    #[error(
        "reference {} is not valid: write `${{NAME}}` or `${{NAME:-default}}`, or `$${{` for a literal `${{`",
        quoted(.text)
    )]
    MalformedReference {
        /// The text from `${` on.
        text: String,
    },
}

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    Reference { name: &'a str, default: Option<&'a str> },
}

/// Replaces every `${NAME}` and `${NAME:-default}` in `text`; `$${` becomes `${`, and a `$` before
/// anything else stays. The default also stands in for a value that is empty.
///
/// # Errors
/// [`ExpandError`] for the first reference that cannot be replaced.
///
/// ```
/// let lookup = |name: &str| (name == "USER").then(|| "ann".to_owned());
/// let text = plugward_policy::expand("--user=${USER} ${SHELL:-sh} $${USER} $USER", lookup);
/// assert_eq!(text.unwrap(), "--user=ann sh ${USER} $USER");
/// ```
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let mut expanded = String::with_capacity(text.len());
    for piece in pieces(text)? {
        match piece {
            Piece::Literal(literal) => expanded.push_str(literal),
            Piece::Reference { name, default } => expanded.push_str(&value(name, default, &lookup)?),
        }
    }
    Ok(expanded)
}

/// Whether every reference in `text` has the right form, without replacing any.
pub(crate) fn check_references(text: &str) -> Result<(), ExpandError> {
    pieces(text).map(|_| ())
}

/// The variables that `text` refers to, in order; none when a reference has the wrong form.
pub(crate) fn reference_names(text: &str) -> Vec<&str> {
    let name = |piece| match piece {
        Piece::Reference { name, .. } => Some(name),
        Piece::Literal(_) => None,
    };
    pieces(text).unwrap_or_default().into_iter().filter_map(name).collect()
}

fn value(name: &str, default: Option<&str>, lookup: impl Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    match (lookup(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(ExpandError::MissingVariable { name: name.to_owned() }),
    }
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, ExpandError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            // `$${`: the first `$` goes, the rest is literal.
            pieces.push(Piece::Literal(&rest[..start - 1]));
            pieces.push(Piece::Literal("${"));
            rest = &rest[start + 2..];
            continue;
        }
        pieces.push(Piece::Literal(&rest[..start]));
        let malformed = || ExpandError::MalformedReference { text: rest[start..].to_owned() };
        let inner = &rest[start + 2..];
        let end = inner.find('}').ok_or_else(malformed)?;
        let (name, default) = match inner[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inner[..end], None),
        };
        if !is_variable_name(name) || default.is_some_and(|default| default.contains("${")) {
            return Err(malformed());
        }
        pieces.push(Piece::Reference { name, default });
        rest = &inner[end + 1..];
    }
    pieces.push(Piece::Literal(rest));
    Ok(pieces)
}

pub(crate) fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A backend whose references are replaced: what is really run.
#[derive(Clone, PartialEq, Eq)]
pub struct ExpandedBackend {
    /// The executable.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables set for it, in the order of the manifest.
    pub env: Vec<(String, String)>,
    /// Names in `env` whose values are secret whatever the name looks like.
    pub secret_env: Vec<String>,
    /// Working directory; the package's folder when absent.
    pub cwd: Option<String>,
    /// What variables with a secret's name put into command, arguments, variables or directory.
    secret_substitutions: Vec<String>,
}

impl ExpandedBackend {
    /// Every value in here that must not be shown, logged or stored; see
    /// [`secret_values`](crate::secret_values).
    #[must_use]
    pub fn secret_values(&self) -> Vec<String> {
        secret::secret_values(self)
    }

    pub(crate) fn secret_substitutions(&self) -> &[String] {
        &self.secret_substitutions
    }
}

impl fmt::Debug for ExpandedBackend {
    /// Names only: here the secrets are in place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ExpandedBackend").field("args", &self.args.len()).field("env", &names).finish_non_exhaustive()
    }
}

/// One reference that cannot be replaced, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {error}")]
pub struct FieldError {
    /// The field of the backend, like `args[1]` or `env.API_KEY`.
    pub field: String,
    /// What is wrong there.
    pub error: ExpandError,
}

/// Every field of a backend that cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandBackendError {
    /// The fields in the order of the manifest; at least one.
    pub fields: Vec<FieldError>,
}

impl fmt::Display for ExpandBackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{field}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ExpandBackendError {}

/// Replaces the references in command, arguments, variables and directory of `backend`.
///
/// # Errors
/// [`ExpandBackendError`] with every field that has a missing variable or a malformed reference.
pub fn expand_backend(
    backend: &Backend,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<ExpandedBackend, ExpandBackendError> {
    let mut fields = Vec::new();
    let mut take = |field: String, text: &str| {
        expand(text, &lookup).unwrap_or_else(|error| {
            fields.push(FieldError { field, error });
            String::new()
        })
    };
    let command = take("command".to_owned(), &backend.command);
    let numbered = backend.args.iter().enumerate();
    let args = numbered.map(|(index, arg)| take(format!("args[{index}]"), arg)).collect();
    let variables = backend.env.iter();
    let env = variables.map(|(name, value)| (name.clone(), take(format!("env.{name}"), value))).collect();
    let cwd = backend.cwd.as_deref().map(|cwd| take("cwd".to_owned(), cwd));
    if !fields.is_empty() {
        return Err(ExpandBackendError { fields });
    }
    let texts = std::iter::once(&backend.command)
        .chain(&backend.args)
        .chain(backend.env.iter().map(|(_, value)| value))
        .chain(&backend.cwd);
    let mut secret_substitutions = Vec::new();
    for text in texts {
        for piece in pieces(text).unwrap_or_default() {
            if let Piece::Reference { name, default } = piece
                && secret::is_secret_name(name)
                && let Ok(value) = value(name, default, &lookup)
            {
                secret_substitutions.push(value);
            }
        }
    }
    Ok(ExpandedBackend { command, args, env, secret_env: backend.secret_env.clone(), cwd, secret_substitutions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "DEMO_USER" => Some("ann".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${DEMO_USER}".to_owned()),
            "API_KEY" => Some("s3cr3t-value".to_owned()),
            _ => None,
        }
    }

    // B018: references are replaced, never passed on literally or turned into nothing.
    #[test]
    fn references_defaults_and_escapes() {
        for (text, wanted) in [
            ("--user=${DEMO_USER}", "--user=ann"),
            ("${DEMO_NONE:-fall back}", "fall back"),
            ("${DEMO_USER:-fall back}", "ann"),
            ("${EMPTY:-dflt}", "dflt"),
            ("[${EMPTY}]", "[]"),
            ("[${DEMO_NONE:-}]", "[]"),
            ("$${DEMO_USER}", "${DEMO_USER}"),
            ("$$${DEMO_USER}", "$${DEMO_USER}"),
            ("$DEMO_USER", "$DEMO_USER"),
            ("costs $5 or $$", "costs $5 or $$"),
            ("${DEMO_USER}${DEMO_USER}", "annann"),
            ("${DEMO_NONE:-a:-b}", "a:-b"),
            ("", ""),
        ] {
            assert_eq!(expand(text, lookup).as_deref(), Ok(wanted), "{text}");
        }
    }

    // A value from outside must not be able to pull in another variable.
    #[test]
    fn what_a_variable_holds_is_not_expanded_again() {
        assert_eq!(expand("${TRICK}", lookup).as_deref(), Ok("${DEMO_USER}"));
    }

    // B079: a placeholder of another program's is an error, not text that reaches the server.
    #[test]
    fn other_placeholders_are_refused() {
        for text in ["${", "${}", "${1X}", "${input:key}", "${A B}", "${A:+x}", "${A:-${B}}", "${é}"] {
            let error = expand(text, lookup).unwrap_err();
            assert!(matches!(error, ExpandError::MalformedReference { .. }), "{text}");
            assert_eq!(check_references(text), Err(error));
        }
        let missing = expand("x ${DEMO_MISSING}", lookup).unwrap_err();
        assert_eq!(missing.to_string(), "variable `DEMO_MISSING` is not set");
    }

    fn backend(lines: &str) -> Backend {
        let text = format!("id: a\nname: A\nversion: 1\nbackend:\n  type: mcp\n  transport: stdio\n{lines}");
        crate::parse_manifest(&text, "plugin.yaml").unwrap().manifest.backend
    }

    // B018: the error names the field and the variable, for every field at once.
    #[test]
    fn a_backend_is_expanded_whole_or_not_at_all() {
        let good = backend(
            "  command: ${DEMO_USER}\n  args: ['${DEMO_USER}', x]\n  env: {B: '${EMPTY}', A: y}\n  cwd: ./${DEMO_USER}\n",
        );
        let expanded = expand_backend(&good, lookup).unwrap();
        assert_eq!(expanded.command, "ann");
        assert_eq!(expanded.args, ["ann", "x"]);
        let env = [("B".to_owned(), String::new()), ("A".to_owned(), "y".to_owned())];
        assert_eq!(expanded.env, env);
        assert_eq!(expanded.cwd.as_deref(), Some("./ann"));
        let bad = backend("  command: x\n  args: [ok, '${DEMO_MISSING}']\n  env: {TOKEN: '${OTHER}'}\n");
        let error = expand_backend(&bad, lookup).unwrap_err();
        let shown = "`args[1]`: variable `DEMO_MISSING` is not set; `env.TOKEN`: variable `OTHER` is not set";
        assert_eq!(error.to_string(), shown);
    }

    // B020: the expanded form holds secrets, and debug output ends up in logs.
    #[test]
    fn debug_output_has_no_values() {
        let backend = backend("  command: x\n  args: ['${API_KEY}']\n  env: {K: '${API_KEY}'}\n");
        let expanded = expand_backend(&backend, lookup).unwrap();
        assert!(!format!("{expanded:?}").contains("s3cr3t"));
        assert_eq!(expanded.secret_values(), ["s3cr3t-value"]);
    }
}
