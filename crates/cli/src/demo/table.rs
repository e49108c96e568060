//! The demo's table, printed line by line.

use std::time::Duration;

use plan::size;

use crate::push::summary::{bandwidth, seconds};

/// One run.
pub struct Row {
    pub name: &'static str,
    pub receivers: usize,
    /// The time until the last receiver has everything.
    pub time: Duration,
}

/// The head of the table.
pub fn head() -> String {
    format!(
        "\n{:20}{:>10}{:>18}{:>17}{:>17}\n",
        "", "receivers", "time to the last", "bandwidth each", "times one copy"
    )
}

impl Row {
    /// The line of the run; `one_copy` is the time of the first row.
    pub fn line(&self, bytes: u64, one_copy: Duration) -> String {
        let Self { name, receivers, time, .. } = self;
        let rate = bandwidth(bytes, *time)
            .map_or_else(|| "-".to_owned(), |rate| size::show_rate((rate * 8.0) as u64));
        let times = time.as_secs_f64() / one_copy.as_secs_f64();
        let time = seconds(*time);
        format!("{name:20}{receivers:>10}{time:>18}{rate:>17}{times:>17.2}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_compare_with_the_first() {
        let line = |name, receivers, millis| {
            let row = Row { name, receivers, time: Duration::from_millis(millis) };
            row.line(1 << 20, Duration::from_millis(500))
        };
        let table = head() + &line("one copy", 1, 500) + &line("rdmc", 7, 750);
        let expected = "
                     receivers  time to the last   bandwidth each   times one copy
one copy                     1            0.50 s         16.8mbit             1.00
rdmc                         7            0.75 s         11.2mbit             1.50
";
        assert_eq!(table, expected);
    }
}
