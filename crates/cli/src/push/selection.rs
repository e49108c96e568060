//! `--exclude` and `--include`, whose order decides.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use files::{Rule, Selection};

use crate::{failure::Failure, help::TREES};

/// The patterns in the order in which they were given.
#[derive(Clone, Default, Debug)]
pub struct Patterns(Vec<Rule>);

impl Patterns {
    /// Errors: an invalid pattern.
    pub fn selection(&self) -> Result<Selection, Failure> {
        Selection::new(&self.0).map_err(|error| Failure::Usage(error.to_string()))
    }
}

impl FromArgMatches for Patterns {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let of = |id: &str, rule: fn(String) -> Rule| {
            let places = matches.indices_of(id).into_iter().flatten();
            let values = matches.get_many::<String>(id).into_iter().flatten();
            places.zip(values.cloned().map(rule)).collect::<Vec<_>>()
        };
        let mut rules = [of("exclude", Rule::Exclude), of("include", Rule::Include)].concat();
        rules.sort_by_key(|(place, _)| *place);
        Ok(Self(rules.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Patterns {
    fn augment_args(command: Command) -> Command {
        let arg = |id: &'static str, help: &'static str| {
            Arg::new(id)
                .long(id)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .help(help)
                .help_heading(TREES)
        };
        command
            .arg(arg("exclude", "Leave out what matches: *.tmp, /top, dir/, a/**/b").long_help(
                "Leave out what matches: *.tmp, /top, dir/, a/**/b\n\nAs with rsync: the first pattern of --exclude and \
                 --include that matches decides. / at the start is the top of each source, / at the end means directories \
                 only, a pattern with no other / is compared with the last name. What is below a directory that is left \
                 out is not looked at.",
            ))
            .arg(arg("include", "Do not leave out what matches, although a later --exclude does"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
