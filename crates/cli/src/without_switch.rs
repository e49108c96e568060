//! `rdmc switch` in a build without the feature `switch`.

use crate::failure::{Exit, Failure};

/// Let switches copy messages for groups, instead of receivers relaying them (not in this build)
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Args {
    /// Whether the result is printed as one JSON object.
    pub fn is_json(&self) -> bool {
        self.words.iter().any(|word| word == "--json")
    }
}

/// Errors: always.
pub fn run(_: &Args) -> Result<Exit, Failure> {
    Err(lacks("rdmc switch"))
}

/// The error for an option or command that this build lacks.
pub fn lacks(what: &str) -> Failure {
    Failure::Usage(format!(
        "{what}: this rdmc was built without the feature switch; build it with \
         `cargo build --release -p rdmc-cli --features switch`"
    ))
}
