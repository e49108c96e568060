//! Reports errors in the arguments, and prints requested help.

use std::{
    ffi::OsString,
    io::{self, Write},
};

use clap::{
    Error,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    config::Additions,
    failure::{self, Exit, plain},
};

/// Options of earlier versions, each with its command and replacement.
const FORMER: [(&str, &str, &str); 3] = [
    ("push", "--encrypt", "`--protect encrypt` encrypts blocks"),
    ("bench", "--encrypt", "`--protect encrypt` encrypts blocks"),
    ("push", "--drop-slower-than", "`--min-rate RATE` defers the host that delays the others"),
];

/// Prints the requested help, or the error in these arguments; `added` are arguments from the configuration.
pub fn report(mut error: Error, arguments: &[OsString], added: &Additions) -> Exit {
    if !error.use_stderr() {
        return match error.print().and_then(|()| io::stdout().flush()) {
            // A closed pipe is no failure: its reader has read enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                failure::print_message(format_args!("standard output: {error}"));
                Exit::Output
            }
            _ => Exit::Done,
        };
    }
    let remedy = remedy(&error, arguments);
    if let Some(remedy) = remedy {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(remedy)]);
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, tip);
    }
    let text = error.render().to_string();
    if text.contains(|c: char| c.is_control() && c != '\n') {
        // Arguments may contain control sequences, which must not reach the terminal.
        let lines: Vec<String> = text.lines().map(plain).collect();
        let _ = writeln!(std::io::stderr(), "{}", lines.join("\n"));
    } else {
        let _ = error.print();
    }
    // The usage that follows an error names options that did not cause it.
    let is_of_none = error.kind() == ErrorKind::UnknownArgument;
    let about = text.split("\nUsage: ").next().filter(|_| is_of_none).unwrap_or(&text);
    added.explain(about);
    if asks_for_json(arguments) {
        let what = text.split("\n\n").next().unwrap_or_default();
        let what = what.trim_start_matches("error: ");
        let tip = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
        failure::refuse(&format!("{what}{tip}"), Exit::Usage);
    }
    Exit::Usage
}

/// Whether the arguments, which may be wrong, request JSON.
pub fn asks_for_json(arguments: &[OsString]) -> bool {
    let options = arguments.iter().take_while(|argument| *argument != "--");
    options.into_iter().any(|argument| argument == "--json")
}

/// The replacement for an argument of an earlier version.
fn remedy(error: &Error, arguments: &[OsString]) -> Option<&'static str> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let command = arguments.get(1)?.to_str()?;
    if command == "bench" && !unknown.starts_with('-') {
        return Some("hosts are named by --to: rdmc bench --to HOSTS");
    }
    let former = FORMER.into_iter().find(|(of, option, _)| *of == command && *option == unknown);
    former.map(|(.., remedy)| remedy)
}
