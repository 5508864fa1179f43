//! TLS: certificates and keys out of PEM files, for a listener and for its clients. Owns what is said
//! about a file that does not serve; the cryptography is rustls' with ring.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject, ReadIter};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// Certificates read from one file.
const CERTIFICATES_MAX: usize = 10_000;

/// What a listener shows its clients: a certificate chain and the key to it.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

/// Why a file does not serve.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("could not read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is no PEM file, or a damaged one.
    #[error("{} is not PEM: {error}", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: pem::Error,
    },
    /// The file has no certificate.
    #[error("{} holds no certificate; it begins with -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The file has no key that can be used.
    #[error("{} holds no private key without a password", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// There are more than anybody needs.
    #[error("{} holds more than {CERTIFICATES_MAX} certificates", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
    },
    /// The certificate cannot be used, or is not this key's.
    #[error("the certificate {} and the key {} do not serve: {error}", certificate.display(), key.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's.
        key: PathBuf,
        /// What is wrong.
        error: rustls::Error,
    },
    /// A certificate cannot be trusted in.
    #[error("a certificate of {} cannot be used: {error}", path.display())]
    Useless {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: rustls::Error,
    },
}

impl Tls {
    /// Reads a chain, the listener's own certificate first, and its key. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or does not serve; the message names it.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let chain = certificates(certificate)?;
        let private = private_key(key)?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(|error| TlsError::Mismatch {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
                error,
            })?;
        Ok(Tls(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.clone().into()
    }
}

impl std::fmt::Debug for Tls {
    /// Nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// What a client needs to believe the servers whose certificates `authorities` signed, or which are
/// among them. Blocks.
///
/// # Errors
/// The file cannot be read or does not serve; the message names it.
pub fn client(authorities: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let useless = |error| TlsError::Useless { path: authorities.to_owned(), error };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(useless)?;
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(useless)?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The sections of a PEM file that are a `T`.
fn sections<T: PemObject>(path: &Path) -> Result<ReadIter<io::BufReader<File>, T>, TlsError> {
    let unreadable = |error| TlsError::Unreadable { path: path.to_owned(), error };
    Ok(ReadIter::new(io::BufReader::new(File::open(path).map_err(unreadable)?)))
}

fn fault(path: &Path, error: pem::Error) -> TlsError {
    match error {
        pem::Error::Io(error) => TlsError::Unreadable { path: path.to_owned(), error },
        error => TlsError::NotPem { path: path.to_owned(), error },
    }
}

/// All certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut found = Vec::new();
    for certificate in sections(path)? {
        if found.len() == CERTIFICATES_MAX {
            return Err(TlsError::TooMany { path: path.to_owned() });
        }
        found.push(certificate.map_err(|error| fault(path, error))?);
    }
    match found.len() {
        0 => Err(TlsError::NoCertificate { path: path.to_owned() }),
        _ => Ok(found),
    }
}

/// The first private key of a file.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = sections(path)?.next().ok_or_else(|| TlsError::NoKey { path: path.to_owned() })?;
    key.map_err(|error| fault(path, error))
}
