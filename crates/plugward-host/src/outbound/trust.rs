//! Whom a server's certificate has to be signed by. Owns the set of roots: the machine's own store, and those a person
//! added for hosts of their own. Refuses to let anything switch the check off.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// A file of roots that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// No certificate is in it.
    #[error("no certificate is in it; it has to hold blocks that begin with `-----BEGIN CERTIFICATE-----`")]
    Empty,
    /// A certificate in it cannot be read.
    #[error("certificate {number} in it cannot be read: {reason}")]
    Certificate {
        /// Its place, from 1.
        number: usize,
        /// What is wrong.
        reason: String,
    },
}

/// Whom to trust, shared by all who make requests. Cheap to clone; the machine's store is read at the first use, because
/// most hosts never make a request of their own and it is a hundred and more certificates.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<Roots>);

#[derive(Debug, Default)]
struct Roots {
    added: Vec<CertificateDer<'static>>,
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Trust {
    /// The machine's store, and the certificates of `pem` with it.
    ///
    /// # Errors
    /// [`TrustError`] if there is none in it or one is none.
    pub fn with_added(pem: &[u8]) -> Result<Self, TrustError> {
        let mut added = Vec::new();
        let mut check = RootCertStore::empty();
        for (index, found) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let refused = |reason: String| TrustError::Certificate { number: index + 1, reason };
            let certificate = found.map_err(|error| refused(error.to_string()))?;
            check.add(certificate.clone()).map_err(|error| refused(error.to_string()))?;
            added.push(certificate);
        }
        if added.is_empty() {
            return Err(TrustError::Empty);
        }
        Ok(Self(Arc::new(Roots { added, config: OnceLock::new() })))
    }

    /// How TLS is spoken. Blocks for reading the store at the first call.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        self.0.config.get_or_init(|| build(&self.0.added)).clone()
    }
}

fn build(added: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    // A store has old certificates in it that nobody can read any more; the others hold.
    roots.add_parsable_certificates(system.certs);
    for certificate in added {
        roots.add(certificate.clone()).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        let reason = "this machine trusts no certificate authority: install its package of them (`ca-certificates`), or \
                      name a file of them in the setting `extra_roots`";
        return Err(reason.to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
