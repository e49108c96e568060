//! Why something cannot be read.

use std::{error::Error, time::Duration};

/// Why something at a URL cannot be read. URLs are shown without user, query and fragment, which may be secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// A URL that is none, or of a kind that is not known; or the source refuses it. Says what would do.
    #[error("{url}: {what}")]
    Refused {
        /// The URL.
        url: String,
        /// Why, and what to do.
        what: String,
    },
    /// It is no longer what was listed.
    #[error("{url} changed while it was read ({what}): run the push again")]
    Changed {
        /// The URL of what changed.
        url: String,
        /// What changed.
        what: String,
    },
    /// Repeated attempts have got no byte of it for too long.
    #[error(
        "{url}: no byte of it came for {waited_s} s ({what}); check the server and the network, and run the push again"
    )]
    Unreachable {
        /// The URL.
        url: String,
        /// Why the last attempt failed.
        what: String,
        /// How long there was no progress.
        waited_s: u64,
    },
    /// Reading was stopped by [`crate::Remote::stop`].
    #[error("reading from the source was stopped")]
    Stopped,
}

/// Why one attempt failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Another attempt may succeed, but not before `after`.
    Again { why: String, after: Duration },
    /// It is no longer what was listed.
    Changed(String),
    /// No attempt will succeed.
    Refused(String),
}

impl Fault {
    /// Another attempt may succeed at once.
    pub(crate) fn again(why: impl Into<String>) -> Self {
        Self::Again { why: why.into(), after: Duration::ZERO }
    }

    /// The error once there are no further attempts.
    pub(crate) fn of(self, url: &str, waited: Duration) -> RemoteError {
        let url = url.to_owned();
        match self {
            Self::Again { why: what, .. } => {
                RemoteError::Unreachable { url, what, waited_s: waited.as_secs() }
            }
            Self::Changed(what) => RemoteError::Changed { url, what },
            Self::Refused(what) => RemoteError::Refused { url, what },
        }
    }
}

impl From<reqwest::Error> for Fault {
    fn from(error: reqwest::Error) -> Self {
        // Redirects may lead to URLs with signatures.
        let error = error.without_url();
        let is_final = error.is_redirect() || error.is_builder();
        let why = reasons(&error);
        if error.is_connect() && why.contains("invalid peer certificate") {
            return Self::Refused(format!(
                "{why}; SSL_CERT_FILE names further authorities to trust"
            ));
        }
        if is_final { Self::Refused(why) } else { Self::again(why) }
    }
}

/// An error and what has caused it, once each.
pub(crate) fn reasons(error: &dyn Error) -> String {
    let mut reasons = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !reasons.ends_with(&reason) {
            reasons = format!("{reasons}: {reason}");
        }
        cause = error.source();
    }
    reasons
}
