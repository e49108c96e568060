//! How a group gets its schedule.

use std::str::FromStr;

use schedule::{Algorithm, Schedule};

use crate::Error;

/// How a group gets its schedule.
///
/// # Examples
/// ```
/// use rdmc::{Algorithm, Scheduling};
///
/// assert!(matches!(Scheduling::default(), Scheduling::Auto));
/// // The same for members in two racks; and always along a chain.
/// let _ = Scheduling::AutoInRacks(vec![0, 0, 1, 1]);
/// let _ = Scheduling::from(Algorithm::Chain);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Scheduling {
    /// The root chooses the fastest algorithm by the cost model ([`plan::choice`]); the others learn the choice.
    #[default]
    Auto,
    /// As [`Scheduling::Auto`], with the rack of each rank: the choice includes algorithms for racks. Rack numbers are
    /// arbitrary, and the same at all members.
    AutoInRacks(Vec<u32>),
    /// This algorithm, which needs no racks ([`Algorithm::needs_racks`]).
    Algorithm(Algorithm),
    /// This algorithm with the rack of each rank.
    InRacks(Algorithm, Vec<u32>),
    /// A schedule for the group's number of members, with its root.
    Schedule(Schedule),
}

impl Scheduling {
    /// The name of [`Scheduling::Auto`].
    pub const AUTO: &str = "auto";

    /// Returns the same scheduling with the rack of each rank; has no effect on a [`Schedule`].
    #[must_use]
    pub fn in_racks(self, racks: Vec<u32>) -> Self {
        match self {
            Self::Auto | Self::AutoInRacks(_) => Self::AutoInRacks(racks),
            Self::Algorithm(algorithm) | Self::InRacks(algorithm, _) => {
                Self::InRacks(algorithm, racks)
            }
            given @ Self::Schedule(_) => given,
        }
    }

    /// Returns the algorithm, unless the root chooses it.
    pub fn algorithm(&self) -> Option<Algorithm> {
        match self {
            Self::Auto | Self::AutoInRacks(_) => None,
            Self::Algorithm(algorithm) | Self::InRacks(algorithm, _) => Some(*algorithm),
            Self::Schedule(schedule) => Some(schedule.algorithm()),
        }
    }

    /// Returns the rack of each rank; empty if no racks were given.
    pub fn racks(&self) -> &[u32] {
        match self {
            Self::AutoInRacks(racks) | Self::InRacks(_, racks) => racks,
            Self::Auto | Self::Algorithm(_) | Self::Schedule(_) => &[],
        }
    }

    /// Returns this algorithm with the racks if the algorithm was left open; otherwise `self`.
    pub(crate) fn with_choice(self, algorithm: Algorithm) -> Self {
        match self {
            Self::Auto => Self::Algorithm(algorithm),
            Self::AutoInRacks(racks) => Self::InRacks(algorithm, racks),
            explicit => explicit,
        }
    }
}

/// Parses the name of an algorithm, or `auto`.
impl FromStr for Scheduling {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if name == Self::AUTO {
            return Ok(Self::Auto);
        }
        name.parse().map(Self::Algorithm).map_err(|_| {
            let names = Algorithm::ALL.map(Algorithm::name).join(", ");
            Error::setting("algorithm", format!("{name:?}"), format!("{} or {names}", Self::AUTO))
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
    fn names_are_those_of_algorithms_and_auto() {
        assert!(matches!("auto".parse(), Ok(Scheduling::Auto)));
        for algorithm in Algorithm::ALL {
            let named: Scheduling = algorithm.name().parse().unwrap();
            assert_eq!(named.algorithm(), Some(algorithm));
            let racks = vec![0, 1];
            assert_eq!(named.in_racks(racks.clone()).racks(), racks);
        }
        let error = "slowest".parse::<Scheduling>().unwrap_err().to_string();
        assert!(error.contains("auto") && error.contains("circulant"), "{error}");
    }
}
