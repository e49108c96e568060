//! How a command ends, and what it says when it fails.
//!
//! Exit codes are decided here alone, from what happened to hosts and files: never by whether somebody listened to
//! what was printed about it. docs/exit-codes.md has the same table for people.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use serde::Serialize;

use crate::standard_output;

/// How a command has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// All was done: every host has its copy.
    Done = 0,
    /// Nothing was done: no host has a copy.
    Failed = 1,
    /// The arguments make no sense; nothing was begun.
    Usage = 2,
    /// Some hosts have a copy, others do not.
    Partly = 3,
    /// All was done, but an output that was asked for could not be written.
    Output = 4,
    /// A signal came before all was done. As shells count it for Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// As the system and JSON have it.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What happened to hosts counts before what became of outputs.
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

/// The one JSON object of a command that has failed before it had anything else to tell.
#[derive(Serialize)]
struct Refusal<'a> {
    error: &'a str,
    exit_code: Exit,
}

/// Says something on standard error. Unlike `eprintln!` it survives that nobody listens any more,
/// since what this process does for others matters more.
pub fn say(words: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "rdmc: {}", plain(&words.to_string()));
}

/// A text for a terminal. Parts of it may be another host's words: they cannot steer the terminal,
/// turn the direction of writing, or begin a line as if this program had said it.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => plain.push_str("\n  "),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                plain.extend(character.escape_unicode());
            }
            character if character.is_control() => plain.extend(character.escape_default()),
            character => plain.push(character),
        }
    }
    plain
}

/// Why a command stops, which decides its exit code. Nothing is on standard output by then.
#[derive(Debug)]
pub enum Failure {
    /// The arguments make no sense together, like those that the parser rejects.
    Usage(String),
    /// The same, and standard output is not to be written to.
    Misdirected(String),
    /// Something went wrong while doing it, with what was being done.
    Io(String, io::Error),
    /// It did not work out, for this reason.
    Failed(String),
    /// All was done, but this output could not be written.
    Output(String, io::Error),
    /// Interrupted by a signal.
    Interrupted,
}

impl Failure {
    /// What was being done when an I/O error came, as an adapter for `map_err`.
    pub fn while_doing(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io(what.to_string(), error)
    }

    /// A reason that needs no more words, as an adapter for `map_err`.
    pub fn because(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }

    /// Why the library refuses: settings that cannot be are arguments that make no sense.
    pub fn of_library(error: &rdmc::Error) -> Self {
        match error {
            rdmc::Error::Setting { .. } => Self::Usage(error.to_string()),
            rdmc::Error::Fabric { .. } => {
                Self::Failed(format!("{error}; `rdmc doctor` lists what --fabric can be here"))
            }
            other => Self::because(other),
        }
    }

    /// The same of a push.
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

    /// Says it on standard error, with `json` also as the one object on standard output, and returns how the command
    /// ends.
    pub fn report(&self, json: bool) -> Exit {
        let words = self.to_string();
        say(&words);
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

/// Writes the one JSON object of a command that tells no more than why it failed.
pub fn refuse(error: &str, exit: Exit) {
    // Standard error has the same.
    let _ = standard_output::write(|out| {
        serde_json::to_writer(&mut *out, &Refusal { error, exit_code: exit })?;
        writeln!(out)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_hosts_words_cannot_steer_a_terminal() {
        assert_eq!(plain("caf\u{e9} \"a\" \u{2192} b"), "caf\u{e9} \"a\" \u{2192} b");
        assert_eq!(plain("\u{1b}[2J\r\u{9b}"), "\\u{1b}[2J\\r\\u{9b}");
        assert_eq!(plain("no\nrdmc: all is well"), "no\n  rdmc: all is well");
        assert_eq!(plain("\u{202e}gpj"), "\\u{202e}gpj");
    }
}
