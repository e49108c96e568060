//! Explains why a handshake failed, with the remedy.

use crate::certificates::NotAllowed;
use rustls::{AlertDescription as Alert, CertificateError, Error, OtherError, PeerIncompatible};

/// The start of the cause when the peer has ended the handshake.
pub(crate) const HUNG_UP: &str = "hung up during authentication";

const MIXED: &str = "one end has a secret and the other certificates; give both the same kind";

/// The verifier's error for an authority's certificate presented as a host's own.
const OF_AUTHORITY: &str = "CaUsedAsEndEntity";

/// Returns the predicate of a sentence whose subject is the peer; `what` is what it should have
/// sent.
pub(crate) fn explain(error: &Error, what: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => not_accepted(error),
        Error::NoCertificatesPresented => "does not authenticate: it has no certificate".into(),
        Error::PeerIncompatible(PeerIncompatible::IncorrectCertificateTypeExtension) => {
            format!("authenticates in another way: {MIXED}")
        }
        Error::AlertReceived(alert) => format!("{HUNG_UP}: {}", refused(*alert)),
        other => format!("sent an invalid {what}: {other}"),
    }
}

/// Explains what is wrong with the peer's certificate or key.
fn not_accepted(error: &CertificateError) -> String {
    match error {
        CertificateError::ApplicationVerificationFailure => {
            "does not have this session's secret".into()
        }
        // An authority of the same name, with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate was issued by no authority that is \
             trusted here; give this host the other's authority, or the other a certificate of \
             this one"
                .into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired; issue a new one for that host".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; are the clocks of both hosts right?".into()
        }
        CertificateError::NotValidForNameContext { expected, .. } => format!(
            "its certificate is not for {}; address the host by a name in its certificate (subjectAltName), or issue one with \
             this name",
            expected.to_str()
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is for another purpose (extended key usage); roots need clientAuth, \
             receivers that listen serverAuth"
                .into()
        }
        CertificateError::Other(OtherError(error)) if error.is::<NotAllowed>() => error.to_string(),
        CertificateError::Other(OtherError(error)) if error.to_string() == OF_AUTHORITY => {
            "its certificate is an authority's; issue one for that host (basicConstraints CA:FALSE)"
                .into()
        }
        other => format!("its certificate cannot be accepted: {other}"),
    }
}

/// Explains the alert by which the peer has refused this end.
fn refused(alert: Alert) -> String {
    let why = match alert {
        Alert::AccessDenied => return "another secret?".into(),
        Alert::HandshakeFailure => return MIXED.into(),
        Alert::CertificateRequired => return "it requires a certificate".into(),
        Alert::UnknownCA | Alert::DecryptError => "it does not trust the authority that issued it",
        Alert::CertificateExpired => "it has expired, or is not valid yet; issue a new one",
        Alert::BadCertificate => "it is not for the name by which that host calls this one",
        Alert::UnsupportedCertificate => "it is for another purpose (extended key usage)",
        Alert::CertificateUnknown => "that host reports why; it may allow only other names",
        other => return format!("{other:?}"),
    };
    format!("it does not accept this host's certificate: {why}")
}
