//! Certificates and keys in PEM files, and TLS 1.3 configurations made of them.
//!
//! [`Certificates::read`] reads the files and checks them; [`Certificates::connecting`] and
//! [`Certificates::listening`] return the configurations of the two ends of a TLS connection. Both
//! the library and the agents beside switches use this module.
//!
//! Blocks only while files are read. Starts no threads.

mod alternative_names;
mod error;
mod files;
mod names;
mod pem;
mod verifier;

pub use alternative_names::alternative_names;
pub use error::Error;
pub use files::{CertificateFiles, Certificates};
pub use names::{host_name, is_certificate_for};
pub use verifier::NotAllowed;
