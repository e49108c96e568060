//! `--switch`: access to switches that copy.

use files::SwitchControl;
use session::Certificates;

use crate::failure::Failure;

/// Connects to this agent.
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
