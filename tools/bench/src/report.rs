//! Tables for people, JSON for programs, and the facts about the machine that figures depend on.

use std::{fs, thread};

use serde_json::{Map, Value, json};

/// One table or several, and what there is to say about them.
#[derive(Debug)]
pub struct Report {
    benchmark: &'static str,
    what: String,
    /// Facts, where they are those of the machine that was measured.
    machine: Option<Value>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

/// How a report is printed; as text unless something else is asked for.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Print Markdown: tables, and notes as a list
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// Rows of named values, all with the same names in the same order.
#[derive(Debug)]
struct Table {
    /// In JSON.
    name: &'static str,
    /// Stands above it; nothing above the first.
    title: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Report {
    /// A report with an empty table, "rows"; `what` says in one line what was measured.
    pub fn new(benchmark: &'static str, what: String, columns: &[&'static str]) -> Self {
        let (machine, tables, notes) = (Some(machine()), Vec::new(), Vec::new());
        let mut report = Self { benchmark, what, machine, tables, notes };
        report.table("rows", "", columns);
        report
    }

    /// The same about something that was measured before, wherever that was.
    pub fn of_the_past(self) -> Self {
        Self { machine: None, ..self }
    }

    /// Begins another table, which rows are added to from now on.
    pub fn table(
        &mut self,
        name: &'static str,
        title: impl Into<String>,
        columns: &[&'static str],
    ) {
        let (title, columns) = (title.into(), columns.to_vec());
        self.tables.push(Table { name, title, columns, rows: Vec::new() });
    }

    /// Adds a row: one value for each column.
    pub fn row(&mut self, values: Vec<Value>) {
        if let Some(table) = self.tables.last_mut() {
            assert_eq!(values.len(), table.columns.len(), "one value for each column");
            table.rows.push(values);
        }
    }

    /// Adds a line that stands below all tables.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds what the paper found, what was found here, and why that differs or not.
    pub fn finding(&mut self, paper: &str, here: &str, why: &str) {
        self.note(format!("The paper: {paper}"));
        self.note(format!("Here: {here}"));
        self.note(format!("Why: {why}"));
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
        for table in &self.tables {
            text += &table.to_text();
        }
        for note in &self.notes {
            text += &format!("\n{note}\n");
        }
        text
    }

    fn to_markdown(&self) -> String {
        let mut text = self.head();
        for table in &self.tables {
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
        let named = |row: &Vec<Value>| {
            let named = self.columns.iter().map(ToString::to_string).zip(row.iter().cloned());
            Value::Object(named.collect::<Map<_, _>>())
        };
        self.rows.iter().map(named).collect()
    }

    /// With an empty line above it.
    fn heading(&self) -> String {
        match self.title.as_str() {
            "" => "\n".to_owned(),
            title => format!("\n{title}\n\n"),
        }
    }

    /// The names of columns, and then the rows.
    fn lines(&self) -> Vec<Vec<String>> {
        let head = self.columns.iter().map(|name| name.replace('_', " ")).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(cell).collect());
        std::iter::once(head).chain(rows).collect()
    }

    fn has_words(&self, column: usize) -> bool {
        self.rows.iter().any(|row| row[column].is_string())
    }

    fn to_markdown(&self) -> String {
        let written = |line: &Vec<String>| {
            let cells: Vec<String> = line.iter().map(|text| text.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let lines = self.lines();
        let rules = (0..self.columns.len())
            .map(|column| if self.has_words(column) { "---|" } else { "--:|" });
        let (head, rule) = (written(&lines[0]), rules.collect::<String>());
        let rows: String = lines[1..].iter().map(written).collect();
        format!("{}{head}|{rule}\n{rows}", self.heading())
    }

    fn to_text(&self) -> String {
        let mut text = self.heading();
        let lines = self.lines();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        for line in &lines {
            for (column, (value, &width)) in line.iter().zip(&widths).enumerate() {
                text += &if self.has_words(column) {
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

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or(f64::NAN))
        }
        other => other.to_string(),
    }
}

/// What figures depend on and a reader has to know.
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
    fn a_table_is_aligned_and_its_json_says_the_same() {
        let mut report = Report::new("test", "nothing".into(), &["name", "time_s"]);
        report.row(vec![json!("chain"), number(1.23456)]);
        report.row(vec![json!("x"), Value::Null]);
        assert!(report.to_text().ends_with("name   time s\nchain   1.235\nx           -\n"));
        assert_eq!(report.to_json()["rows"][0], json!({"name": "chain", "time_s": 1.2346}));
        report.table("more", "And this:", &["count"]);
        report.row(vec![json!(12)]);
        assert!(report.to_text().ends_with("      -\n\nAnd this:\n\ncount\n   12\n"));
        assert_eq!(report.to_json()["more"], json!([{"count": 12}]));
    }

    #[test]
    fn markdown_has_a_table_and_a_list() {
        let mut report = Report::new("test", "nothing".into(), &["name", "time_s"]).of_the_past();
        report.row(vec![json!("a|b"), number(1.5)]);
        report.note("first");
        report.note("second");
        let expected = "test: nothing\n\n| name | time s |\n|---|--:|\n| a\\|b | 1.500 |\n\n\
                        - first\n- second\n";
        assert_eq!(report.to_markdown(), expected);
    }
}
