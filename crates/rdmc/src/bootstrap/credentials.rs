//! How a root and a receiver that listens prove to each other who they are: by a secret that both
//! know, or by certificates of an authority that both trust.

use std::{
    fmt,
    fs::File,
    io::Read,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, Error as TlsError, InconsistentKeys, OtherError, RootCertStore,
    ServerConfig, ServerConnection, SignatureScheme,
    client::{Resumption, danger::HandshakeSignatureValid, verify_server_name},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{
        NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};
use zeroize::Zeroizing;

use super::tls;
use crate::{Error, Secret};

/// The longest file of certificates or of a key that is read; systems' own lists of authorities have
/// some 200 KB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What one end of a [`super::Channel`] proves, and asks the other to prove.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Both know it.
    Secret(Secret),
    /// Each shows a certificate that the other accepts.
    Certificates(Certificates),
}

impl From<Secret> for Credentials {
    fn from(secret: Secret) -> Self {
        Self::Secret(secret)
    }
}

impl Credentials {
    /// This end of a connection to `host`, which was found at `address`.
    pub(super) fn connector(&self, host: &str, address: IpAddr) -> Result<Connection, TlsError> {
        match self {
            Self::Secret(secret) => tls::connector(secret, address),
            Self::Certificates(certificates) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| TlsError::General(format!("no certificate can be for {host}")))?;
                let config = Arc::clone(&certificates.connecting);
                ClientConnection::new(config, name).map(Connection::Client)
            }
        }
    }

    /// This end of a connection that was accepted here.
    pub(super) fn listener(&self) -> Result<Connection, TlsError> {
        match self {
            Self::Secret(secret) => tls::listener(secret),
            Self::Certificates(certificates) => {
                let config = Arc::clone(&certificates.listening);
                ServerConnection::new(config).map(Connection::Server)
            }
        }
    }
}

/// Where certificates are: files in the PEM format.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// This host's own certificate, and after it those between it and the authority, if any.
    pub certificate: PathBuf,
    /// The private key of that certificate, not encrypted.
    pub key: PathBuf,
    /// The authorities of which one has to have issued the other end's certificate.
    pub authorities: PathBuf,
}

/// This host's certificate, and whose certificates it accepts. Clones share them.
///
/// Who calls also asks that the other's certificate is for the host that it calls. Certificates that
/// say what they are for (extended key usage) have to allow it: `clientAuth` for who calls,
/// `serverAuth` for who listens. Lists of revoked certificates are not asked.
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
    /// Reads them. Who listens with them lets in callers whose certificate is for one of the
    /// `allowed` names (DNS names or IP addresses), or everybody whom an authority knows if there
    /// are none. Blocks while files are read.
    ///
    /// Errors: a file is missing or has not in it what it should; the key is not the certificate's;
    /// a name is none.
    pub fn read(files: &CertificateFiles, allowed: &[String]) -> Result<Self, Error> {
        let own = own_certificate(files)?;
        let authorities = Arc::new(authorities(&files.authorities)?);
        let allowed = allowed.iter().map(|name| host_name(name)).collect::<Result<Vec<_>, _>>()?;
        let refused = |error: TlsError| unusable(&files.certificate, error);
        Ok(Self {
            connecting: connecting(&own, &authorities).map_err(refused)?,
            listening: listening(&own, &authorities, allowed).map_err(refused)?,
            authorities,
        })
    }

    /// What TLS needs of them at the end that calls, for other protocols than rdmc's own.
    #[must_use]
    pub fn connecting(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.connecting)
    }

    /// The authorities of which one has to have issued others' certificates.
    #[must_use]
    pub fn authorities(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.authorities)
    }

    /// What TLS needs of them at the end that listens.
    #[must_use]
    pub fn listening(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.listening)
    }
}

/// Whether a certificate is for a host of this name (a DNS name or an IP address). Who issued it has
/// been checked when the connection was made.
#[must_use]
pub fn is_certificate_for(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let certificate = ParsedCertificate::try_from(certificate);
    certificate.is_ok_and(|certificate| verify_server_name(&certificate, name).is_ok())
}

fn connecting(
    own: &Arc<CertifiedKey>,
    authorities: &Arc<RootCertStore>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(Arc::clone(authorities))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own))));
    config.resumption = Resumption::disabled();
    // Whom this host calls is nobody else's business.
    config.enable_sni = false;
    Ok(Arc::new(config))
}

fn listening(
    own: &Arc<CertifiedKey>,
    authorities: &Arc<RootCertStore>,
    allowed: Vec<ServerName<'static>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let issued =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(authorities), Arc::clone(&provider))
            // Strangers do not learn whom this host trusts.
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

fn own_certificate(files: &CertificateFiles) -> Result<Arc<CertifiedKey>, Error> {
    let chain = certificates(&files.certificate)?;
    let text = read(&files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let is_encrypted = text.windows(9).any(|part| part == b"ENCRYPTED");
        let remedy = match is_encrypted {
            true => "it is encrypted; `openssl pkey -in FILE -out NEW` decrypts it",
            false => "it should hold the key of this host's certificate in the PEM format",
        };
        setting(&files.key, format!("no private key in it ({error}); {remedy}"))
    })?;
    let own = CertifiedKey::from_der(chain, key, &ring::default_provider());
    own.map(Arc::new).map_err(|error| match error {
        TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => setting(
            &files.key,
            format!("is not the key of the certificate in {}", files.certificate.display()),
        ),
        TlsError::InvalidCertificate(_) => unusable(&files.certificate, error),
        error => unusable(&files.key, error),
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(store)
}

/// All certificates in a file. Errors: there is none.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| setting(path, format!("is not in the PEM format: {error}")))?;
    if all.is_empty() {
        let remedy = "it should hold BEGIN CERTIFICATE (the PEM format)";
        return Err(setting(path, format!("no certificate in it; {remedy}")));
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut contents = Zeroizing::new(Vec::new());
    // One more byte, to tell a whole file from the beginning of a longer one.
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut contents))
        .map_err(|error| Error::System { what: path.display().to_string(), error })?;
    if contents.len() as u64 > FILE_BYTES_MAX {
        let most = crate::size::show(FILE_BYTES_MAX);
        return Err(setting(path, format!("longer than {most}; is it the right file?")));
    }
    Ok(contents)
}

fn host_name(name: &str) -> Result<ServerName<'static>, Error> {
    let wrong = |_| Error::Setting(format!("\"{name}\" is not the name or address of a host"));
    ServerName::try_from(name.to_owned()).map_err(wrong)
}

fn unusable(path: &Path, error: TlsError) -> Error {
    setting(path, format!("cannot be used: {error}"))
}

fn setting(path: &Path, what: String) -> Error {
    Error::Setting(format!("{}: {what}", path.display()))
}

/// Accepts certificates of the authorities, for these names or any if there are none.
#[derive(Debug)]
struct Allowed {
    issued: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
}

/// A caller of whom an authority knows, but not one of those who are let in.
#[derive(Debug, thiserror::Error)]
#[error("its certificate is for none of the names that are allowed here: {0}")]
pub(super) struct NotAllowed(String);

impl Allowed {
    fn check_name(&self, shown: &CertificateDer<'_>) -> Result<(), TlsError> {
        let is_for = |name: &ServerName<'_>| is_certificate_for(shown, name);
        if self.names.is_empty() || self.names.iter().any(is_for) {
            return Ok(());
        }
        let names = self.names.iter().map(|name| name.to_str()).collect::<Vec<_>>().join(", ");
        Err(CertificateError::Other(OtherError(Arc::new(NotAllowed(names)))).into())
    }
}

impl ClientCertVerifier for Allowed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.issued.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        let verified = self.issued.verify_client_cert(shown, between, now)?;
        self.check_name(shown).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.issued.verify_tls12_signature(message, shown, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.issued.verify_tls13_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}
