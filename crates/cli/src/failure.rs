//! How a command fails.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    process::ExitCode,
};

/// Exit code of a command that a signal has interrupted, as shells count it for Ctrl-C.
pub const INTERRUPTED: u8 = 130;

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

/// Why a command stops, which decides its exit code.
#[derive(Debug)]
pub enum Failure {
    /// The arguments make no sense together: exit code 2, like those that the parser rejects.
    Usage(String),
    /// Something went wrong while doing it, with what was being done: exit code 1.
    Io(String, io::Error),
    /// It did not work out, for this reason: exit code 1.
    Failed(String),
    /// Interrupted by a signal: exit code 130.
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

    /// Says it on standard error and returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            // The reader went away, as in `rdmc plan … | head`: nobody is left to tell.
            Self::Io(_, error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Io(what, error) => {
                say(format_args!("{what}: {error}"));
                ExitCode::from(1)
            }
            Self::Failed(reason) => {
                say(reason);
                ExitCode::from(1)
            }
            Self::Usage(message) => {
                say(message);
                ExitCode::from(2)
            }
            Self::Interrupted => {
                say("interrupted");
                ExitCode::from(INTERRUPTED)
            }
        }
    }
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
