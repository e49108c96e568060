//! Figure 4: one client, three replicas.

use serde::Serialize;

use super::{
    gbit_per_s,
    load::ClosedLoop,
    mean_us,
    testbed::{hosts, testbed},
};
use crate::{Config, Network, NoGroup, Pattern};

/// What is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct SingleSettings {
    /// The network.
    pub config: Config,
    /// Lengths of requests.
    pub request_bytes: Vec<u32>,
    /// Requests that are on their way at once.
    pub depth: usize,
    /// Requests that are measured, after a tenth as many.
    pub requests: usize,
}

impl Default for SingleSettings {
    /// The paper's (section VII-B): 128 B to 1 MiB, 8 at once.
    fn default() -> Self {
        let request_bytes = (7..=20).map(|power| 1 << power).collect();
        Self { config: Config::default(), request_bytes, depth: 8, requests: 400 }
    }
}

/// One way of replication with one length.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SingleRow {
    /// The way of replication.
    pub pattern: Pattern,
    /// Length of a request.
    pub request_bytes: u32,
    /// Mean time from the post to the completion of a request.
    pub latency_us: f64,
    /// What the sender's link carries, with all headers.
    pub sender_gbit_per_s: f64,
    /// Requests x length.
    pub throughput_gbit_per_s: f64,
    /// Bytes that the sender's link carries / bytes of requests.
    pub sent_per_byte: f64,
}

/// A1 replicates to D1 and A2.
///
/// Errors: the switches do not serve the group.
pub fn single_client(settings: &SingleSettings) -> Result<Vec<SingleRow>, NoGroup> {
    let mut rows = Vec::new();
    for &request_bytes in &settings.request_bytes {
        for pattern in Pattern::ALL {
            rows.push(measure(settings, pattern, request_bytes)?);
        }
    }
    Ok(rows)
}

fn measure(
    settings: &SingleSettings,
    pattern: Pattern,
    request_bytes: u32,
) -> Result<SingleRow, NoGroup> {
    let mut network = Network::new(testbed(), settings.config);
    let [from, d1, a2] = hosts(network.topology(), ["A1", "D1", "A2"]);
    let switch = network.topology().neighbours(from)[0];
    let mut load = ClosedLoop::new(&mut network, pattern, from, &[d1, a2], request_bytes)?;
    load.start(&mut network, settings.depth);
    let warm = settings.requests / 10;
    let mut latencies_ps = Vec::new();
    let mut begun = (0, 0);
    while latencies_ps.len() < warm + settings.requests
        && let Some(notice) = network.next(u64::MAX)
    {
        let Some(latency_ps) = load.handle(&mut network, notice) else { continue };
        latencies_ps.push(latency_ps);
        if latencies_ps.len() == warm {
            begun = (network.now_ps(), network.carried(from, switch).bytes);
        }
    }
    let measured = &latencies_ps[warm..];
    let ps = network.now_ps() - begun.0;
    let sent_bytes = network.carried(from, switch).bytes - begun.1;
    let done_bytes = measured.len() as u64 * u64::from(request_bytes);
    Ok(SingleRow {
        pattern,
        request_bytes,
        latency_us: mean_us(measured),
        sender_gbit_per_s: gbit_per_s(sent_bytes, ps),
        throughput_gbit_per_s: gbit_per_s(done_bytes, ps),
        sent_per_byte: sent_bytes as f64 / done_bytes as f64,
    })
}
