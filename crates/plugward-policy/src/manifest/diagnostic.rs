//! What is wrong with a manifest, said so that its author finds the place. Owns the wording frame
//! (`file:line:column: path: message, hint`) and the list that collects every finding of a file.
//! Refuses to decide what a finding means for an installation.

use std::fmt;

use super::tree::Mark;

/// Most errors and most warnings kept for one file; a person fixes the first few and looks again, and a hostile
/// file cannot make an answer of megabytes. One more finding says that there were others.
const DIAGNOSTICS_MAX: usize = 100;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The manifest is refused.
    Error,
    /// The manifest loads, and a person should read this first.
    Warning,
}

/// One finding in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// Line, counted from 1; `None` when the finding is about the file as a whole.
    pub line: Option<u32>,
    /// Column in characters, counted from 1; present exactly when `line` is.
    pub column: Option<u32>,
    /// Where in the document, like `backend.args[1]`; empty for the document itself.
    pub path: String,
    /// What is wrong, lower case, without a trailing stop.
    pub message: String,
    /// What to do about it, or what was probably meant.
    pub hint: Option<String>,
    /// Whether the manifest is refused for it.
    pub severity: Severity,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        f.write_str(": ")?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, ", {hint}"),
            None => Ok(()),
        }
    }
}

/// Whose limits a refused manifest ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestErrorKind {
    /// The author has to change the file.
    Invalid,
    /// The file is well-formed and asks only for things this version does not offer
    /// (`MCP_CAPABILITY_UNSUPPORTED`, requirement 28).
    Unsupported,
}

/// A refused manifest: every error found in it, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    diagnostics: Vec<Diagnostic>,
    kind: ManifestErrorKind,
}

impl ManifestError {
    /// Every finding of the file, warnings included; at least one is an error.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// [`ManifestErrorKind::Unsupported`] when nothing else is wrong with the file.
    #[must_use]
    pub fn kind(&self) -> ManifestErrorKind {
        self.kind
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
        for (index, diagnostic) in errors.enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ManifestError {}

/// The findings of one file while it is read.
pub(crate) struct Report {
    file: String,
    diagnostics: Vec<Diagnostic>,
    dropped: bool,
    invalid: bool,
    unsupported: bool,
}

impl Report {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), diagnostics: Vec::new(), dropped: false, invalid: false, unsupported: false }
    }

    /// Records an error of the author's.
    pub(crate) fn error(&mut self, at: Option<Mark>, path: &str, message: impl Into<String>) {
        self.invalid = true;
        self.push(Severity::Error, at, path, message.into(), None);
    }

    /// Records an error of the author's together with what to do about it.
    pub(crate) fn error_hint(
        &mut self,
        at: Option<Mark>,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.invalid = true;
        self.push(Severity::Error, at, path, message.into(), Some(hint.into()));
    }

    /// Records something legal that this version does not offer.
    pub(crate) fn unsupported(
        &mut self,
        at: Option<Mark>,
        path: &str,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.unsupported = true;
        self.push(Severity::Error, at, path, message.into(), hint);
    }

    /// Records something a person should know before agreeing.
    pub(crate) fn warning(&mut self, at: Option<Mark>, path: &str, message: impl Into<String>, hint: Option<String>) {
        self.push(Severity::Warning, at, path, message.into(), hint);
    }

    /// `value` with the warnings when nothing was refused, every finding otherwise.
    pub(crate) fn finish<T>(mut self, value: Option<T>) -> Result<(T, Vec<Diagnostic>), ManifestError> {
        let refused = self.invalid || self.unsupported;
        if value.is_none() && !refused {
            self.error(None, "", "file holds no manifest");
        }
        // Missing keys are found after the keys that are there: sort so that a reader goes through
        // the file once. The sort is stable and findings about the whole file come first.
        self.diagnostics.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        if self.dropped {
            self.diagnostics.push(Diagnostic {
                file: self.file.clone(),
                line: None,
                column: None,
                path: String::new(),
                message: format!("more than {DIAGNOSTICS_MAX} findings, the rest is not shown"),
                hint: None,
                severity: Severity::Warning,
            });
        }
        match value {
            Some(value) if !refused => Ok((value, self.diagnostics)),
            _ => {
                let unsupported_only = self.unsupported && !self.invalid;
                let kind = if unsupported_only { ManifestErrorKind::Unsupported } else { ManifestErrorKind::Invalid };
                Err(ManifestError { diagnostics: self.diagnostics, kind })
            }
        }
    }

    fn push(&mut self, severity: Severity, at: Option<Mark>, path: &str, message: String, hint: Option<String>) {
        // Counted apart: a flood of warnings must not crowd out the error that refuses the file.
        let kept = self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
        if kept >= DIAGNOSTICS_MAX {
            self.dropped = true;
            return;
        }
        self.diagnostics.push(Diagnostic {
            file: self.file.clone(),
            line: at.map(|mark| mark.line),
            column: at.map(|mark| mark.column),
            path: path.to_owned(),
            message,
            hint,
            severity,
        });
    }
}
