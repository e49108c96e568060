//! How members find each other and connect, before any block moves: listeners, authenticated channels, rendezvous.
//!
//! Everything here blocks, always with a deadline, and runs on the caller's threads.

pub use certificates::Error as CertificatesError;
pub use session::{
    CertificateFiles, Certificates, Channel, Credentials, Deadline, Error as SessionError,
    Listener, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, is_certificate_for, rendezvous,
};
