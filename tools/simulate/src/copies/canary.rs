//! Planted bugs between the decisions of a receiver and its system calls.

use clap::{ValueEnum, builder::PossibleValue};
use files::simulation::Bug;

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyCanary(pub(super) Bug);

impl ValueEnum for CopyCanary {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self(Bug::CreatesOver),
            Self(Bug::RenamesOver),
            Self(Bug::ChangesByPath),
            Self(Bug::IgnoresChangeTime),
            Self(Bug::ExchangesAnything),
            Self(Bug::LinksEarly),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self.0 {
            Bug::CreatesOver => "creates-over",
            Bug::RenamesOver => "renames-over",
            Bug::ChangesByPath => "changes-by-path",
            Bug::IgnoresChangeTime => "ignores-change-time",
            Bug::ExchangesAnything => "exchanges-anything",
            Bug::LinksEarly => "links-early",
        }))
    }
}
