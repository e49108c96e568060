//! Verification of clients: a certificate of an authority, and an admitted name.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError, OtherError,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use super::names::is_certificate_for;

/// Accepts certificates of the authorities for these names, or for any name if there are none.
#[derive(Debug)]
pub(crate) struct Allowed {
    pub(crate) issued: Arc<dyn ClientCertVerifier>,
    pub(crate) names: Vec<ServerName<'static>>,
}

/// A client has a certificate of an authority, but for none of the admitted names. The verifier
/// returns it within [`CertificateError::Other`].
#[derive(Debug, thiserror::Error)]
#[error("its certificate is for none of the names that are allowed here: {0}")]
pub struct NotAllowed(String);

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
