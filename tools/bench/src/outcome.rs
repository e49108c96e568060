//! What fails is told to people.

use std::error::Error;

/// What every part of this program answers; errors are for people to read.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
