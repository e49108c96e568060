//! Tables, JSON, and the facts about the machine on which figures depend.

use std::{borrow::Cow, fs, thread};

use clap::ValueEnum;
use serde_json::{Value, json};

/// One table or several, and notes about them.
#[derive(Debug)]
pub struct Report {
    benchmark: &'static str,
    what: String,
    /// The machine that was measured; `None` where figures do not depend on it.
    machine: Option<Value>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

/// How a report is printed; by default as text.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Print Markdown: tables, and notes as a list
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// A value, after the name of its column.
pub type Cell = (&'static str, Value);

/// Rows, all with the same columns in the same order.
#[derive(Debug)]
struct Table {
    /// Its key in JSON.
    name: &'static str,
    /// Printed above it; the first has an empty one. `None`: the table is in the JSON alone.
    title: Option<&'static str>,
    rows: Vec<Vec<(Cow<'static, str>, Value)>>,
}

impl Report {
    /// A report with an empty table, "rows"; `what` describes in one line what was measured.
    pub fn new(benchmark: &'static str, what: String) -> Self {
        let tables = vec![Table { name: "rows", title: Some(""), rows: Vec::new() }];
        Self { benchmark, what, machine: Some(machine()), tables, notes: Vec::new() }
    }

    /// Leaves out this machine, on which figures that were simulated or read do not depend.
    pub fn without_machine(self) -> Self {
        Self { machine: None, ..self }
    }

    /// Begins another table, to which rows are added from now on.
    pub fn table(&mut self, name: &'static str, title: &'static str) {
        self.tables.push(Table { name, title: Some(title), rows: Vec::new() });
    }

    /// Begins a table that only the JSON has: what pictures are drawn from (`./dev plot`).
    pub fn data(&mut self, name: &'static str) {
        self.tables.push(Table { name, title: None, rows: Vec::new() });
    }

    fn printed(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(|table| table.title.is_some())
    }

    /// Adds a row, with the columns of the table's other rows.
    pub fn row<N: Into<Cow<'static, str>>>(&mut self, cells: impl IntoIterator<Item = (N, Value)>) {
        if let Some(table) = self.tables.last_mut() {
            let row: Vec<_> = cells.into_iter().map(|(name, value)| (name.into(), value)).collect();
            let first = table.rows.first().unwrap_or(&row);
            let has_same_columns =
                row.iter().map(|(name, _)| name).eq(first.iter().map(|(name, _)| name));
            assert!(has_same_columns, "rows of one table have the same columns");
            table.rows.push(row);
        }
    }

    /// Adds a line below all tables.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Prints all of it on standard output.
    pub fn print(&self, output: &Output) {
        match output {
            Output { json: true, .. } => println!("{:#}", self.to_json()),
            Output { markdown: true, .. } => print!("{}", self.to_markdown()),
            _ => print!("{}", self.to_text()),
        }
    }

    fn to_json(&self) -> Value {
        let mut json = json!({
            "benchmark": self.benchmark,
            "what": self.what,
            "notes": self.notes,
        });
        if let Some(machine) = &self.machine {
            json["machine"] = machine.clone();
        }
        for table in &self.tables {
            json[table.name] = table.to_json();
        }
        json
    }

    /// What was measured, and where.
    fn head(&self) -> String {
        let mut text = format!("{}: {}\n", self.benchmark, self.what);
        if let Some(machine) = &self.machine {
            text += &format!(
                "{} cores, {}, Linux {}\n",
                machine["cores"],
                machine["cpu"].as_str().unwrap_or("?"),
                machine["kernel"].as_str().unwrap_or("?"),
            );
        }
        text
    }

    fn to_text(&self) -> String {
        let mut text = self.head();
        for table in self.printed() {
            text += &table.to_text();
        }
        for note in &self.notes {
            text += &format!("\n{note}\n");
        }
        text
    }

    fn to_markdown(&self) -> String {
        let mut text = self.head();
        for table in self.printed() {
            text += &table.to_markdown();
        }
        text.push('\n');
        for note in &self.notes {
            text += &format!("- {note}\n");
        }
        text
    }
}

impl Table {
    fn to_json(&self) -> Value {
        let object = |row: &Vec<(Cow<'static, str>, Value)>| {
            let cells = row.iter().map(|(name, value)| (name.to_string(), value.clone()));
            Value::Object(cells.collect())
        };
        self.rows.iter().map(object).collect()
    }

    /// With an empty line above it.
    fn heading(&self) -> String {
        match self.title.unwrap_or_default() {
            "" => "\n".to_owned(),
            title => format!("\n{title}\n\n"),
        }
    }

    /// The names of columns, and then the rows.
    fn lines(&self) -> Vec<Vec<String>> {
        let first = self.rows.first().into_iter();
        let head = first.map(|row| row.iter().map(|(name, _)| name.replace('_', " ")).collect());
        let rows = self.rows.iter().map(|row| row.iter().map(|(_, value)| shown(value)).collect());
        head.chain(rows).collect()
    }

    fn columns(&self) -> std::ops::Range<usize> {
        0..self.rows.first().map_or(0, Vec::len)
    }

    fn is_text(&self, column: usize) -> bool {
        self.rows.iter().any(|row| row[column].1.is_string())
    }

    fn to_markdown(&self) -> String {
        let written = |line: &Vec<String>| {
            let cells: Vec<String> = line.iter().map(|text| text.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let lines = self.lines();
        let Some((head, rows)) = lines.split_first() else { return self.heading() };
        let rule: String =
            self.columns().map(|it| if self.is_text(it) { "---|" } else { "--:|" }).collect();
        let rows: String = rows.iter().map(written).collect();
        format!("{}{}|{rule}\n{rows}", self.heading(), written(head))
    }

    fn to_text(&self) -> String {
        let mut text = self.heading();
        let lines = self.lines();
        let width = |column: usize| {
            lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = self.columns().map(width).collect();
        for line in &lines {
            for (column, (value, &width)) in line.iter().zip(&widths).enumerate() {
                text += &if self.is_text(column) {
                    format!("{value:<width$}  ")
                } else {
                    format!("{value:>width$}  ")
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }
}

/// An option's value as it is written on the command line.
pub fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Nanoseconds as milliseconds, as a value of a table.
pub fn ms(ns: u64) -> Value {
    number(ns as f64 / 1e6)
}

/// A number of seconds, or another measured number, to four digits after the point; null if there
/// is none (NaN).
pub fn number(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

/// The middle value; of an even count the lower of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len().max(1) - 1) / 2).copied().unwrap_or(f64::NAN)
}

/// The arithmetic mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of the values that these are a sample of; NaN of fewer than two.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or(f64::NAN))
        }
        other => other.to_string(),
    }
}

/// Facts about this machine on which figures depend.
pub fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let cpu = cpus
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or("unknown processor", |(_, name)| name.trim());
    let memory_kib: u64 = read("/proc/meminfo")
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    json!({
        "cores": thread::available_parallelism().map_or(1, usize::from),
        "cpu": cpu,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "memory_bytes": memory_kib * 1024,
        "congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control").trim(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.0);
        assert!(median(vec![]).is_nan());
    }

    #[test]
    fn one_value_has_a_mean_and_no_deviation() {
        assert_eq!(mean(&[3.0, 5.0]), 4.0);
        assert_eq!(deviation(&[2.0, 4.0, 6.0]), 2.0);
        assert_eq!(mean(&[3.0]), 3.0);
        assert!(deviation(&[3.0]).is_nan() && mean(&[]).is_nan());
        assert_eq!(number(f64::NAN), Value::Null);
    }

    #[test]
    fn a_table_is_aligned_and_its_json_has_the_same_values() {
        let mut report = Report::new("test", "nothing".into());
        report.row([("name", json!("chain")), ("time_s", number(1.23456))]);
        report.row([("name", json!("x")), ("time_s", Value::Null)]);
        assert!(report.to_text().ends_with("name   time s\nchain   1.235\nx           -\n"));
        assert_eq!(report.to_json()["rows"][0], json!({"name": "chain", "time_s": 1.2346}));
        report.table("more", "And this:");
        report.row([("count", json!(12))]);
        report.data("points");
        report.row([("x", json!(3))]);
        assert_eq!(report.to_json()["points"], json!([{"x": 3}]));
        assert!(report.to_text().ends_with("      -\n\nAnd this:\n\ncount\n   12\n"));
        assert_eq!(report.to_json()["more"], json!([{"count": 12}]));
    }

    #[test]
    fn markdown_has_a_table_and_a_list() {
        let mut report = Report::new("test", "nothing".into()).without_machine();
        report.row([("name", json!("a|b")), ("time_s", number(1.5))]);
        report.note("first");
        report.note("second");
        let expected = "test: nothing\n\n| name | time s |\n|---|--:|\n| a\\|b | 1.500 |\n\n\
                        - first\n- second\n";
        assert_eq!(report.to_markdown(), expected);
    }
}
