//! Places in the file system a plugin asks for. Owns the form of such a path, as written and as
//! expanded. Refuses relative paths, steps upwards and second spellings of the same place, so that
//! what a person reads is the place that is opened. Looks at no disk: symbolic links are the
//! sandbox's to judge.

use std::fmt;

use crate::expand::{ExpandError, check_references, expand, reference_names};
use crate::secret::is_secret_name;
use crate::visible::{is_deceptive, quoted};

/// Longest path, written or expanded, in bytes: what Linux takes.
pub const GRANT_PATH_BYTES_MAX: usize = 4096;

/// A text that is no place a plugin can ask for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing there.
    #[error("path is empty: write an absolute path, `~/…` or `${{NAME}}/…`")]
    Empty,
    /// Longer than [`GRANT_PATH_BYTES_MAX`].
    #[error("path {} has {} bytes, at most {GRANT_PATH_BYTES_MAX} are allowed", quoted(.0), .0.len())]
    TooLong(String),
    /// Would depend on where the reader stands.
    #[error("path {} is relative: begin with `/`, `~/` or `${{PLUGIN_DIR}}/`", quoted(.0))]
    Relative(String),
    /// `~name` names the home of somebody else.
    #[error("path {} names the home of another user: only `~` and `~/…` are known", quoted(.0))]
    OtherHome(String),
    /// A `..` in it.
    #[error("path {} has a `..` in it: write where it leads", quoted(.0))]
    Upwards(String),
    /// An empty or `.` segment, or a slash at the end: a second spelling of another path.
    #[error("path {} has a `.`, a double or a closing slash: write `{}`", quoted(.path), crate::visible(.plain))]
    NotPlain {
        /// The path.
        path: String,
        /// How to write the same place.
        plain: String,
    },
    /// A character that ends the path for the system, or hides from the reader.
    #[error("path {} holds NUL, control or invisible characters", quoted(.0))]
    Unprintable(String),
    /// A `${…}` that is not one.
    #[error(transparent)]
    Reference(#[from] ExpandError),
    /// A path is shown and stored, so it cannot be made of a secret.
    #[error("path {} is made of `{variable}`, which names a secret", quoted(.path))]
    Secret {
        /// The path.
        path: String,
        /// The variable.
        variable: String,
    },
}

/// A path that cannot be expanded here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandPathError {
    /// A reference without a value.
    #[error(transparent)]
    Reference(#[from] ExpandError),
    /// `~` without an absolute home.
    #[error("the home folder is not known")]
    NoHome,
    /// Expanded, it is no place any more.
    #[error(transparent)]
    Unusable(#[from] PathError),
}

/// A file or folder as a manifest names it: absolute, `~/…`, or beginning with a reference.
///
/// One place has one spelling, so that the text a person granted can be compared as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathGrant(String);

impl PathGrant {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`PathError`] when it is relative, leads upwards, has a second spelling, hides characters,
    /// is too long or holds a reference that cannot be read.
    ///
    /// ```
    /// use plugward_policy::PathGrant;
    /// assert!(PathGrant::new("~/notes").is_ok());
    /// assert!(PathGrant::new("/data/../etc").is_err());
    /// ```
    pub fn new(text: impl Into<String>) -> Result<Self, PathError> {
        let text = text.into();
        check_characters(&text)?;
        check_references(&text)?;
        if let Some(variable) = reference_names(&text).into_iter().find(|name| is_secret_name(name)) {
            return Err(PathError::Secret { variable: variable.to_owned(), path: text });
        }
        if text.starts_with('~') && text != "~" && !text.starts_with("~/") {
            return Err(PathError::OtherHome(text));
        }
        if !text.starts_with(['/', '~']) && !text.starts_with("${") {
            return Err(PathError::Relative(text));
        }
        check_segments(&text)?;
        // Whatever the defaults make of it can be judged now.
        if let Ok(expanded) = expand(&text, |_| None) {
            // A `~` that comes out of a reference is not replaced.
            if !expanded.starts_with('/') && !text.starts_with('~') {
                return Err(PathError::Relative(text));
            }
            if has_upward_step(&expanded) {
                return Err(PathError::Upwards(text));
            }
        }
        Ok(Self(text))
    }

    /// The path as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The absolute path meant here: `~` becomes `home`, references what `lookup` says. A closing or
    /// double slash that comes out of a variable is dropped.
    ///
    /// # Errors
    /// [`ExpandPathError`] when a value is missing or the result is not absolute, leads upwards or
    /// cannot be a path.
    pub fn expand(
        &self,
        home: Option<&str>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<String, ExpandPathError> {
        let (base, rest) = match self.0.strip_prefix('~') {
            // An empty home would make `~/x` mean `/x`.
            Some(rest) => (home.filter(|home| home.starts_with('/')).ok_or(ExpandPathError::NoHome)?, rest),
            None => ("", self.0.as_str()),
        };
        let path = format!("{base}{}", expand(rest, lookup)?);
        check_characters(&path)?;
        if !path.starts_with('/') {
            return Err(PathError::Relative(path).into());
        }
        if has_upward_step(&path) {
            return Err(PathError::Upwards(path).into());
        }
        Ok(plain(&path))
    }
}

impl fmt::Display for PathGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_characters(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    if path.len() > GRANT_PATH_BYTES_MAX {
        return Err(PathError::TooLong(path.to_owned()));
    }
    if path.chars().any(is_deceptive) {
        return Err(PathError::Unprintable(path.to_owned()));
    }
    Ok(())
}

fn check_segments(path: &str) -> Result<(), PathError> {
    if has_upward_step(path) {
        return Err(PathError::Upwards(path.to_owned()));
    }
    // A slash inside a reference's default is no separator of this path yet.
    let plain = if path.contains(":-") { path.to_owned() } else { plain(path) };
    if plain == path { Ok(()) } else { Err(PathError::NotPlain { path: path.to_owned(), plain }) }
}

fn has_upward_step(path: &str) -> bool {
    path.split('/').any(|segment| segment == "..")
}

/// `path` without empty and `.` segments and without a closing slash.
fn plain(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
    let lead = if path.starts_with('/') { "/" } else { "" };
    format!("{lead}{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "PLUGIN_DIR" => Some("/plugins/demo".to_owned()),
            "DATA" => Some("/data/".to_owned()),
            "NESTED" => Some("/data/${HOME}".to_owned()),
            "UP" => Some("..".to_owned()),
            "RELATIVE" => Some("data".to_owned()),
            "NUL" => Some("/a\0b".to_owned()),
            _ => None,
        }
    }

    // Requirement 90: what a person reads is the place that is opened, in the one spelling it has.
    #[test]
    fn written_paths_have_one_spelling() {
        for good in [
            "/",
            "/data",
            "/data/my files",
            "~",
            "~/notes",
            "${PLUGIN_DIR}",
            "${DATA}/x",
            "/a/~b",
            "/a/...",
            "/a/b:c",
            "${DATA:-/srv/x}",
            "/données/日本",
            "/srv/${NAME}/x",
            "/a/.b",
        ] {
            assert_eq!(PathGrant::new(good).map(|path| path.to_string()).as_deref(), Ok(good), "{good}");
        }
        let long = format!("/{}", "x".repeat(GRANT_PATH_BYTES_MAX));
        for (bad, words) in [
            ("", "path is empty"),
            ("data", "path `data` is relative"),
            ("./data", "is relative"),
            (".", "is relative"),
            ("*", "is relative"),
            ("C:\\data", "is relative"),
            ("~ann/x", "home of another user"),
            ("..", "is relative"),
            ("/data/../etc", "path `/data/../etc` has a `..` in it"),
            ("~/..", "has a `..` in it"),
            ("${DATA}/..", "has a `..` in it"),
            ("${DATA:-../..}", "is relative"),
            ("${DATA:-~/x}", "is relative"),
            ("/a${DATA:-/../b}", "has a `..` in it"),
            ("${DATA:-/a/..}", "has a `..` in it"),
            ("/data/", "write `/data`"),
            ("//data", "write `/data`"),
            ("/data/./x", "write `/data/x`"),
            ("~/", "write `~`"),
            ("/a\0", "NUL, control or invisible"),
            ("/a\u{202e}b", "NUL, control or invisible"),
            ("/a\nb", "NUL, control or invisible"),
            ("/x/${", "reference `${` is not valid"),
            ("${DATA:-here}", "is relative"),
            ("/data/${API_TOKEN}", "`API_TOKEN`, which names a secret"),
            (&long, "at most 4096"),
        ] {
            let shown = PathGrant::new(bad).expect_err(bad).to_string();
            assert!(shown.contains(words), "{bad:?}: {shown}");
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }

    // A variable of the environment must not turn a grant into a wider one without being noticed.
    #[test]
    fn expanded_paths_are_absolute_and_lead_nowhere_else() {
        let expand = |text: &str| PathGrant::new(text).unwrap().expand(Some("/home/ann"), lookup);
        for (text, wanted) in [
            ("~", "/home/ann"),
            ("~/notes", "/home/ann/notes"),
            ("${PLUGIN_DIR}/data", "/plugins/demo/data"),
            ("${DATA}", "/data"),
            ("${DATA}/x", "/data/x"),
            ("${NONE:-/srv}/x", "/srv/x"),
            ("${NESTED}", "/data/${HOME}"),
            ("/", "/"),
        ] {
            assert_eq!(expand(text).as_deref(), Ok(wanted), "{text}");
        }
        for (text, words) in [
            ("${NONE}/x", "variable `NONE` is not set"),
            ("${RELATIVE}/x", "path `data/x` is relative"),
            ("/data/${UP}/etc", "has a `..` in it"),
            ("${NUL}", "NUL, control or invisible"),
        ] {
            assert!(expand(text).unwrap_err().to_string().contains(words), "{text}");
        }
        let home = PathGrant::new("~/x").unwrap();
        for unusable in [None, Some(""), Some("home/ann")] {
            assert_eq!(home.expand(unusable, lookup), Err(ExpandPathError::NoHome));
        }
        assert!(home.expand(Some("/home/../root"), lookup).is_err());
    }
}
