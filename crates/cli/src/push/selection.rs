//! `--exclude` and `--include`; their order matters.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use files::{Rule, Selection};

use crate::{
    failure::{Failure, print_message},
    help::TREES,
};

/// The patterns in the order in which they were given.
#[derive(Clone, Default, Debug)]
pub struct Patterns(Vec<Rule>);

impl Patterns {
    /// The option of the first pattern, if there is one.
    pub fn option(&self) -> Option<&'static str> {
        self.0.first().map(option_of)
    }

    /// Errors: an invalid pattern.
    pub fn selection(&self) -> Result<Selection, Failure> {
        Selection::new(&self.0).map_err(|error| Failure::Usage(error.to_string()))
    }
}

/// The option that a rule was given by.
fn option_of(rule: &Rule) -> &'static str {
    match rule {
        Rule::Include(_) => "--include",
        Rule::Exclude(_) => "--exclude",
    }
}

/// Reports a pattern that has matched nothing: it may be intended, or may send what should be left out.
pub fn warn_of(rule: &Rule) {
    print_message(format_args!(
        "{} {} matches no entry that was read; a path begins with the name of its source, or with its contents if the source \
         ends with /",
        option_of(rule),
        rule.pattern()
    ));
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
            .arg(arg("exclude", "Leave out what matches: *.tmp, /run/top, dir/, a/**/b").long_help(
                "Leave out what matches: *.tmp, /run/top, dir/, a/**/b\n\nAs in rsync, the first pattern of --exclude and \
                 --include that matches decides. A path begins with the name of the source (run/top of the source \
                 /data/run), or with its contents if the source ends with / (top of /data/run/). In a pattern, a leading \
                 / is the start of the path, and a trailing / matches directories only. A pattern with no other / is \
                 compared with the last component of the path; dir/*** matches dir and everything in it. Excluded directories are not \
                 read. A pattern that matches nothing is reported.",
            ))
            .arg(arg("include", "Include what matches, even if a later --exclude matches it"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
