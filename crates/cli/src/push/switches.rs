//! The switches that `--switch` asks to copy.

use std::sync::Arc;

use rdmc::{Switches, bootstrap::Certificates};

use crate::failure::Failure;

/// Those that this agent knows of.
#[cfg(feature = "switch")]
pub fn ask(agent: &str, certificates: &Certificates) -> Result<Arc<dyn Switches>, Failure> {
    let switches = control::AgentSwitches::start(agent, certificates);
    switches.map(|switches| Arc::new(switches) as _).map_err(Failure::because)
}

/// Errors: always.
#[cfg(not(feature = "switch"))]
pub fn ask(_agent: &str, _: &Certificates) -> Result<Arc<dyn Switches>, Failure> {
    Err(crate::without_switch::lacks("--switch"))
}
