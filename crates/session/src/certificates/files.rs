//! A host's certificate, and the TLS configurations that it makes.

use std::{fmt, fs::File, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, Error as TlsError, RootCertStore, ServerConfig,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::ServerName,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};

use super::{error::Error, names::host_name, pem, verifier::Allowed};

/// Paths of certificates and keys: files in the PEM format.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// This host's own certificate, followed by any intermediate certificates.
    pub certificate: PathBuf,
    /// The private key of that certificate, not encrypted.
    pub key: PathBuf,
    /// Certificates of the authorities, one of which must have issued the other end's certificate.
    pub authorities: PathBuf,
}

/// This host's certificate, and the authorities and names that it accepts. Clones share them.
///
/// A client also requires that the server's certificate is for the host that it connects to.
/// Certificates with an extended key usage have to allow theirs: `clientAuth` for the client,
/// `serverAuth` for the server. Revocation is not checked.
#[derive(Clone)]
pub struct Certificates {
    connecting: Arc<ClientConfig>,
    listening: Arc<ServerConfig>,
    authorities: Arc<RootCertStore>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates(..)")
    }
}

impl Certificates {
    /// Reads the files. A server that uses them admits clients whose certificate is for one of the
    /// `allowed` names (DNS names or IP addresses), or, if there are none, clients with any
    /// certificate of the authorities. Blocks while files are read.
    ///
    /// Errors: a file is missing or does not contain what it should; the key does not belong to the
    /// certificate; a name is invalid.
    pub fn read(files: &CertificateFiles, allowed: &[String]) -> Result<Self, Error> {
        Self::read_with_key(files, pem::open(&files.key)?, allowed)
    }

    /// As [`Certificates::read`], with the file of the key opened, for callers that check who else has access to it.
    ///
    /// Errors: as [`Certificates::read`].
    pub fn read_with_key(
        files: &CertificateFiles,
        key: File,
        allowed: &[String],
    ) -> Result<Self, Error> {
        let own = pem::own_certificate(&files.certificate, &files.key, key)?;
        let authorities = Arc::new(pem::authorities(&files.authorities)?);
        let allowed = allowed.iter().map(|name| host_name(name)).collect::<Result<Vec<_>, _>>()?;
        let refused = |error: TlsError| pem::unusable(&files.certificate, error);
        Ok(Self {
            connecting: connecting(&own, &authorities).map_err(refused)?,
            listening: listening(&own, &authorities, allowed).map_err(refused)?,
            authorities,
        })
    }

    /// Returns the TLS configuration of the end that connects, for protocols other than rdmc's own.
    #[must_use]
    pub fn connecting(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.connecting)
    }

    /// Returns the authorities, one of which must have issued other hosts' certificates.
    #[must_use]
    pub fn authorities(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.authorities)
    }

    /// Returns the TLS configuration of the end that listens.
    #[must_use]
    pub fn listening(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.listening)
    }
}

fn connecting(
    own: &Arc<CertifiedKey>,
    authorities: &Arc<RootCertStore>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(Arc::clone(authorities))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own))));
    config.resumption = Resumption::disabled();
    // Server name indication would send the host's name in clear.
    config.enable_sni = false;
    Ok(Arc::new(config))
}

fn listening(
    own: &Arc<CertifiedKey>,
    authorities: &Arc<RootCertStore>,
    allowed: Vec<ServerName<'static>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let issued =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(authorities), Arc::clone(&provider))
            // The names of the authorities are not disclosed to unauthenticated peers.
            .clear_root_hint_subjects()
            .build()
            .map_err(|error| TlsError::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(Allowed { issued, names: allowed }))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own))));
    // A session that could be resumed could be replayed.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
