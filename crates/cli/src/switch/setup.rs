//! Shared parts of the commands of `rdmc switch`.

use std::time::Duration;

use session::{Certificates, Credentials};

use crate::{credentials::CredentialFiles, failure::Failure};

/// The default socket of the host daemon.
pub const SOCKET: &str = "/run/rdmc/switch.sock";
/// Polling interval of [`until`].
const TICK: Duration = Duration::from_millis(50);

/// Reads the certificates; agents do not accept secrets, as with those any host could act for all others.
pub fn certificates(files: &CredentialFiles) -> Result<Certificates, Failure> {
    match files.read(&[])? {
        Some(Credentials::Certificates(certificates)) => Ok(certificates),
        _ => Err(Failure::Usage(
            "switches need certificates: --cert, --key and --ca (docs/guide/security.md describes how to make them)".into(),
        )),
    }
}

/// A runtime with one thread, which stays in its network namespace.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::while_doing("starting"))
}

/// Waits until this is true.
pub async fn until(is_over: impl Fn() -> bool) {
    while !is_over() {
        tokio::time::sleep(TICK).await;
    }
}
