//! Access to switches that copy; without effect unless built with the feature `switch`.

#[cfg(feature = "switch")]
use std::sync::Arc;

use rdmc::ContextSettings;
#[cfg(feature = "switch")]
use rdmc::Switches;

/// Access to switches for groups of [`rdmc::Algorithm::InSwitch`]; the default has none.
#[derive(Clone, Debug, Default)]
pub struct SwitchControl {
    #[cfg(feature = "switch")]
    switches: Option<Arc<dyn Switches>>,
}

impl SwitchControl {
    /// Access to these switches.
    #[cfg(feature = "switch")]
    pub fn new(switches: Arc<dyn Switches>) -> Self {
        Self { switches: Some(switches) }
    }

    /// Whether groups can be put into switches.
    #[cfg(feature = "switch")]
    pub fn is_some(&self) -> bool {
        self.switches.is_some()
    }

    /// Never, in a build without the feature `switch`.
    #[cfg(not(feature = "switch"))]
    pub fn is_some(&self) -> bool {
        false
    }

    /// Puts the switches into a context's settings.
    #[cfg(feature = "switch")]
    pub(super) fn apply(&self, settings: &mut ContextSettings) {
        settings.switches = self.switches.clone();
    }

    #[cfg(not(feature = "switch"))]
    pub(super) fn apply(&self, _: &mut ContextSettings) {}
}
