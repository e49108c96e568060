//! What can go wrong.

/// Why something did not work. The words are for people, and name the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings or names that make no sense; nothing was done.
    #[error("{0}")]
    Usage(String),
    /// Somebody wanted it to end; what was made is gone again.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
    /// The system refused, or the lab is not what it should be.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// An I/O error with what was being done, as an adapter for `map_err`.
    pub(crate) fn while_doing(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}
