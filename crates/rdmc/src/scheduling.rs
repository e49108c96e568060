//! How a group finds its schedule.

use std::str::FromStr;

use schedule::{Algorithm, Schedule};

use crate::Error;

/// How a group finds its schedule: who sends which block to whom.
///
/// ```
/// use rdmc::{Algorithm, Scheduling};
///
/// assert!(matches!(Scheduling::default(), Scheduling::Fastest));
/// // The same for members in two racks; and always along a chain.
/// let _ = Scheduling::FastestInRacks(vec![0, 0, 1, 1]);
/// let _ = Scheduling::from(Algorithm::Chain);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Scheduling {
    /// The root takes the fastest by the cost model ([`plan::choice`]), and tells the others.
    #[default]
    Fastest,
    /// As [`Scheduling::Fastest`] with the rack of each rank, as arbitrary numbers: algorithms for racks are considered, too.
    /// The same numbers at all members.
    FastestInRacks(Vec<u32>),
    /// This algorithm, which needs no racks ([`Algorithm::needs_racks`]).
    Algorithm(Algorithm),
    /// This algorithm with the rack of each rank.
    InRacks(Algorithm, Vec<u32>),
    /// A schedule for the group's number of members, with its root.
    Schedule(Schedule),
}

impl Scheduling {
    /// The name of [`Scheduling::Fastest`].
    pub const FASTEST: &str = "fastest";

    /// Returns the same with the rack of each rank; not of effect on a [`Schedule`].
    #[must_use]
    pub fn in_racks(self, racks: Vec<u32>) -> Self {
        match self {
            Self::Fastest | Self::FastestInRacks(_) => Self::FastestInRacks(racks),
            Self::Algorithm(algorithm) | Self::InRacks(algorithm, _) => {
                Self::InRacks(algorithm, racks)
            }
            given @ Self::Schedule(_) => given,
        }
    }

    /// Returns the algorithm, unless the root takes the fastest.
    pub fn algorithm(&self) -> Option<Algorithm> {
        match self {
            Self::Fastest | Self::FastestInRacks(_) => None,
            Self::Algorithm(algorithm) | Self::InRacks(algorithm, _) => Some(*algorithm),
            Self::Schedule(schedule) => Some(schedule.algorithm()),
        }
    }

    /// Returns the rack of each rank; empty if nothing was said of racks.
    pub fn racks(&self) -> &[u32] {
        match self {
            Self::FastestInRacks(racks) | Self::InRacks(_, racks) => racks,
            Self::Fastest | Self::Algorithm(_) | Self::Schedule(_) => &[],
        }
    }

    /// Returns this algorithm with these racks, where the fastest was to be taken; otherwise what it was.
    pub(crate) fn with_choice(self, algorithm: Algorithm) -> Self {
        match self {
            Self::Fastest => Self::Algorithm(algorithm),
            Self::FastestInRacks(racks) => Self::InRacks(algorithm, racks),
            explicit => explicit,
        }
    }
}

/// The name of an algorithm, or `fastest`.
impl FromStr for Scheduling {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if name == Self::FASTEST {
            return Ok(Self::Fastest);
        }
        name.parse().map(Self::Algorithm).map_err(|_| {
            let names = Algorithm::ALL.map(Algorithm::name).join(", ");
            Error::setting(
                "algorithm",
                format!("{name:?}"),
                format!("{} or {names}", Self::FASTEST),
            )
        })
    }
}

impl From<Algorithm> for Scheduling {
    fn from(algorithm: Algorithm) -> Self {
        Self::Algorithm(algorithm)
    }
}

impl From<Schedule> for Scheduling {
    fn from(schedule: Schedule) -> Self {
        Self::Schedule(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_algorithms_and_fastest() {
        assert!(matches!("fastest".parse(), Ok(Scheduling::Fastest)));
        for algorithm in Algorithm::ALL {
            let named: Scheduling = algorithm.name().parse().unwrap();
            assert_eq!(named.algorithm(), Some(algorithm));
            let racks = vec![0, 1];
            assert_eq!(named.in_racks(racks.clone()).racks(), racks);
        }
        let error = "slowest".parse::<Scheduling>().unwrap_err().to_string();
        assert!(error.contains("fastest") && error.contains("circulant"), "{error}");
    }
}
