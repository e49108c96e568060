//! An option from the configuration, and whether its value is valid.

use clap::{Arg, ArgAction, Command};

use super::keys::COMMANDS;
use crate::failure::Failure;

/// An option from the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configured {
    pub key: &'static str,
    pub value: String,
    /// The variable, or the file and the line.
    pub origin: String,
}

impl Configured {
    /// Checks the value alone.
    ///
    /// Errors: the option does not take this value.
    pub fn check(&self, grammar: &Command) -> Result<(), Failure> {
        let push = grammar.find_subcommand(COMMANDS[0]);
        let Some(known) = push.and_then(|push| option(push, self.key)) else { return Ok(()) };
        // Without the options that it requires or excludes, which other sources may have.
        let mut alone = Arg::new(self.key).long(self.key).action(ArgAction::Set);
        alone = alone.value_parser(known.get_value_parser().clone());
        if let Some(names) = known.get_value_names() {
            alone = alone.value_names(names.to_vec());
        }
        let command = Command::new("rdmc").no_binary_name(true).arg(alone);
        let argument = format!("--{}={}", self.key, self.value);
        let Err(error) = command.try_get_matches_from([argument]) else { return Ok(()) };
        let text = error.render().to_string();
        let what = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        let what: Vec<&str> = what.lines().map(str::trim).collect();
        Err(Failure::Usage(format!("{}: {}", self.origin, what.join(" "))))
    }
}

/// The option of this name.
pub fn option<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(key))
}
