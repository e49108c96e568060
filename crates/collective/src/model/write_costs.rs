//! What the parts of a write cost.

use std::{fmt, str::FromStr};

/// Costs of a network and its hosts (the paper, section 5; and two more). All must be finite and at least 0.
///
/// As text, as [`fmt::Display`] writes and [`FromStr`] reads them: the paper's symbols with microseconds, separated by
/// commas, such as `Tt=0.01,Ts=2`. Those that are left out are [`WriteCosts::PAPER`]'s.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WriteCosts {
    /// Tt: transmission of a byte.
    pub transmit_us_per_byte: f64,
    /// Tc: copying a byte between the caller's memory and registered memory.
    pub copy_us_per_byte: f64,
    /// Ts: starting the DMA of a write, at either end.
    pub dma_start_us: f64,
    /// Tn: the adapter's work on a write, at either end.
    pub adapter_us: f64,
    /// Td: posting a write.
    pub post_us: f64,
    /// Tm: the library's own work on an operation, or on a step of it.
    pub library_us: f64,
    /// Ta: acknowledgement of a block of a broadcast.
    pub acknowledge_us: f64,
    /// To: folding a byte of a contribution.
    pub fold_us_per_byte: f64,
    /// Tw: what a write takes of processors at both ends together, which others that share them have to wait for.
    pub work_us: f64,
    /// Mc: members for each core; they do not share cores up to 1.
    pub members_per_core: f64,
}

impl WriteCosts {
    /// The values of section 6.2, for GigaNet cLAN and hosts of 1 GHz.
    ///
    /// Two have no value there. The acknowledgement is 0: with it 4 B take 9.0 us a hop, and the gains that the paper
    /// predicts for 512 and 1,024 members agree with each other. (Its best block size, 3,073 B, would need more than
    /// 5.5 us.) The fold is 0: the paper calls it much shorter than transmission for long messages, and of few bytes it is
    /// a matter of nanoseconds.
    pub const PAPER: Self = Self {
        transmit_us_per_byte: 0.010,
        copy_us_per_byte: 0.0027,
        dma_start_us: 2.0,
        adapter_us: 1.52,
        post_us: 0.6,
        library_us: 1.3,
        acknowledge_us: 0.0,
        fold_us_per_byte: 0.0,
        work_us: 0.0,
        members_per_core: 1.0,
    };

    // Costs of the kinds of networks, by which teams choose unless they are given others. Those of one machine are adjusted by hand to
    // docs/results/collectives.md, which `./dev bench results collectives` measures again: to the times of 4 B, 64 KiB, 1 MiB and 16 MiB
    // between two members, and of 4 B among 16 members on two cores by trees and by exchange. Between hosts the library's own work is the
    // same, and the rest is assumed: that of a usual network.

    /// TCP between processes of one machine.
    pub const TCP_LOCAL: Self = Self {
        transmit_us_per_byte: 0.0002,
        copy_us_per_byte: 0.000_05,
        dma_start_us: 1.0,
        adapter_us: 1.0,
        post_us: 2.5,
        library_us: 1.5,
        acknowledge_us: 0.0,
        fold_us_per_byte: 0.0002,
        work_us: 15.0,
        members_per_core: 0.0,
    };

    /// TCP between hosts, at 10 Gbit/s.
    pub const TCP: Self = Self {
        transmit_us_per_byte: 0.0008,
        dma_start_us: 4.0,
        adapter_us: 4.0,
        ..Self::TCP_LOCAL
    };

    /// A network device that writes by itself, at 100 Gbit/s.
    pub const DEVICE: Self = Self {
        transmit_us_per_byte: 0.000_08,
        dma_start_us: 0.3,
        adapter_us: 0.3,
        post_us: 0.3,
        ..Self::TCP_LOCAL
    };

    /// Shared memory of one machine. The work on a write is in proportion to TCP's as were the times of 4 B among four members on two
    /// cores.
    pub const SHARED_MEMORY: Self =
        Self { dma_start_us: 0.2, adapter_us: 0.2, post_us: 0.6, work_us: 5.0, ..Self::TCP_LOCAL };

    /// Returns these costs for a network over which an empty write takes `hop_us`: Ts and Tn are what posting and the library
    /// leave of it (section 5.1: `Tm + Td + 2 (Ts + Tn)`), in their ratio here.
    pub fn with_hop_us(self, hop_us: f64) -> Self {
        let ends_us = ((hop_us - self.library_us - self.post_us) / 2.0).max(0.0);
        let sum_us = self.dma_start_us + self.adapter_us;
        let share = if sum_us > 0.0 { self.dma_start_us / sum_us } else { 0.5 };
        let dma_start_us = ends_us * share;
        Self { dma_start_us, adapter_us: ends_us - dma_start_us, ..self }
    }

    /// Returns whether all are finite and at least 0.
    pub fn are_valid(&self) -> bool {
        let mut copy = *self;
        copy.named().into_iter().all(|(_, value)| is_valid(*value))
    }

    /// Returns the values as they are transmitted, in the order of the text.
    pub fn values(&self) -> [f32; Self::COUNT] {
        let mut copy = *self;
        copy.named().map(|(_, value)| *value as f32)
    }

    /// Returns costs of these values, as of [`WriteCosts::values`]; `None` if they are not valid.
    pub fn of_values(values: [f32; Self::COUNT]) -> Option<Self> {
        let mut costs = Self::PAPER;
        for ((_, place), value) in costs.named().into_iter().zip(values) {
            *place = value.into();
        }
        costs.are_valid().then_some(costs)
    }

    /// How many values there are.
    pub const COUNT: usize = 10;

    /// The values with the paper's symbols.
    fn named(&mut self) -> [(&'static str, &mut f64); Self::COUNT] {
        [
            ("Tt", &mut self.transmit_us_per_byte),
            ("Tc", &mut self.copy_us_per_byte),
            ("Ts", &mut self.dma_start_us),
            ("Tn", &mut self.adapter_us),
            ("Td", &mut self.post_us),
            ("Tm", &mut self.library_us),
            ("Ta", &mut self.acknowledge_us),
            ("To", &mut self.fold_us_per_byte),
            ("Tw", &mut self.work_us),
            ("Mc", &mut self.members_per_core),
        ]
    }
}

impl fmt::Display for WriteCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        for (index, (symbol, value)) in copy.named().into_iter().enumerate() {
            write!(f, "{}{symbol}={value}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// A text that is not [`WriteCosts`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidWriteCosts {
    /// A part without a known symbol and `=`.
    #[error(
        "\"{0}\" is none of Tt, Tc, Ts, Tn, Td, Tm, Ta, To, Tw and Mc with a value; use for example Tt=0.01,Ts=2"
    )]
    Unknown(String),
    /// A value that is no number, or negative, or infinite.
    #[error("\"{value}\" is not a time for {symbol}; use microseconds, such as 0.01")]
    Value {
        /// The paper's symbol.
        symbol: &'static str,
        /// What stands in place of a number.
        value: String,
    },
    /// A symbol that occurs twice.
    #[error("{0} is given twice")]
    Twice(&'static str),
}

impl FromStr for WriteCosts {
    type Err = InvalidWriteCosts;

    fn from_str(text: &str) -> Result<Self, InvalidWriteCosts> {
        let mut costs = Self::PAPER;
        let mut given = Vec::new();
        for part in text.split(',') {
            let unknown = || InvalidWriteCosts::Unknown(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(unknown)?;
            let mut named = costs.named().into_iter();
            let (symbol, place) =
                named.find(|(symbol, _)| *symbol == name.trim()).ok_or_else(unknown)?;
            if given.contains(&symbol) {
                return Err(InvalidWriteCosts::Twice(symbol));
            }
            let time = value.trim().parse().ok();
            *place = time
                .filter(|&time| is_valid(time))
                .ok_or_else(|| InvalidWriteCosts::Value { symbol, value: value.to_owned() })?;
            given.push(symbol);
        }
        Ok(costs)
    }
}

/// Zero has one sign, so that equal values have equal bytes.
fn is_valid(value: f64) -> bool {
    value.is_finite() && value.is_sign_positive()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::broadcast_hop_us;

    #[test]
    fn a_measured_hop_is_what_an_empty_write_takes() {
        for costs in [
            WriteCosts::PAPER,
            WriteCosts::TCP,
            WriteCosts { dma_start_us: 0.0, adapter_us: 0.0, ..WriteCosts::PAPER },
        ] {
            for hop_us in [5.0, 60.0, 20_000.0] {
                let measured = costs.with_hop_us(hop_us);
                assert!((broadcast_hop_us(0, 1, &measured) - hop_us).abs() < 1e-6, "{measured}");
                assert!(measured.are_valid());
            }
        }
        // Less than posting alone: nothing is left for the network.
        let least = WriteCosts::PAPER.with_hop_us(0.1);
        assert_eq!((least.dma_start_us, least.adapter_us), (0.0, 0.0));
        let same = WriteCosts::PAPER.with_hop_us(broadcast_hop_us(0, 1, &WriteCosts::PAPER));
        assert!((same.dma_start_us - WriteCosts::PAPER.dma_start_us).abs() < 1e-9);
    }
}
