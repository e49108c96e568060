//! Settings of roots and receivers for switches that copy (`push --switch`).

use files::SwitchControl;
use session::{Certificates, Credentials};

use crate::failure::Failure;

/// For a root: connects to this agent.
#[cfg(feature = "switch")]
pub fn ask(agent: &str, certificates: &Certificates) -> Result<SwitchControl, Failure> {
    let switches = control::AgentSwitches::start(agent, certificates);
    switches
        .map(|switches| SwitchControl::new(std::sync::Arc::new(switches)))
        .map_err(Failure::because)
}

/// Errors: always.
#[cfg(not(feature = "switch"))]
pub fn ask(_agent: &str, _: &Certificates) -> Result<SwitchControl, Failure> {
    Err(crate::without_switch::lacks("--switch"))
}

/// For a receiver: with certificates it permits switches to copy to it.
#[cfg(feature = "switch")]
pub fn agreement(credentials: &Credentials) -> SwitchControl {
    let Credentials::Certificates(own) = credentials else { return SwitchControl::default() };
    SwitchControl::delegating(std::sync::Arc::new(control::Delegating(own.clone())))
}

/// None, in a build without the feature `switch`.
#[cfg(not(feature = "switch"))]
pub fn agreement(_: &Credentials) -> SwitchControl {
    SwitchControl::default()
}
