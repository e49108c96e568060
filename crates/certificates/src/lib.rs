//! Certificates and keys in PEM files, and TLS 1.3 configurations made of them.
//!
//! [`Certificates::read`] reads the files and checks them; [`Certificates::connecting`] and
//! [`Certificates::listening`] are what a TLS connection needs at each end. The library and the agents
//! beside switches use the same code, and neither owns it.
//!
//! Blocks only while files are read. Starts nothing.

#![forbid(unsafe_code)]

mod certificates;
mod error;
mod names;
mod pem;
mod verifier;

pub use certificates::{CertificateFiles, Certificates};
pub use error::Error;
pub use names::{host_name, is_certificate_for};
pub use verifier::NotAllowed;
