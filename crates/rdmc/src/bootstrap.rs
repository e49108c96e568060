//! How members find and authenticate each other before any block moves: listeners, channels, rendezvous.
//!
//! All calls block until a deadline at most, and run on the caller's thread.

pub use session::certificates::Error as CertificatesError;
pub use session::{
    CertificateFiles, Certificates, Channel, Credentials, Deadline, Error as SessionError,
    Interruption, Listener, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, is_certificate_for, rendezvous,
};
