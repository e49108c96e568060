//! Errors of this program.

use std::error::Error;

/// With an error for the user.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
