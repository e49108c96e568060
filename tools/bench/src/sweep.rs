//! Many measurements, several times each, in alternating order.

use std::io::{IsTerminal, Write};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use rdmc::Algorithm;

use crate::outcome::Outcome;

/// Parses the name of an algorithm, and lists the names where it is none.
pub fn algorithms() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name)).try_map(|name| name.parse())
}

/// Does `count` things once, then once more in the opposite order, and so on, so that
/// drift affects all of them equally. Answers the results of each, in the order of the runs.
pub fn alternate<T>(
    count: usize,
    repeats: u32,
    name: &str,
    mut run: impl FnMut(usize) -> Outcome<T>,
) -> Outcome<Vec<Vec<T>>> {
    let mut results: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    for round in 0..repeats as usize {
        for position in 0..count {
            let index = if round % 2 == 0 { position } else { count - 1 - position };
            progress(name, round * count + position + 1, count * repeats as usize);
            results[index].push(run(index)?);
        }
    }
    Ok(results)
}

/// One line that replaces itself, in a terminal only.
pub fn progress(name: &str, done: usize, total: usize) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let end = if done == total { "\r\x1b[K" } else { "" };
        let _ = write!(err, "\r{name}: {done} of {total}{end}");
    }
}
