//! The options of a run.

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options<C> {
    /// A bug to plant.
    pub canary: Option<C>,
    /// How many lines of trace are kept.
    pub trace_events: usize,
    /// Whether the bytes of messages are counted, which takes time.
    pub counts_bytes: bool,
}

impl<C> Default for Options<C> {
    fn default() -> Self {
        Self { canary: None, trace_events: 0, counts_bytes: false }
    }
}
