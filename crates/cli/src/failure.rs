//! Exit codes and errors of commands.
//!
//! Exit codes depend on hosts and files, never on whether a report could be printed. docs/reference/exit-codes.md has this
//! table for users.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use serde::Serialize;

use crate::{json, standard_output};

/// The exit code of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Success: every host has its copy.
    Done = 0,
    /// Failure: no host has a copy.
    Failed = 1,
    /// Invalid arguments; nothing was started.
    Usage = 2,
    /// Some hosts have a copy, others do not.
    Partly = 3,
    /// Success, but a requested output could not be written.
    Output = 4,
    /// Interrupted before success; the shells' code for SIGINT.
    Interrupted = 130,
}

impl Exit {
    /// The code for the system and for JSON.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Combines this code with that of an output: failures of hosts take precedence.
    pub fn and(self, output: Self) -> Self {
        if self == Self::Done { output } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

impl Serialize for Exit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.code())
    }
}

/// The JSON object of a command that fails before it has a result.
#[derive(Serialize)]
struct Refusal<'a> {
    error: &'a str,
    exit_code: Exit,
}

/// Prints a line to standard error. Unlike `eprintln!` it does not panic if that is closed: the push continues.
pub fn print_message(words: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "rdmc: {}", plain(&words.to_string()));
}

/// Escapes a text for a terminal. Text from other hosts must not contain control sequences or invisible characters, change the
/// writing direction, or imitate a line of this program.
pub fn plain(text: &str) -> String {
    let (mut plain, mut before) = (String::with_capacity(text.len()), None);
    for character in text.chars() {
        match character {
            '\n' => plain.push_str("\n  "),
            character if files::shows_nothing(before, character) => {
                plain.extend(character.escape_default())
            }
            character => plain.push(character),
        }
        before = Some(character);
    }
    plain
}

/// Like [`plain`], on one line, for names.
pub fn plain_name(name: &str) -> String {
    plain(&name.replace('\n', "\\n"))
}

/// Why a command fails; determines its exit code. Nothing has been printed to standard output.
#[derive(Debug)]
pub enum Failure {
    /// Arguments that are invalid together.
    Usage(String),
    /// Like [`Failure::Usage`], if standard output must not be written to.
    Misdirected(String),
    /// An I/O error, with the operation.
    Io(String, io::Error),
    /// Any other failure.
    Failed(String),
    /// Success, but this output could not be written.
    Output(String, io::Error),
    /// Interrupted by a signal.
    Interrupted,
}

impl Failure {
    /// Adds the operation to an I/O error; for `map_err`.
    pub fn while_doing(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io(what.to_string(), error)
    }

    /// [`Failure::Failed`] with this reason; for `map_err`.
    pub fn because(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }

    /// The failure for an error of the library; invalid settings are invalid arguments.
    pub fn of_library(error: &rdmc::Error) -> Self {
        match error {
            rdmc::Error::Setting { .. } => Self::Usage(error.to_string()),
            rdmc::Error::Fabric { .. } => Self::Failed(format!(
                "{error}; `rdmc doctor` lists the possible values of --fabric here"
            )),
            other => Self::because(other),
        }
    }

    /// The failure for an error of a push.
    pub fn of_push(error: &files::PushError) -> Self {
        match error {
            files::PushError::Library(error) => Self::of_library(error),
            files::PushError::Setting(what) => Self::Usage(what.clone()),
            other => Self::because(other),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Misdirected(_) => Exit::Usage,
            Self::Io(..) | Self::Failed(_) => Exit::Failed,
            Self::Output(..) => Exit::Output,
            Self::Interrupted => Exit::Interrupted,
        }
    }

    /// Prints the failure to standard error, with `json` also as one object to standard output, and returns the exit code.
    pub fn report(&self, json: bool) -> Exit {
        let words = self.to_string();
        print_message(&words);
        if json && !matches!(self, Self::Output(..) | Self::Misdirected(_)) {
            refuse(&words, self.exit());
        }
        self.exit()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what, error) | Self::Output(what, error) => write!(f, "{what}: {error}"),
            Self::Failed(reason) | Self::Usage(reason) | Self::Misdirected(reason) => {
                f.write_str(reason)
            }
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Prints the JSON object of a failure.
pub fn refuse(error: &str, exit: Exit) {
    // Errors are ignored: standard error has the same message.
    let refusal = Refusal { error, exit_code: exit };
    let _ = standard_output::write(|out| json::write_line(out, &refusal));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("caf\u{e9} \"a\" \u{2192} b"), "caf\u{e9} \"a\" \u{2192} b");
        assert_eq!(plain("\u{1b}[2J\r\u{9b}"), "\\u{1b}[2J\\r\\u{9b}");
        assert_eq!(plain("no\nrdmc: all is well"), "no\n  rdmc: all is well");
        assert_eq!(plain_name("a\nb\u{1b}"), "a\\nb\\u{1b}");
        assert_eq!(plain("\u{202e}gpj"), "\\u{202e}gpj");
        assert_eq!(plain("a\u{200b}b\u{2028}c\u{feff}"), "a\\u{200b}b\\u{2028}c\\u{feff}");
        assert_eq!(
            plain("a\u{ad}b\u{fe0f} \u{2764}\u{fe0f}"),
            "a\\u{ad}b\\u{fe0f} \u{2764}\u{fe0f}"
        );
    }
}
