//! The algorithms, with their names and codes.

use core::{fmt, str::FromStr};

/// How blocks travel from the root to all other members.
///
/// `n` members, `k` blocks; steps count one block time each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The root sends the whole message to one member after another: `k(n-1)` steps (DSN section 4.3).
    Sequential,
    /// Each member relays to the next one in rank order: `k+n-2` steps (DSN section 4.3).
    Chain,
    /// Members relay whole messages along a binomial tree: `k*ceil(log2 n)` steps (DSN section 4.3 and figure 3, left).
    BinomialTree,
    /// Blocks pipelined over a hypercube: `k-1+ceil(log2 n)` steps (DSN section 4.4).
    BinomialPipeline,
    /// Blocks pipelined over a circulant graph, in which all members play the same role: `k-1+ceil(log2 n)` steps (Träff).
    Circulant,
    /// A chain of rack leaders with a binomial pipeline inside each rack (RDMC preprints, "Hybrid Algorithms").
    ChainOfRacks,
    /// A binomial pipeline of rack leaders with another inside each rack (DSN section 4.3, "Hybrid Algorithms").
    NestedPipelines,
    /// The root sends every block to every member in turn, for groups whose switches copy packets (MC-RDMA): `k(n-1)` steps,
    /// but only `k` block times on the root's link, since all copies of a block are one transmission.
    InSwitch,
    /// A chain of racks. Each rack is a circulant whose free sends go to the next rack: about
    /// `k + (racks - 1)(ceil(log2 m) + 1) + ceil(log2 m)` steps with `m` members in each rack.
    RacksChain,
    /// A circulant of racks. Each rack is a circulant whose free sends go to other racks: about
    /// `k + ceil(log2 racks)(ceil(log2 m) + 1) + ceil(log2 m)` steps.
    RacksPipeline,
}

impl Algorithm {
    /// Every algorithm, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Sequential,
        Self::Chain,
        Self::BinomialTree,
        Self::BinomialPipeline,
        Self::Circulant,
        Self::ChainOfRacks,
        Self::NestedPipelines,
        Self::InSwitch,
        Self::RacksChain,
        Self::RacksPipeline,
    ];

    /// The algorithms that need only links between members: all except [`Self::InSwitch`].
    pub const RELAYING: [Self; 9] = [
        Self::Sequential,
        Self::Chain,
        Self::BinomialTree,
        Self::BinomialPipeline,
        Self::Circulant,
        Self::ChainOfRacks,
        Self::NestedPipelines,
        Self::RacksChain,
        Self::RacksPipeline,
    ];

    /// Returns the number that identifies this algorithm in the protocol: 1 to 10, never 0, never
    /// reused.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Sequential => 1,
            Self::Chain => 2,
            Self::BinomialTree => 3,
            Self::BinomialPipeline => 4,
            Self::Circulant => 5,
            Self::ChainOfRacks => 6,
            Self::NestedPipelines => 7,
            Self::InSwitch => 8,
            Self::RacksChain => 9,
            Self::RacksPipeline => 10,
        }
    }

    /// Returns the algorithm with this [`code`](Self::code), or `None` if no algorithm has this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.code() == code)
    }

    /// Returns the name in kebab case, as it is displayed and parsed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Chain => "chain",
            Self::BinomialTree => "binomial-tree",
            Self::BinomialPipeline => "binomial-pipeline",
            Self::Circulant => "circulant",
            Self::ChainOfRacks => "chain-of-racks",
            Self::NestedPipelines => "nested-pipelines",
            Self::InSwitch => "in-switch",
            Self::RacksChain => "racks-chain",
            Self::RacksPipeline => "racks-pipeline",
        }
    }

    /// Returns whether the schedule depends on the racks of the members and has to be
    /// built by [`Schedule::with_racks`](crate::Schedule::with_racks).
    #[must_use]
    pub const fn needs_racks(self) -> bool {
        matches!(
            self,
            Self::ChainOfRacks | Self::NestedPipelines | Self::RacksChain | Self::RacksPipeline
        )
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or(UnknownAlgorithm)
    }
}

/// The error for an unknown name of an [`Algorithm`]; displayed with the list of valid names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownAlgorithm;

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown algorithm; choose one of")?;
        for (i, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            write!(f, "{} {algorithm}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownAlgorithm {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_and_codes_round_trip() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert_eq!(Algorithm::from_code(algorithm.code()), Some(algorithm));
        }
        assert_eq!((0..=u8::MAX).filter_map(Algorithm::from_code).count(), Algorithm::ALL.len());
        assert_eq!(Algorithm::from_code(0), None);
    }

    #[test]
    fn all_algorithms_but_in_switch_relay() {
        let relaying = Algorithm::ALL.into_iter().filter(|one| *one != Algorithm::InSwitch);
        assert!(relaying.eq(Algorithm::RELAYING));
    }

    #[test]
    fn an_unknown_name_lists_the_valid_ones() {
        let message = "Chain".parse::<Algorithm>().unwrap_err().to_string();
        for algorithm in Algorithm::ALL {
            assert!(message.contains(algorithm.name()), "{message}");
        }
    }
}
