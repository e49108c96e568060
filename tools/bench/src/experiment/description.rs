//! An experiment as its file describes it, with the options that replace its settings.

use std::{collections::BTreeMap, path::PathBuf};

use plan::size;
use serde::Deserialize;
use serde_json::Value;

use super::{
    case::Case,
    columns::{Found, Ratio, value},
    values::Values,
};
use crate::{
    outcome::{Outcome, Usage},
    report::{Output, number},
};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What is measured, in one line; `{members}` is replaced by that setting.
    what: String,
    /// The settings that may have several values, which are combined, the outermost first.
    axes: Vec<String>,
    /// The table's columns: a name that `columns.rs` or `relative` has, or NAME=OTHER, OTHER under this name.
    columns: Vec<String>,
    /// Columns that compare a case with another.
    #[serde(default)]
    relative: BTreeMap<String, Relative>,
    #[serde(default)]
    notes: Vec<String>,
    /// Every setting with its default.
    settings: BTreeMap<String, Value>,
}

/// A column that compares a case with the one that has other values of some settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Relative {
    /// These values.
    to: BTreeMap<String, Value>,
    ratio: Ratio,
}

/// Settings that add a value ahead of the algorithms: what the cost model takes, plain connections, other connections alone.
const AHEAD: [(&str, &str); 3] = [("auto", "auto"), ("plain", "plain"), ("alone", "none")];

/// An experiment.
#[derive(Debug)]
pub struct Description {
    file: File,
    /// The values of each setting.
    settings: BTreeMap<String, Vec<String>>,
}

/// Options of every measurement.
#[derive(Debug, Default)]
pub struct Common {
    pub output: Output,
    /// The file for a trace.
    pub trace: Option<PathBuf>,
}

/// Scalars as options have them.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

impl Description {
    /// Reads the file, and options: `--NAME VALUE,...` for each setting, `--NAME` for one that is true or false, and
    /// those of all measurements.
    pub fn new(text: &str, options: &[String]) -> Outcome<(Self, Common)> {
        let file: File = toml::from_str(text)?;
        let settings =
            file.settings.iter().map(|(name, value)| (name.clone(), texts(value))).collect();
        let mut description = Self { file, settings };
        let mut common = Common::default();
        let mut words = options.iter().peekable();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => common.output.json = true,
                "--markdown" => common.output.markdown = true,
                _ => {
                    let value = words.next_if(|next| !next.starts_with("--")).map(String::as_str);
                    match (word.as_str(), value) {
                        ("--trace", Some(file)) => common.trace = Some(file.into()),
                        _ => description.set(word, value)?,
                    }
                }
            }
        }
        if common.output.json && common.output.markdown {
            return Err(Usage("--json and --markdown exclude each other".into()).into());
        }
        Ok((description, common))
    }

    fn set(&mut self, word: &str, value: Option<&str>) -> Outcome<()> {
        let given = word.strip_prefix("--").unwrap_or_default();
        let names = self.settings.keys().map(|name| format!("--{name}"));
        let names = names.collect::<Vec<_>>().join(" ");
        let settings = self.settings.get_mut(given);
        let settings = settings
            .ok_or_else(|| Usage(format!("there is no option \"{word}\"; there are: {names}")))?;
        let is_flag = settings.iter().all(|value| ["true", "false"].contains(&value.as_str()));
        let is_axis = self.file.axes.iter().any(|axis| axis == given);
        *settings = match value {
            Some(values) if is_axis => values.split(',').map(str::to_owned).collect(),
            Some(value) => vec![value.to_owned()],
            None if is_flag => vec!["true".to_owned()],
            None => return Err(Usage(format!("{word} needs a value")).into()),
        };
        Ok(())
    }

    /// Every combination of values, in the order of the axes.
    pub fn cases(&self) -> Outcome<Vec<Case>> {
        let first = |values: &Vec<String>| values.first().cloned().unwrap_or_default();
        let fixed =
            self.settings.iter().map(|(name, values)| (name.clone(), first(values))).collect();
        let mut all = vec![Values(fixed)];
        for axis in &self.file.axes {
            let values = self.values_of(axis)?;
            let with = |case: &Values| {
                let case = case.clone();
                values
                    .iter()
                    .map(move |value| case.with(&BTreeMap::from([(axis.clone(), value.clone())])))
            };
            all = all.iter().flat_map(with).collect();
        }
        let cases = all.into_iter().filter(|values| self.is_measured(values)).map(Case::new);
        let cases: Vec<Case> = cases.collect::<Outcome<_>>()?;
        if cases.is_empty() {
            return Err(Usage("with these options nothing is measured".into()).into());
        }
        Ok(cases)
    }

    /// The values of a setting that is combined. Algorithms may have others ahead of them, by a setting for each.
    fn values_of(&self, axis: &str) -> Outcome<Vec<String>> {
        let values = self.settings.get(axis).ok_or(format!("there is no setting {axis}"))?;
        let is_set = |flag: &&(&str, &str)| {
            self.settings.get(flag.0).is_some_and(|values| values.iter().any(|it| it == "true"))
        };
        let ahead = AHEAD.iter().filter(|_| axis == "algorithms").filter(is_set);
        Ok(ahead.map(|(_, value)| (*value).to_owned()).chain(values.iter().cloned()).collect())
    }

    /// Leaves out combinations that are measured already, or have no meaning.
    fn is_measured(&self, values: &Values) -> bool {
        let of = |name: &str| values.0.get(name).map_or("", String::as_str);
        let has_no_block = AHEAD.iter().any(|(_, value)| of("algorithms") == *value);
        let is_first_block = self.settings.get("blocks").is_none_or(|all| all[0] == of("blocks"));
        let is_nothing = of("algorithms") == "none" && of("flows") == "none";
        // Half of two or three members are one.
        let is_one = of("senders") == "half" && of("members").parse().is_ok_and(|it: u32| it < 4);
        let fits = of("fitting-blocks") != "true" || self.fits(of("blocks"), of("bytes"));
        (is_first_block || !has_no_block) && !is_nothing && !is_one && fits
    }

    /// Whether a block is not longer than the message, or the shortest of all.
    fn fits(&self, block: &str, message: &str) -> bool {
        let bytes = |text: &str| size::parse(text).unwrap_or(0);
        let all = self.settings.get("blocks").into_iter().flatten();
        let shortest = all.map(|block| bytes(block)).min();
        bytes(block) <= bytes(message) || Some(bytes(block)) == shortest
    }

    /// How often each case is measured.
    pub fn repeats(&self) -> Outcome<u32> {
        let values = self.settings.get("repeats").and_then(|values| values.first());
        let values = values.map(|value| ("repeats".to_owned(), value.clone())).into_iter();
        Ok(Values(values.collect()).number("repeats", 1..=1_000)?.unwrap_or(1))
    }

    /// What is measured, with its settings.
    pub fn what(&self) -> String {
        let mut text = self.file.what.clone();
        for (name, values) in &self.settings {
            text = text.replace(&format!("{{{name}}}"), &values.join(", "));
        }
        text
    }

    /// The settings that no row has.
    pub fn settings_note(&self) -> String {
        let is_fixed = |name: &&String| !self.file.axes.contains(*name);
        let texts = self.settings.keys().filter(is_fixed);
        let texts = texts.map(|name| format!("{name} {}", self.settings[name].join(",")));
        format!("settings: {}.", texts.collect::<Vec<_>>().join("; "))
    }

    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.file.notes.iter().map(String::as_str)
    }

    /// The row of a case.
    pub fn row(&self, found: &Found, all: &[Found]) -> Outcome<Vec<(String, Value)>> {
        let cell = |column: &String| {
            let (name, source) = column.split_once('=').unwrap_or((column, column));
            let value = match self.file.relative.get(source) {
                Some(relative) => relative.value(found, all),
                None => value(source, found).ok_or(format!("there is no column {source}"))?,
            };
            Ok((name.to_owned(), value))
        };
        self.file.columns.iter().map(cell).collect()
    }
}

impl Relative {
    fn value(&self, found: &Found, all: &[Found]) -> Value {
        let others = self.to.iter().map(|(name, value)| (name.clone(), texts(value).join(",")));
        let values = found.case.values.with(&others.collect());
        let base = all.iter().find(|other| other.case.values == values);
        base.map_or(Value::Null, |base| number(self.ratio.of(found, base)))
    }
}
