//! Options that never change at a site: from variables `RDMC_*` and a file, for `rdmc push` and `rdmc bench`.
//!
//! They are put before the other options as if they stood on the command line, unless that has them, or an option that
//! excludes them. Variables go before the file in the same way. Receivers read neither: the command line of a listening
//! one, and the root's invitation of a launched one, say what they do.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command, parser::ValueSource};
use toml::{Spanned, Value};

use crate::{
    failure::{Failure, print_message},
    input,
};

/// The commands with configured options.
const COMMANDS: [&str; 2] = ["push", "bench"];

/// Options that may be configured, by their long names; each is one of `rdmc push`.
const KEYS: [&str; 20] = [
    "advertise",
    "ca",
    "cert",
    "completion",
    "fabric",
    "failure-deadline",
    "fanout",
    "key",
    "launcher",
    "min-rate",
    "progress",
    "protect",
    "rate",
    "remote-rdmc",
    "retry",
    "secret-file",
    "streams",
    "switch",
    "timeout",
    "window",
];

/// Those that are paths on this machine.
const PATHS: [&str; 4] = ["ca", "cert", "key", "secret-file"];

/// Longer files are none of this program.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An option from the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Configured {
    key: &'static str,
    value: String,
    /// The variable, or the file and the line.
    origin: String,
}

/// The options that the configuration adds to a command line.
#[derive(Default, Debug)]
pub struct Additions(Vec<Configured>);

/// The end of the long help of commands with configured options.
pub fn help(examples: &str) -> String {
    format!(
        "{examples}\n\n\
         Configuration:\n  \
         The file ~/.config/rdmc/config.toml may have these options, by their names without dashes, and so may\n  \
         variables such as RDMC_REMOTE_RDMC for remote-rdmc: {}.\n  \
         Arguments replace variables, and these the file (docs/configuration.md).",
        KEYS.join(", ")
    )
}

/// The file that is read, if there is one.
pub fn path() -> Option<PathBuf> {
    path_in(&|name| env::var_os(name)).map(|(path, _)| path)
}

impl Additions {
    /// Those for these arguments, by this process's variables and the file that they name. None for requests for help.
    ///
    /// Errors: the file cannot be read or parsed; an unknown key; an invalid value. Names the file and the line.
    pub fn find(grammar: &Command, arguments: &[OsString]) -> Result<Self, Failure> {
        let name = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
        let mut options = arguments.iter().take_while(|word| *word != "--");
        if !COMMANDS.contains(&name) || options.any(|word| word == "-h" || word == "--help") {
            return Ok(Self::default());
        }
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
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
                // The other command may have it.
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

    /// Prints where the options of an error come from.
    pub fn explain(&self, error: &str) {
        for Configured { key, value, origin } in &self.0 {
            if error.contains(&format!("--{key}")) {
                print_message(format_args!("{origin}: --{key}={value}"));
            }
        }
    }
}

impl Configured {
    /// Errors: the option does not take this value.
    fn check(&self, grammar: &Command) -> Result<(), Failure> {
        let push = grammar.find_subcommand(COMMANDS[0]);
        let Some(known) = push.and_then(|push| option(push, self.key)) else { return Ok(()) };
        // Without what it requires or excludes, which other levels may have.
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

fn option<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(key))
}

/// Whether two options of a command exclude each other.
fn exclude(command: &Command, one: &Arg, other: &Arg) -> bool {
    let names = |from: &Arg, to: &Arg| {
        command.get_arg_conflicts_with(from).iter().any(|arg| arg.get_id() == to.get_id())
    };
    names(one, other) || names(other, one)
}

/// Looks up a variable.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn from_variables(variable: Variables<'_>) -> Result<Vec<Configured>, Failure> {
    let mut all = Vec::new();
    for key in KEYS {
        let name = format!("RDMC_{}", key.to_ascii_uppercase().replace('-', "_"));
        let Some(value) = variable(&name) else { continue };
        let origin = format!("variable {name}");
        let value = value
            .into_string()
            .map_err(|_| Failure::Usage(format!("{origin}: it is not text in UTF-8")))?;
        all.push(Configured { key, value, origin });
    }
    Ok(all)
}

/// The file, and whether it must exist.
fn path_in(variable: Variables<'_>) -> Option<(PathBuf, bool)> {
    if let Some(path) = variable("RDMC_CONFIG") {
        return Some((path.into(), true));
    }
    // Relative ones are to be ignored, by the XDG Base Directory Specification.
    let xdg = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let directory =
        xdg.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some((directory.join("rdmc/config.toml"), false))
}

fn from_file(variable: Variables<'_>) -> Result<Vec<Configured>, Failure> {
    let Some((path, must_exist)) = path_in(variable) else { return Ok(Vec::new()) };
    let text = match input::read(&path, FILE_BYTES_MAX) {
        Err(Failure::Io(_, error)) if error.kind() == ErrorKind::NotFound && !must_exist => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    parse(&path, &text, variable("HOME").map(PathBuf::from).as_deref())
}

/// The options of a file with this text.
fn parse(path: &Path, text: &str, home: Option<&Path>) -> Result<Vec<Configured>, Failure> {
    let at = |offset: usize| {
        let lines = text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n');
        format!("{}, line {}", path.display(), lines.count() + 1)
    };
    let entries: BTreeMap<String, Spanned<Value>> = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Failure::Usage(format!("{}: {}", at(offset), error.message()))
    })?;
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by_key(|(_, value)| value.span().start);
    let mut all = Vec::new();
    for (name, value) in entries {
        let origin = at(value.span().start);
        let wrong = |what: String| Failure::Usage(format!("{origin}: {what}"));
        let Some(key) = KEYS.into_iter().find(|key| *key == name) else {
            let keys = KEYS.join(", ");
            return Err(wrong(format!("there is no key \"{name}\"; the keys are {keys}")));
        };
        let value = match value.into_inner() {
            Value::String(text) if PATHS.contains(&key) => local_path(path, &text, home),
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => return Err(wrong(format!("{key} must be text in quotes, or a number"))),
        };
        all.push(Configured { key, value, origin });
    }
    Ok(all)
}

/// A path of this file: `~/` is the home directory, relative ones are to the file's directory.
fn local_path(file: &Path, text: &str, home: Option<&Path>) -> String {
    let path = match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => file.parent().unwrap_or(Path::new("")).join(text),
    };
    path.to_string_lossy().into_owned()
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
    fn every_key_is_an_option_that_takes_a_value() {
        let grammar = Cli::command();
        let push = grammar.find_subcommand("push").unwrap();
        for key in KEYS {
            let option = option(push, key).unwrap_or_else(|| panic!("push has no --{key}"));
            assert!(option.get_action().takes_values(), "{key}");
        }
        assert!(KEYS.is_sorted() && PATHS.iter().all(|path| KEYS.contains(path)));
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
        // What bench lacks is for push only.
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

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        let error = |text: &str| {
            let parsed = parse(Path::new("/etc/c.toml"), text, None);
            let checked = parsed.and_then(|all| {
                all.iter().try_for_each(|configured| configured.check(&Cli::command()))
            });
            checked.unwrap_err().to_string()
        };
        for (text, line, remedy) in [
            ("retry = 1\n\ncolour = \"red\"", 3, "the keys are advertise, ca, "),
            ("\nremote_rdmc = \"x\"", 2, "remote-rdmc"),
            (
                "rate = \"1gbit\"\nprogress = \"often\"",
                2,
                "possible values: auto, plain, json, none",
            ),
            ("rate = 10", 1, "use for example 250mbit"),
            ("# rates\nmin-rate = [1]", 2, "must be text in quotes, or a number"),
            ("retry = true", 1, "must be text in quotes, or a number"),
            ("[push]\nretry = 1", 1, "there is no key \"push\""),
            ("retry = 1\nretry = 2", 2, "duplicate key"),
            ("retry 1", 1, ""),
        ] {
            let error = error(text);
            assert!(error.starts_with(&format!("/etc/c.toml, line {line}: ")), "{text:?}: {error}");
            assert!(error.contains(remedy), "{text:?}: {error}");
        }
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let text = "ca = \"~/ca.pem\"\ncert = \"/c.pem\"\nkey = \"k.pem\"\nremote-rdmc = \"~/rdmc\"\n\
                    failure-deadline = 2.5\nretry = 3";
        let all = parse(Path::new("/etc/c.toml"), text, Some(Path::new("/home/me"))).unwrap();
        let pairs: Vec<_> = all.iter().map(|found| (found.key, found.value.as_str())).collect();
        let expected = [
            ("ca", "/home/me/ca.pem"),
            ("cert", "/c.pem"),
            ("key", "/etc/k.pem"),
            ("remote-rdmc", "~/rdmc"),
            ("failure-deadline", "2.5"),
            ("retry", "3"),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn the_file_is_found_by_variables() {
        let path = |variables: &[(&str, &str)]| {
            path_in(&|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let home = ("HOME", "/home/me");
        assert_eq!(path(&[home]), Some(("/home/me/.config/rdmc/config.toml".into(), false)));
        let xdg = ("XDG_CONFIG_HOME", "/xdg");
        assert_eq!(path(&[home, xdg]), Some(("/xdg/rdmc/config.toml".into(), false)));
        assert_eq!(path(&[home, xdg, ("RDMC_CONFIG", "mine")]), Some(("mine".into(), true)));
        assert_eq!(path(&[("XDG_CONFIG_HOME", "relative")]), None);
    }
}
