//! How a team chooses ways.

use std::{fmt, str::FromStr};

use crate::{
    Thresholds,
    model::{InvalidWriteCosts, WriteCosts},
    thresholds::InvalidThresholds,
};

/// How a team chooses the ways of its operations; the same at all members, which have to choose alike.
///
/// As text, as [`fmt::Display`] writes and [`FromStr`] reads it: that of [`WriteCosts`], or of [`Thresholds`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WaySelection {
    /// The fastest by the cost model ([`crate::model::Team::choose`]), with these costs.
    ByCosts(WriteCosts),
    /// By fixed thresholds; for measurements and tests.
    ByThresholds(Thresholds),
}

/// A text that is neither [`WriteCosts`] nor [`Thresholds`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidWaySelection {
    /// It is not [`Thresholds`].
    #[error(transparent)]
    Thresholds(#[from] InvalidThresholds),
    /// It is not [`WriteCosts`].
    #[error(transparent)]
    Costs(#[from] InvalidWriteCosts),
}

impl fmt::Display for WaySelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByCosts(costs) => costs.fmt(f),
            Self::ByThresholds(thresholds) => thresholds.fmt(f),
        }
    }
}

impl FromStr for WaySelection {
    type Err = InvalidWaySelection;

    fn from_str(text: &str) -> Result<Self, InvalidWaySelection> {
        if Thresholds::are_meant(text) {
            return Ok(Self::ByThresholds(text.parse()?));
        }
        Ok(Self::ByCosts(text.parse()?))
    }
}
