//! The demo's table.

use std::{fmt::Write, time::Duration};

use plan::size;

use crate::push::summary::{bandwidth, seconds};

const NOTE: &str = "
Steps are those of the schedule with a network link for each host: one step is the time for one
block. Here all receivers share this machine's processors and memory, and making all copies is the
same work for every algorithm.
";

/// One run.
pub struct Row {
    pub name: &'static str,
    pub receivers: usize,
    /// Until the last receiver has everything.
    pub time: Duration,
    /// Steps of the schedule.
    pub steps: u64,
}

/// A table of all runs; the first is the reference.
pub fn draw(rows: &[Row], bytes: u64) -> String {
    let mut table = format!(
        "\n{:20}{:>10}{:>18}{:>17}{:>17}{:>9}\n",
        "", "receivers", "time to the last", "bandwidth each", "times one copy", "steps"
    );
    let one_copy = rows.first().map_or(0.0, |row| row.time.as_secs_f64());
    for Row { name, receivers, time, steps } in rows {
        let rate = bandwidth(bytes, *time)
            .map_or_else(|| "-".to_owned(), |rate| format!("{}/s", size::show(rate as u64)));
        let times = time.as_secs_f64() / one_copy;
        let time = seconds(*time);
        // Writing to a String does not fail.
        let _ =
            writeln!(table, "{name:20}{receivers:>10}{time:>18}{rate:>17}{times:>17.2}{steps:>9}");
    }
    table + NOTE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_compare_with_the_first() {
        let row = |name, receivers, millis, steps| Row {
            name,
            receivers,
            time: Duration::from_millis(millis),
            steps,
        };
        let table = draw(&[row("one copy", 1, 500, 16), row("chain", 7, 750, 22)], 1 << 20);
        let expected = "
                     receivers  time to the last   bandwidth each   times one copy    steps
one copy                     1            0.50 s          2 MiB/s             1.00       16
chain                        7            0.75 s       1.33 MiB/s             1.50       22
";
        assert!(table.starts_with(expected), "{table}");
    }
}
