//! What a build without the feature `switch` says instead.

use crate::failure::{Exit, Failure};

/// Let switches copy for groups, instead of receivers that relay (not in this build)
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Args {
    /// Whether the answer is to be a JSON object.
    pub fn is_json(&self) -> bool {
        self.words.iter().any(|word| word == "--json")
    }
}

/// Errors: always.
pub fn run(_: &Args) -> Result<Exit, Failure> {
    Err(lacks("rdmc switch"))
}

/// This cannot be asked of this build.
pub fn lacks(what: &str) -> Failure {
    Failure::Usage(format!(
        "{what}: this rdmc was built without groups that switches copy; build one that has them by \
         `cargo build --release -p rdmc-cli --features switch`"
    ))
}
