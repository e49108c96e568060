//! The options that may be configured.

/// The commands with configured options.
pub const COMMANDS: [&str; 3] = ["push", "bench", "doctor"];

/// Options that may be configured, by their long names; each is one of `rdmc push`.
pub const KEYS: [&str; 25] = [
    "advertise",
    "bwlimit",
    "ca",
    "cert",
    "completion",
    "fabric",
    "failure-deadline",
    "fanout",
    "interface",
    "key",
    "launch-depth",
    "launcher",
    "min-rate",
    "network",
    "ports",
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

/// Configured options whose values are paths on this machine.
pub const PATHS: [&str; 4] = ["ca", "cert", "key", "secret-file"];

/// The end of the long help of commands with configured options.
pub fn help(examples: &str) -> String {
    let keys: Vec<String> = KEYS.chunks(8).map(|keys| keys.join(", ")).collect();
    format!(
        "{examples}\n\n\
         Configuration:\n  \
         Defaults for these options may be in ~/.config/rdmc/config.toml, by option name, or in\n  \
         environment variables, such as RDMC_REMOTE_RDMC for remote-rdmc. Arguments override variables,\n  \
         and variables override the file (docs/reference/configuration.md):\n    \
         {}",
        keys.join(",\n    ")
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn every_key_is_an_option_that_takes_a_value() {
        let grammar = Cli::command();
        let push = grammar.find_subcommand("push").unwrap();
        for key in KEYS {
            let option = push.get_arguments().find(|arg| arg.get_long() == Some(key));
            let option = option.unwrap_or_else(|| panic!("push has no --{key}"));
            assert!(option.get_action().takes_values(), "{key}");
        }
        assert!(KEYS.is_sorted() && PATHS.iter().all(|path| KEYS.contains(path)));
    }
}
