//! Errors.

/// An error for the user, with the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid settings or names; nothing was done.
    #[error("{0}")]
    Usage(String),
    /// A signal ended it; what was made is removed.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
    /// The system refused, or the lab is damaged.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// An I/O error with what was being done, as an adapter for `map_err`.
    pub(crate) fn while_doing(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}
