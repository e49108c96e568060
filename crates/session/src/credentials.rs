//! How a root and a receiver that listens authenticate each other: by a shared secret, or by
//! certificates of an authority that both trust.

use std::net::IpAddr;

use crate::certificates::Certificates;
use rustls::{
    ClientConnection, Connection, Error as TlsError, ServerConnection, pki_types::ServerName,
};

use crate::{secret::Secret, tls};

/// What one end of a [`crate::Channel`] proves, and requires the other to prove.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A secret that both ends have.
    Secret(Secret),
    /// Each end presents a certificate that the other accepts.
    Certificates(Certificates),
}

impl From<Secret> for Credentials {
    fn from(secret: Secret) -> Self {
        Self::Secret(secret)
    }
}

impl Credentials {
    /// Makes this end's TLS connection to `host`, which was resolved to `address`.
    pub(crate) fn connector(&self, host: &str, address: IpAddr) -> Result<Connection, TlsError> {
        match self {
            Self::Secret(secret) => tls::connector(secret, address),
            Self::Certificates(certificates) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| TlsError::General(format!("no certificate can be for {host}")))?;
                ClientConnection::new(certificates.connecting(), name).map(Connection::Client)
            }
        }
    }

    /// Makes this end's TLS connection for an accepted connection.
    pub(crate) fn listener(&self) -> Result<Connection, TlsError> {
        match self {
            Self::Secret(secret) => tls::listener(secret),
            Self::Certificates(certificates) => {
                let config = certificates.listening();
                ServerConnection::new(config).map(Connection::Server)
            }
        }
    }
}
