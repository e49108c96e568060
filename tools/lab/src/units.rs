//! Rates of links.

use std::{fmt, str::FromStr};

use plan::size;
use serde::{Deserialize, Serialize};

const RATE_UNITS: [(&str, u64); 4] =
    [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

/// A rate of TCP payload: at least 100 kbit/s, at most 100 Gbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rate {
    bits_per_s: u64,
}

impl Rate {
    const MIN: Self = Self { bits_per_s: 100_000 };
    pub(crate) const MAX: Self = Self { bits_per_s: 100_000_000_000 };

    /// A rate in Mbit/s, clamped to the range of rates.
    pub fn from_mbit(mbit: u64) -> Self {
        Self { bits_per_s: mbit.saturating_mul(1_000_000) }.clamp(Self::MIN, Self::MAX)
    }

    /// In bits per second.
    pub fn bits_per_s(self) -> u64 {
        self.bits_per_s
    }

    /// In Mbit/s.
    pub fn mbit(self) -> f64 {
        self.bits_per_s as f64 / 1e6
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Parses `250mbit` or `1.5gbit`. Errors: no number, unknown unit, out of range.
    fn from_str(text: &str) -> Result<Self, String> {
        let rate = Self { bits_per_s: size::parse_rate(text)? };
        if (Self::MIN..=Self::MAX).contains(&rate) {
            Ok(rate)
        } else {
            Err(format!("{text} is out of range: a rate is {} to {}", Self::MIN, Self::MAX))
        }
    }
}

impl fmt::Display for Rate {
    /// In the largest unit that shows it exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&&(_, factor): &&(&str, u64)| self.bits_per_s.is_multiple_of(factor);
        let (unit, factor) = RATE_UNITS.iter().find(fits).unwrap_or(&("bit", 1));
        write!(f, "{}{unit}", self.bits_per_s / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_shown_with_their_unit() {
        for (text, mbit) in [("250mbit", 250.0), ("1gbit", 1_000.0), ("1500Kbit", 1.5)] {
            let rate: Rate = text.parse().unwrap();
            assert!((rate.mbit() - mbit).abs() < 1e-9, "{text}");
            assert_eq!(rate.to_string(), text.to_lowercase());
        }
        assert_eq!("1.5gbit".parse::<Rate>().unwrap().to_string(), "1500mbit");
        assert_eq!("2000mbit".parse::<Rate>().unwrap().to_string(), "2gbit");
        assert_eq!(Rate::from_mbit(u64::MAX), Rate::MAX);
    }

    #[test]
    fn invalid_rates_are_refused() {
        for text in ["", "250", "mbit", "-1mbit", "1tbit", "0mbit", "99kbit", "101gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert!("100kbit".parse::<Rate>().is_ok() && "100gbit".parse::<Rate>().is_ok());
        assert!(format!("{}mbit", u64::MAX).parse::<Rate>().is_err());
    }
}
