//! Access to switches that copy; without effect unless built with the feature `switch`.

#[cfg(feature = "switch")]
use std::sync::Arc;

use rdmc::ContextSettings;
#[cfg(feature = "switch")]
use rdmc::{Delegates, Switches};

/// What a member does with switches in groups of [`rdmc::Algorithm::InSwitch`]: a root has access to them, and a
/// receiver lets them copy to it. The default does neither.
#[derive(Clone, Debug, Default)]
pub struct SwitchControl {
    #[cfg(feature = "switch")]
    switches: Option<Arc<dyn Switches>>,
    #[cfg(feature = "switch")]
    delegates: Option<Arc<dyn Delegates>>,
}

impl SwitchControl {
    /// Access to these switches, for a root.
    #[cfg(feature = "switch")]
    pub fn new(switches: Arc<dyn Switches>) -> Self {
        Self { switches: Some(switches), delegates: None }
    }

    /// For a receiver, which so agrees that switches copy to it.
    #[cfg(feature = "switch")]
    pub fn delegating(delegates: Arc<dyn Delegates>) -> Self {
        Self { switches: None, delegates: Some(delegates) }
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

    /// Puts them into a context's settings.
    #[cfg(feature = "switch")]
    pub(crate) fn apply(&self, settings: &mut ContextSettings) {
        settings.switches = self.switches.clone();
        settings.delegates = self.delegates.clone();
    }

    #[cfg(not(feature = "switch"))]
    pub(crate) fn apply(&self, _: &mut ContextSettings) {}
}
