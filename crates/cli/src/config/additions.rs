//! Options that the configuration adds to a command line.

use std::ffi::OsString;

use clap::{Arg, Command, parser::ValueSource};

use super::{
    configured::{Configured, option},
    keys::COMMANDS,
    sources::{from_file, from_variables, variable},
};
use crate::failure::{Failure, print_message};

/// The options that the configuration adds to a command line.
#[derive(Default, Debug)]
pub struct Additions(Vec<Configured>);

impl Additions {
    /// The options for these arguments, from this process's variables and the configuration file. None if help is requested.
    ///
    /// Errors: the file cannot be read or parsed; an unknown key; an invalid value. Names the file and the line.
    pub fn find(grammar: &Command, arguments: &[OsString]) -> Result<Self, Failure> {
        let name = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
        let mut options = arguments.iter().take_while(|word| *word != "--");
        if !COMMANDS.contains(&name) || options.any(|word| word == "-h" || word == "--help") {
            return Ok(Self::default());
        }
        let levels = [from_variables(&variable)?, from_file(&variable)?];
        for configured in levels.iter().flatten() {
            configured.check(grammar)?;
        }
        Self::choose(grammar, name, arguments, levels)
    }

    /// The options of each level that neither the arguments nor an earlier level exclude.
    fn choose(
        grammar: &Command,
        name: &str,
        arguments: &[OsString],
        levels: [Vec<Configured>; 2],
    ) -> Result<Self, Failure> {
        let Some(command) = grammar.find_subcommand(name) else { return Ok(Self::default()) };
        // Errors in the arguments are reported when they are parsed with the additions.
        let parsed = grammar.clone().ignore_errors(true).try_get_matches_from(arguments);
        let Ok(parsed) = parsed else { return Ok(Self::default()) };
        let Some((_, given)) = parsed.subcommand() else { return Ok(Self::default()) };
        let is_given = |arg: &&Arg| {
            given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        };
        let mut taken: Vec<&Arg> = command.get_arguments().filter(is_given).collect();
        let mut added = Vec::new();
        for level in levels {
            let mut chosen: Vec<(&Arg, Configured)> = Vec::new();
            for configured in level {
                // Another command may have this option.
                let Some(arg) = option(command, configured.key) else { continue };
                let is_free =
                    |other: &&Arg| other.get_id() != arg.get_id() && !exclude(command, other, arg);
                if !taken.iter().all(is_free) {
                    continue;
                }
                if let Some((_, other)) =
                    chosen.iter().find(|(other, _)| exclude(command, other, arg))
                {
                    return Err(Failure::Usage(format!(
                        "{}: {} cannot be used with {} ({}); remove one of them",
                        configured.origin, configured.key, other.key, other.origin
                    )));
                }
                chosen.push((arg, configured));
            }
            for (arg, configured) in chosen {
                taken.push(arg);
                added.push(configured);
            }
        }
        Ok(Self(added))
    }

    /// The arguments with these options after the name of the command.
    pub fn put_into(&self, arguments: &[OsString]) -> Vec<OsString> {
        let (names, rest) = arguments.split_at(arguments.len().min(2));
        let added =
            self.0.iter().map(|Configured { key, value, .. }| format!("--{key}={value}").into());
        names.iter().cloned().chain(added).chain(rest.iter().cloned()).collect()
    }

    /// Prints the origin of configured options that an error mentions.
    pub fn explain(&self, error: &str) {
        for Configured { key, value, origin } in &self.0 {
            if error.contains(&format!("--{key}")) {
                print_message(format_args!("{origin}: --{key}={value}"));
            }
        }
    }
}

/// Whether two options of a command exclude each other.
fn exclude(command: &Command, one: &Arg, other: &Arg) -> bool {
    let names = |from: &Arg, to: &Arg| {
        command.get_arg_conflicts_with(from).iter().any(|arg| arg.get_id() == to.get_id())
    };
    names(one, other) || names(other, one)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn configured(key: &'static str, value: &str) -> Configured {
        Configured { key, value: value.into(), origin: format!("the {key} of a test") }
    }

    /// The command line with these variables and this file.
    fn completed(
        words: &str,
        variables: &[(&'static str, &str)],
        file: &[(&'static str, &str)],
    ) -> Result<String, Failure> {
        let level = |level: &[(&'static str, &str)]| {
            level.iter().map(|(key, value)| configured(key, value)).collect()
        };
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let name = words[1].to_str().unwrap();
        let levels = [level(variables), level(file)];
        let added = Additions::choose(&Cli::command(), name, &words, levels)?;
        let all: Vec<String> =
            added.put_into(&words).into_iter().map(|word| word.into_string().unwrap()).collect();
        Ok(all.join(" "))
    }

    #[test]
    fn arguments_replace_variables_and_these_the_file() {
        let completed = |words, variables, file| completed(words, variables, file).unwrap();
        assert_eq!(
            completed(
                "rdmc push f --to a",
                &[("rate", "1gbit")],
                &[("rate", "2gbit"), ("fabric", "tcp")]
            ),
            "rdmc push --rate=1gbit --fabric=tcp f --to a"
        );
        assert_eq!(
            completed(
                "rdmc push f --rate 3gbit --to a",
                &[("rate", "1gbit")],
                &[("rate", "2gbit")]
            ),
            "rdmc push f --rate 3gbit --to a"
        );
        // Options that bench lacks are for push only.
        assert_eq!(
            completed("rdmc bench --to a", &[], &[("min-rate", "1gbit"), ("rate", "2gbit")]),
            "rdmc bench --rate=2gbit --to a"
        );
    }

    #[test]
    fn what_is_excluded_is_left_out() {
        let launcher = [("launcher", "srun {host}"), ("remote-rdmc", "/opt/rdmc")];
        assert_eq!(
            completed("rdmc push f --local 2", &launcher, &[]).unwrap(),
            "rdmc push f --local 2"
        );
        let certificates = [("cert", "c"), ("key", "k"), ("ca", "a")];
        let with_secret = "rdmc push f --to a --secret-file s";
        assert_eq!(completed(with_secret, &[], &certificates).unwrap(), with_secret);
        assert_eq!(
            completed("rdmc push f --to a", &[("secret-file", "s")], &certificates).unwrap(),
            "rdmc push --secret-file=s f --to a"
        );
        let both = [("cert", "c"), ("secret-file", "s")];
        let error = completed("rdmc push f --to a", &[], &both).unwrap_err().to_string();
        assert!(error.contains("secret-file cannot be used with cert"), "{error}");
    }

    #[test]
    fn configured_options_count_where_others_require_them() {
        let grammar = Cli::command();
        let words = "rdmc push f --to a --admit 127.0.0.1:0";
        let words = completed(words, &[], &[("secret-file", "s")]).unwrap();
        assert!(grammar.try_get_matches_from(words.split(' ')).is_ok(), "{words}");
    }
}
