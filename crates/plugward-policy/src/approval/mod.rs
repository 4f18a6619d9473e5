//! What exactly a person agreed to. Owns the list of everything an approval is bound to, its one
//! canonical text and the digest over it. Refuses to hold a secret: values of variables enter as
//! digests and secret parts of arguments are cut out, so the text may be stored and shown.

mod diff;
mod pin;
mod record;

use std::collections::{BTreeMap, BTreeSet};

pub use diff::Change;
pub use pin::{PinError, ToolPin};
pub use record::ApprovalTextError;

use crate::access::ExpandedAccess;
use crate::id::{Digest, PermissionName, PluginId};
use crate::manifest::SandboxLevel;

/// What stands where a secret was, when an argument is shown.
const MASK: &str = "***";

/// Everything an approval covers (requirements 94, 106). If any of it differs later, the plugin is
/// held until a person agrees again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSubject {
    /// The plugin.
    pub plugin: PluginId,
    /// Its version.
    pub version: String,
    /// Where it came from.
    pub source: String,
    /// Digest over the whole package.
    pub package_digest: Digest,
    /// The executable, resolved to a path.
    pub executable: String,
    /// Digest of the executable's bytes.
    pub executable_digest: Digest,
    /// The arguments as they are passed, after the executable.
    pub argv: Vec<ApprovedArgument>,
    /// The working directory.
    pub cwd: String,
    /// Variables set for the plugin, each with the digest [`ApprovalSubject::env_digest`] makes.
    pub env: BTreeMap<String, Digest>,
    /// Variables whose values are kept elsewhere, with the reference under which they are. A new
    /// value under the same reference needs no new approval.
    pub secret_refs: BTreeMap<String, String>,
    /// The named permissions the manifest asks for.
    pub permissions: BTreeSet<PermissionName>,
    /// What of the machine the manifest asks for, with the places its paths stand for here, so that a
    /// variable that changes cannot move a grant to another place.
    pub access: ExpandedAccess,
    /// The sandbox level below which it does not start.
    pub minimum_level: SandboxLevel,
    /// The tools as they were read, `None` when nobody has seen them yet.
    pub contract: Option<Vec<ToolPin>>,
}

/// One argument without the secrets in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovedArgument {
    parts: Vec<ArgumentPart>,
}

/// A piece of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ArgumentPart {
    Text(String),
    Secret(Digest),
}

impl ApprovedArgument {
    /// `argument` with each of `secrets` cut out; [`secret_values`](crate::secret_values) has them
    /// in the order to pass.
    #[must_use]
    pub fn new(argument: &str, secrets: &[String]) -> Self {
        let mut parts = vec![ArgumentPart::Text(argument.to_owned())];
        for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
            let cut = |part: ArgumentPart| match part {
                ArgumentPart::Text(text) => cut_out(&text, secret),
                ArgumentPart::Secret(_) => vec![part],
            };
            parts = parts.into_iter().flat_map(cut).collect();
        }
        Self { parts }
    }

    /// The argument with `***` for each secret, for people.
    #[must_use]
    pub fn masked(&self) -> String {
        let shown = self.parts.iter().map(|part| match part {
            ArgumentPart::Text(text) => text.as_str(),
            ArgumentPart::Secret(_) => MASK,
        });
        shown.collect()
    }
}

fn cut_out(text: &str, secret: &str) -> Vec<ArgumentPart> {
    let mut parts = Vec::new();
    for (index, piece) in text.split(secret).enumerate() {
        if index > 0 {
            parts.push(ArgumentPart::Secret(secret_digest("argument", "", secret)));
        }
        // An argument that is empty as a whole still has to be there.
        if !piece.is_empty() || text.is_empty() {
            parts.push(ArgumentPart::Text(piece.to_owned()));
        }
    }
    parts
}

/// A digest that says where its value belongs, so that the same secret in two places does not show
/// as the same digest.
fn secret_digest(place: &str, name: &str, value: &str) -> Digest {
    Digest::of(format!("plugward {place}\0{name}\0{value}").as_bytes())
}

impl ApprovalSubject {
    /// The digest under which the value of variable `name` enters [`ApprovalSubject::env`].
    #[must_use]
    pub fn env_digest(name: &str, value: &str) -> Digest {
        secret_digest("variable", name, value)
    }

    /// The canonical text: JSON with sorted keys and one spelling for everything.
    #[must_use]
    pub fn canonical(&self) -> String {
        record::write(self)
    }

    /// Reads a [canonical](Self::canonical) text back, for instance to compare with what is now.
    ///
    /// # Errors
    /// [`ApprovalTextError`] when `text` is anything else.
    pub fn from_canonical(text: &str) -> Result<Self, ApprovalTextError> {
        record::read(text)
    }

    /// The digest a person agrees to: SHA-256 of the canonical text.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.canonical().as_bytes())
    }

    /// What differs in `new`, in words for people and in a fixed order; empty exactly when the
    /// digests are the same.
    #[must_use]
    pub fn diff(&self, new: &Self) -> Vec<Change> {
        diff::diff(self, new)
    }
}
