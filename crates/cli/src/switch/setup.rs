//! What the commands of `rdmc switch` have in common.

use std::time::Duration;

use session::{Certificates, Credentials};

use crate::{credentials::CredentialFiles, failure::Failure};

/// Where applications of a host reach its daemon.
pub const SOCKET: &str = "/run/rdmc/switch.sock";
/// What commands wait for is noticed within this time.
const TICK: Duration = Duration::from_millis(50);

/// Agents and who asks them show certificates; a secret would let every host do what one may.
pub fn certificates(files: &CredentialFiles) -> Result<Certificates, Failure> {
    match files.read(&[])? {
        Some(Credentials::Certificates(certificates)) => Ok(certificates),
        _ => Err(Failure::Usage(
            "switches take certificates: give --cert, --key and --ca (docs/security.md says how to make them)".into(),
        )),
    }
}

/// What the commands wait in: one thread, in the network namespace that they were started in.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::while_doing("starting"))
}

/// Waits until this is so: a signal has come (`interrupt::flag`), or what was to go on has ended.
pub async fn until(is_over: impl Fn() -> bool) {
    while !is_over() {
        tokio::time::sleep(TICK).await;
    }
}
