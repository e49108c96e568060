//! Names of hosts in certificates.

use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};

use super::error::Error;

/// Parses a DNS name or an IP address that a certificate may be for. Errors: it is neither.
pub fn host_name(name: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name.to_owned()).map_err(|_| Error::NotAHost(name.to_owned()))
}

/// Returns whether a certificate is for a host of this name (a DNS name or an IP address). The
/// issuer has been checked when the connection was made.
#[must_use]
pub fn is_certificate_for(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let certificate = ParsedCertificate::try_from(certificate);
    certificate.is_ok_and(|certificate| verify_server_name(&certificate, name).is_ok())
}
