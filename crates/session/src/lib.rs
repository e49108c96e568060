//! How processes find and authenticate each other before any block moves.
//!
//! - [`Channel`]: an encrypted connection between two processes that have the same [`Secret`], or
//!   certificates ([`Credentials`]), for small typed messages with deadlines.
//! - [`certificates`]: certificates and keys in PEM files, and TLS configurations of them.
//! - [`Listener`]: accepts such connections, with limits on unauthenticated connections.
//! - [`rendezvous`]: members connect to one address and receive the list of all addresses.
//!
//! All calls block until a deadline at most. A [`Listener`] has its own threads; everything else runs on
//! the caller's thread. This crate does not depend on groups.

#![forbid(unsafe_code)]

pub mod certificates;
mod channel;
mod credentials;
mod deadline;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handshake_limit;
mod interruption;
mod line;
mod listener;
mod peers;
mod pending;
mod refusal;
pub mod rendezvous;
mod secret;
mod threads;
mod tls;
mod version;

pub use certificates::{CertificateFiles, Certificates, is_certificate_for};
pub use channel::{Channel, MESSAGE_BYTES_MAX, SessionKeys};
pub use credentials::Credentials;
pub use deadline::{Deadline, millis};
pub use error::{Error, PeerErrorKind};
pub use handshake_limit::Handshake;
pub use interruption::Interruption;
pub use listener::Listener;
pub use peers::Peers;
pub use secret::{Secret, random_id};
pub use threads::Threads;
pub use version::PROTOCOL_VERSION;
