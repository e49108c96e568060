//! The figures of the MC-RDMA paper's section VII, simulated. Each function returns the rows of one,
//! and takes some seconds to a minute of one processor with its settings' defaults.

mod congestion;
mod load;
mod loss;
mod single;
mod storage;
mod testbed;
mod training;

pub use congestion::{
    FairnessRow, FairnessSettings, NotificationsRow, NotificationsSettings, ReactionRow, Rule,
    Tightened, fairness, notifications, reaction,
};
pub use loss::{LossRow, LossSettings, Lossy, loss};
pub use single::{SingleRow, SingleSettings, single_client};
pub use storage::{Layout, StorageRow, StorageSettings, Utilisation, storage};
pub use training::{TrainingRow, TrainingSettings, training};

use crate::{Config, LinkConfig};

/// The fat tree of the paper's section VII-E and VII-F: all links have 100 Gbit/s and 500 ns.
fn fat_tree_config(config: Config) -> Config {
    let link = LinkConfig { bits_per_s: 100_000_000_000, delay_ns: 500 };
    Config { host_link: link, switch_link: link, ..config }
}

/// A quantile; 0 without values.
fn quantile(mut values: Vec<u64>, part: f64) -> u64 {
    values.sort_unstable();
    let at = (values.len() as f64 * part).ceil() as usize;
    values.get(at.max(1) - 1).copied().unwrap_or(0)
}

/// In microseconds.
fn mean_us(values_ps: &[u64]) -> f64 {
    values_ps.iter().sum::<u64>() as f64 / values_ps.len().max(1) as f64 / 1e6
}

/// In Gbit/s.
fn gbit_per_s(bytes: u64, ps: u64) -> f64 {
    bytes as f64 * 8000.0 / ps.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        assert_eq!(quantile((1..=100).collect(), 0.99), 99);
        assert_eq!((quantile(vec![7], 0.99), quantile(vec![], 0.5)), (7, 0));
        assert_eq!(gbit_per_s(1250, 100_000), 100.0);
    }
}
