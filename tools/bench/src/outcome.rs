//! Errors of this program.

use std::{error::Error, fmt};

/// With an error for the user.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The arguments are invalid, and nothing was measured.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}
