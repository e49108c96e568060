//! The values of settings, as text.

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive, str::FromStr};

use plan::size;

use crate::outcome::{Outcome, Usage};

/// The text of a setting that is left to the program.
const AUTO: &str = "auto";

/// One value of each setting of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values(pub BTreeMap<String, String>);

impl Values {
    /// The text of a setting; `None` if the experiment has no such setting, or it is `auto`.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| *text != AUTO)
    }

    /// What `parse` makes of a setting. Errors: it is invalid.
    pub fn parsed<T, E: Display>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Outcome<Option<T>> {
        let parsed = self.text(name).map(parse).transpose();
        parsed.map_err(|error| Usage(format!("--{name}: {error}")).into())
    }

    /// A number. Errors: it is none, or out of this range.
    pub fn number<T: FromStr + PartialOrd + Display>(
        &self,
        name: &str,
        range: RangeInclusive<T>,
    ) -> Outcome<Option<T>> {
        self.parsed(name, |text| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| format!("{text} is not {} to {}", range.start(), range.end()))
        })
    }

    /// A length that is not 0, such as 64KiB.
    pub fn bytes(&self, name: &str) -> Outcome<Option<u64>> {
        self.parsed(name, size::parse_nonzero)
    }

    /// Whether a setting is on; off if the experiment has no such setting.
    pub fn flag(&self, name: &str) -> Outcome<bool> {
        Ok(self.parsed(name, str::parse::<bool>)?.unwrap_or(false))
    }

    /// One of several names, by the same place among the values.
    pub fn choice<T: Copy>(&self, name: &str, known: &[(&str, T)]) -> Outcome<Option<T>> {
        self.parsed(name, |text| {
            let found = known.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            found.ok_or_else(|| format!("\"{text}\" is none of {}", names.join(", ")))
        })
    }

    /// The same with other values for some settings.
    pub fn with(&self, others: &BTreeMap<String, String>) -> Self {
        let mut all = self.0.clone();
        all.extend(others.clone());
        Self(all)
    }
}
