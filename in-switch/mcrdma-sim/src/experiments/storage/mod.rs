//! Figure 8: a storage system that keeps three replicas.
//!
//! The paper's answer, reads about 30 % faster, depends on things that it leaves open: what its load is,
//! which DCQCN, how many hosts share a rack's uplinks, how many queue pairs replicate. This is settled when each of
//! them is a setting, runs are long enough that writes do not grow over the time measured, several seeds give an
//! interval of confidence, reads and writes and links' utilisation are reported, and the page names the
//! settings with which reads gain as much as in the paper.

mod layout;
mod run;
mod settings;

use serde::Serialize;

use self::run::Run;
use super::{mean_us, quantile};
use crate::{NoGroup, Pattern};

pub use layout::{Layout, Utilisation};
pub use settings::StorageSettings;

/// One way of replication at one load.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct StorageRow {
    /// The way of replication.
    pub pattern: Pattern,
    /// Requested bytes / what the links above clients' lowest switches carry.
    pub load: f64,
    /// Mean time of a read, from its request to the last byte.
    pub read_us: f64,
    /// Of a hundred reads, 99 took no longer.
    pub read_99_us: f64,
    /// Mean time of a write, from its first byte until its acknowledgement by all three.
    pub write_us: f64,
    /// Mean time of the writes that began in the later half / of those that began in the earlier.
    pub write_drift: f64,
    /// Reads that were measured.
    pub reads: usize,
    /// Writes that were measured.
    pub writes: usize,
    /// Of the stores' links.
    pub links: Utilisation,
}

/// 27 clients in three pods, and 27 hosts in the other three, each of which keeps data, with a copy in each of the
/// two other pods. Every host has copies of as many others' data: by chance some would have those of
/// five, and the waits there would be all that is seen.
///
/// The same seed asks for the same at the same times, whichever way is replicated.
///
/// Errors: the switches do not serve the groups.
pub fn storage(settings: &StorageSettings) -> Result<Vec<StorageRow>, NoGroup> {
    let mut rows = Vec::new();
    for &load in &settings.loads {
        for &pattern in &settings.patterns {
            let mut run = Run::new(settings, pattern, load)?;
            run.all();
            rows.push(row(pattern, load, run));
        }
    }
    Ok(rows)
}

fn row(pattern: Pattern, load: f64, run: Run) -> StorageRow {
    let [earlier, later] = &run.writes_ps;
    let writes_ps = [earlier.as_slice(), later].concat();
    StorageRow {
        pattern,
        load,
        read_us: mean_us(&run.reads_ps),
        write_us: mean_us(&writes_ps),
        write_drift: mean_us(later) / mean_us(earlier),
        reads: run.reads_ps.len(),
        writes: writes_ps.len(),
        links: run.utilisation(),
        read_99_us: quantile(run.reads_ps, 0.99) as f64 / 1e6,
    }
}
