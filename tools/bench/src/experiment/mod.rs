//! Measurements that files describe (`experiments/*.toml`): settings, of which each may have several values, and columns.
//!
//! [`Description`] reads a file and the options that replace its settings, and combines the values into a [`Case`](case::Case) for each
//! row. Cases at the same [`Place`](place::Place) share a [`Site`]: the network, the members' processes and the other
//! connections. They are measured in alternating order ([`alternate`]), and [`columns`] makes a row of each case's runs.

mod case;
mod columns;
mod description;
mod place;
mod run;
mod site;
mod values;

use crate::{
    interrupt::Interrupt,
    outcome::{Outcome, Usage},
    report::{Output, Report},
    sweep::alternate,
    traces,
};
use columns::Found;
use description::Description;
use site::Site;

/// Every description, by its name.
const ALL: [(&str, &str); 11] = [
    ("block-sizes", include_str!("../../experiments/block-sizes.toml")),
    ("buffers", include_str!("../../experiments/buffers.toml")),
    ("foreign", include_str!("../../experiments/foreign.toml")),
    ("local", include_str!("../../experiments/local.toml")),
    ("modes", include_str!("../../experiments/modes.toml")),
    ("overlap", include_str!("../../experiments/overlap.toml")),
    ("overlapping", include_str!("../../experiments/overlapping.toml")),
    ("racks", include_str!("../../experiments/racks.toml")),
    ("shaped", include_str!("../../experiments/shaped.toml")),
    ("small", include_str!("../../experiments/small.toml")),
    ("wide-area", include_str!("../../experiments/wide-area.toml")),
];

/// For the program's help.
pub fn names() -> String {
    ALL.map(|(name, _)| name).join(", ")
}

/// Runs the experiment of the first of these words, with the options that follow.
///
/// Errors: [`Usage`] if there is no such experiment or option, or a value is invalid; what failed while measuring.
pub fn run(words: &[String]) -> Outcome<()> {
    let (name, options) = words.split_first().ok_or("an experiment has a name")?;
    let (name, text) = ALL
        .into_iter()
        .find(|(known, _)| known == name)
        .ok_or_else(|| Usage(format!("there is no measurement \"{name}\"; see --help")))?;
    if options.iter().any(|word| word == "--help" || word == "-h") {
        print!(
            "Options of {name} and their defaults are its settings; also --json or --markdown.\n\n{text}"
        );
        return Ok(());
    }
    let (description, common) = Description::new(text, options)?;
    common.trace.as_deref().map_or(Ok(()), traces::begin)?;
    measure(name, &description, &common.output)
}

fn measure(name: &'static str, description: &Description, output: &Output) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let cases = description.cases()?;
    let mut report = Report::new(name, description.what());
    let mut found: Vec<Found> = Vec::new();
    let mut notes = vec![description.settings_note()];
    for cases in cases.chunk_by(|one, other| one.place == other.place) {
        let place = cases[0].place.text();
        if !notes.contains(&place) {
            notes.push(place);
        }
        let mut site = Site::start(&cases[0], &interrupt)?;
        let title = cases[0].title();
        let results = alternate(cases.len(), description.repeats()?, &title, |index| {
            site.run(&cases[index])
        })?;
        for (case, runs) in cases.iter().zip(results) {
            let (case, plain_mbit) = (site.measured(case), site.plain_mbit());
            let one_copy = site.one_copy(&case, description.repeats()?)?;
            found.push(Found { case, runs, plain_mbit, one_copy });
        }
    }
    for one in &found {
        report.row(description.row(one, &found)?);
    }
    description.notes().for_each(|note| report.note(note));
    notes.into_iter().for_each(|note| report.note(note));
    report.print(output);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_is_complete() {
        for (name, text) in ALL {
            let (description, _) = Description::new(text, &[]).unwrap();
            let cases = description.cases().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!cases.is_empty(), "{name}");
            let found: Vec<Found> = cases.into_iter().map(Found::of_nothing).collect();
            description.row(&found[0], &found).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        for words in ["fast", "local --bits 1", "local --members", "local --members x", "local 5"] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let error = run(&words).unwrap_err();
            assert!(error.is::<Usage>(), "{words:?}: {error}");
        }
    }
}
