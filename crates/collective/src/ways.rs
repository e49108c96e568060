//! How a team chooses ways.

use std::{fmt, str::FromStr};

use crate::{
    Lengths,
    lengths::InvalidLengths,
    model::{InvalidParameters, Parameters},
};

/// How a team chooses the ways of its operations; the same at all members, which have to choose alike.
///
/// As text, as [`fmt::Display`] writes and [`FromStr`] reads it: that of [`Parameters`], or of [`Lengths`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Ways {
    /// The fastest by the cost model ([`crate::model::Team::choose`]), with these costs.
    ByCosts(Parameters),
    /// By fixed lengths; for measurements and tests.
    ByLength(Lengths),
}

/// A text that is neither [`Parameters`] nor [`Lengths`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidWays {
    /// It is not [`Lengths`].
    #[error(transparent)]
    Lengths(#[from] InvalidLengths),
    /// It is not [`Parameters`].
    #[error(transparent)]
    Parameters(#[from] InvalidParameters),
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByCosts(parameters) => parameters.fmt(f),
            Self::ByLength(lengths) => lengths.fmt(f),
        }
    }
}

impl FromStr for Ways {
    type Err = InvalidWays;

    fn from_str(text: &str) -> Result<Self, InvalidWays> {
        if Lengths::are_meant(text) {
            return Ok(Self::ByLength(text.parse()?));
        }
        Ok(Self::ByCosts(text.parse()?))
    }
}
