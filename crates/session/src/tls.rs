//! TLS 1.3 between members that have the same secret (docs/decisions/links.md).
//!
//! Both ends derive the same key pair from the secret, present its public half as a raw public key
//! (RFC 7250), and accept that key and no other. So a completed handshake proves possession of the
//! secret; nothing of the secret is sent; and what was sent stays confidential if the secret leaks
//! later (forward secrecy).

use std::{net::IpAddr, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, Error, ServerConfig, ServerConnection, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key,
    },
    pki_types::{
        CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::{
        AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
    version::TLS13,
};
use zeroize::Zeroizing;

use crate::secret::Secret;

/// The bytes before an Ed25519 seed in PKCS #8 (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Makes the TLS client that connects to a listener at `peer`.
pub(crate) fn connector(secret: &Secret, peer: IpAddr) -> Result<Connection, Error> {
    let (provider, twin) = (Arc::new(aws_lc_rs::default_provider()), Twin::of(secret)?);
    let key = Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&twin.own)));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(twin))
        .with_client_cert_resolver(key);
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let name = ServerName::IpAddress(peer.into());
    ClientConnection::new(Arc::new(config), name).map(Connection::Client)
}

/// Makes the TLS server for an accepted connection.
pub(crate) fn listener(secret: &Secret) -> Result<Connection, Error> {
    let (provider, twin) = (Arc::new(aws_lc_rs::default_provider()), Twin::of(secret)?);
    let key = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&twin.own)));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(twin))
        .with_cert_resolver(key);
    // A session that could be resumed could be replayed.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    ServerConnection::new(Arc::new(config)).map(Connection::Server)
}

/// The verifier and the key of both ends: accepts only a peer with the same key.
#[derive(Debug)]
struct Twin {
    own: Arc<CertifiedKey>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Twin {
    fn of(secret: &Secret) -> Result<Self, Error> {
        let mut encoded = Zeroizing::new([0; PKCS8_PREFIX.len() + 32]);
        encoded[..PKCS8_PREFIX.len()].copy_from_slice(&PKCS8_PREFIX);
        encoded[PKCS8_PREFIX.len()..].copy_from_slice(&*secret.identity_seed());
        let key = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&encoded[..]))?;
        let public = key.public_key().ok_or(Error::General("a key without public half".into()))?;
        let shown = vec![CertificateDer::from(public.to_vec())];
        let provider: CryptoProvider = aws_lc_rs::default_provider();
        let algorithms = provider.signature_verification_algorithms;
        Ok(Self { own: Arc::new(CertifiedKey::new(shown, key)), algorithms })
    }

    fn recognise(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        if self.own.cert.first() == Some(shown) {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }
}

/// Methods that the verifiers of both ends share: raw public keys, in TLS 1.3 only.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.3 only".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.recognise(shown)?;
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Twin {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.recognise(shown).map(|()| ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl ClientCertVerifier for Twin {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.recognise(shown).map(|()| ClientCertVerified::assertion())
    }

    verify_signatures!();
}
