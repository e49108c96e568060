//! The limit of the demo's members.

use std::{str::FromStr, time::Duration};

use plan::size;

/// The share of this machine's rate at which processors and memory are not the bottleneck.
const SHARE: f64 = 1.0 / 3.0;
/// The minimum limit, in bits per second.
const LEAST: u64 = 1_000_000;

/// A requested limit of each member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// A share of this machine's rate, which is measured first.
    Auto,
    /// No limit.
    None,
    /// In bits per second.
    Rate(u64),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            rate => match size::parse_rate(rate)? {
                bits if bits < LEAST => Err("must be at least 1mbit".into()),
                bits => Ok(Self::Rate(bits)),
            },
        }
    }
}

/// A limit in bits per second for a machine that has replicated this many bytes to all receivers in
/// this time: the largest of 1, 2, 5, 10, 20, 50, ... Mbit/s that leaves its processors idle for most of the time.
pub fn of_machine(bytes: u64, time: Duration) -> u64 {
    let target = bytes as f64 * 8.0 / time.as_secs_f64().max(1e-6) * SHARE;
    let decades = (0..6).map(|power| LEAST * 10_u64.pow(power));
    let rates = decades.flat_map(|decade| [decade, 2 * decade, 5 * decade]);
    rates.take_while(|&rate| rate as f64 <= target).last().unwrap_or(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_round_and_below_a_third() {
        let of = |bits: u64| of_machine(bits / 8, Duration::from_secs(1));
        assert_eq!(of(1_600_000_000), 500_000_000);
        assert_eq!(of(1_400_000_000), 200_000_000);
        assert_eq!(of(100), LEAST);
        assert_eq!(of_machine(u64::MAX, Duration::ZERO), 500_000_000_000);
    }

    #[test]
    fn limits_are_parsed() {
        assert_eq!("auto".parse(), Ok(Limit::Auto));
        assert_eq!("none".parse(), Ok(Limit::None));
        assert_eq!("1mbit".parse(), Ok(Limit::Rate(LEAST)));
        assert!("999kbit".parse::<Limit>().is_err() && "fast".parse::<Limit>().is_err());
    }
}
