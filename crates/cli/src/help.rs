//! The help of commands with many options: the usual options first; `-h` shows no others.

use clap::{Arg, ArgAction, Command};

/// Options that most users need; at most ten.
pub const USUAL: &str = "Usual options";
/// What is sent and replaced of directories, and growing files.
pub const TREES: &str = "Directories and streams";
/// How receivers are started on hosts.
pub const STARTING: &str = "Starting receivers";
/// Receivers that are not started by the command: authentication and limits.
pub const LISTENING: &str = "Receivers that listen or join";
/// What a bench measures.
pub const MEASURING: &str = "Measurements";
/// What is printed and written in addition to the result.
pub const REPORTS: &str = "Reports";
/// Options with good defaults.
pub const EXPERTS: &str = "For experts";

/// Limits `-h` to [`USUAL`] options in this command and its subcommands, if a command has such options.
pub fn arranged(command: Command) -> Command {
    let command = command.mut_subcommands(arranged);
    if !command.get_arguments().any(is_usual) {
        return command;
    }
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .help("Print help; --help prints all options, and examples")
        .help_heading(USUAL);
    let short = |arg: Arg| {
        let is_shown = arg.is_positional() || is_usual(&arg);
        arg.hide_short_help(!is_shown)
    };
    command.mut_args(short).disable_help_flag(true).arg(help)
}

fn is_usual(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(USUAL)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Lines of a terminal; the last one is for the next prompt.
    const SCREEN_LINES: usize = 40;
    /// The maximum number of options of a command without headings.
    const WITHOUT_HEADINGS_MAX: usize = 12;

    fn commands() -> Vec<Command> {
        fn add(command: &Command, all: &mut Vec<Command>) {
            all.push(command.clone().term_width(100));
            command.get_subcommands().for_each(|command| add(command, all));
        }
        let mut root = arranged(Cli::command());
        root.build();
        let mut all = Vec::new();
        add(&root, &mut all);
        all
    }

    fn options(command: &Command) -> Vec<&Arg> {
        let is_option = |arg: &&Arg| !arg.is_positional() && !arg.is_hide_set();
        command.get_arguments().filter(is_option).collect()
    }

    #[test]
    fn short_help_fits_on_a_screen() {
        for mut command in commands() {
            let help = command.render_help().to_string();
            let lines = help.lines().count();
            assert!(lines < SCREEN_LINES, "{} has {lines} lines:\n{help}", command.get_name());
        }
    }

    #[test]
    fn every_option_of_a_large_command_is_in_a_group() {
        let mut large = Vec::new();
        for mut command in commands() {
            let name = command.get_name().to_owned();
            let long = command.render_long_help().to_string();
            for option in options(&command) {
                let word = format!("--{}", option.get_long().expect("options have long names"));
                assert!(long.contains(&word), "{name} {word} is not in its help");
            }
            if options(&command).len() <= WITHOUT_HEADINGS_MAX {
                continue;
            }
            for option in options(&command) {
                assert!(option.get_help_heading().is_some(), "{name} {option} has no heading");
            }
            let usual = options(&command).into_iter().filter(|option| is_usual(option)).count();
            assert!((1..=11).contains(&usual), "{name}: ten and --help, not {usual}");
            large.push(name);
        }
        for name in ["push", "bench", "receive", "plan"] {
            assert!(large.iter().any(|large| large == name), "{name}: {large:?}");
        }
    }
}
