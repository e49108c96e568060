//! Standard input and output of a member.

use std::{
    io::{self, BufRead, Write},
    process,
    sync::mpsc::{self, Receiver},
    thread,
};

use trace::Writer;

use super::orders::Answer;
use crate::outcome::Outcome;

pub fn reply(answer: &Answer) -> Outcome<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    io::stdout().write_all(&line)?;
    Ok(())
}

/// Lines of standard input. At its end this process finishes its part of a trace, and exits.
pub fn listen(trace: Option<Writer>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        match trace.map(Writer::close).transpose() {
            Ok(Some(summary)) if summary.lost > 0 => {
                eprintln!("rdmc-bench: a trace lacks {} events: the disk was slow", summary.lost);
            }
            Ok(_) => {}
            Err(error) => eprintln!("rdmc-bench: a trace is not complete: {error}"),
        }
        process::exit(0);
    });
    lines
}

pub fn next_line(lines: &Receiver<String>) -> Outcome<String> {
    lines.recv().map_err(|_| "standard input ended early".into())
}
