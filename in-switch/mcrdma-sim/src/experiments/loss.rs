//! Figure 7: packets are lost, on the long path as in the paper, on the short one, or on both.

use serde::Serialize;

use super::{
    gbit_per_s,
    load::ClosedLoop,
    mean_us, quantile,
    testbed::{hosts, testbed},
};
use crate::{Config, Network, NoGroup, PS_PER_S, Pattern};

/// The members on whose links packets are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lossy {
    /// A2, whose answers come last.
    Far,
    /// B1, whose answers come first.
    Near,
    /// Both, each with the same probability.
    Both,
}

impl Lossy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Far, Self::Near, Self::Both];

    /// As in commands and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Far => "far",
            Self::Near => "near",
            Self::Both => "both",
        }
    }
}

/// What is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct LossSettings {
    /// The network.
    pub config: Config,
    /// Where packets are lost.
    pub lossy: Lossy,
    /// How probable it is there that a packet is lost.
    pub loss: Vec<f64>,
    /// Length of a request.
    pub request_bytes: u32,
    /// Requests that are on their way at once.
    pub depth: usize,
    /// For how long it is measured, in virtual time.
    pub duration_ms: u64,
}

impl Default for LossSettings {
    /// The paper's rates of loss (section VII-D). It does not give lengths: here 64 KiB, 8 at once.
    fn default() -> Self {
        let loss = vec![0.0, 1.0 / 16384.0, 1.0 / 4096.0, 1.0 / 1024.0];
        let config = Config::default();
        Self { config, lossy: Lossy::Far, loss, request_bytes: 64 << 10, depth: 8, duration_ms: 50 }
    }
}

/// One way of replication with one rate of loss.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LossRow {
    /// The way of replication.
    pub pattern: Pattern,
    /// How probable a loss is.
    pub loss: f64,
    /// Requests x length.
    pub throughput_gbit_per_s: f64,
    /// Mean time of a request.
    pub latency_us: f64,
    /// Of a hundred requests, 99 took no longer.
    pub latency_99_us: f64,
    /// Packets that were lost.
    pub lost: u64,
    /// Packets that were sent more than once.
    pub repeated: u64,
}

/// A1 replicates to B1, which is near, and A2, which is far.
///
/// Errors: the switches do not serve the group.
pub fn loss(settings: &LossSettings) -> Result<Vec<LossRow>, NoGroup> {
    let mut rows = Vec::new();
    for &loss in &settings.loss {
        for pattern in Pattern::ALL {
            rows.push(measure(settings, pattern, loss)?);
        }
    }
    Ok(rows)
}

fn measure(settings: &LossSettings, pattern: Pattern, loss: f64) -> Result<LossRow, NoGroup> {
    let mut network = Network::new(testbed(), settings.config);
    let [from, b1, a2] = hosts(network.topology(), ["A1", "B1", "A2"]);
    let members = match settings.lossy {
        Lossy::Far => vec![a2],
        Lossy::Near => vec![b1],
        Lossy::Both => vec![b1, a2],
    };
    let links: Vec<_> =
        members.iter().map(|&host| (network.topology().neighbours(host)[0], host)).collect();
    for &(switch, host) in &links {
        network.lose(switch, host, loss);
    }
    let mut load = ClosedLoop::new(&mut network, pattern, from, &[b1, a2], settings.request_bytes)?;
    load.start(&mut network, settings.depth);
    let end_ps = settings.duration_ms * PS_PER_S / 1000;
    let mut latencies_ps = Vec::new();
    while let Some(notice) = network.next(end_ps) {
        latencies_ps.extend(load.handle(&mut network, notice));
    }
    let done_bytes = latencies_ps.len() as u64 * u64::from(settings.request_bytes);
    let pairs = load.replicator.forward();
    Ok(LossRow {
        pattern,
        loss,
        throughput_gbit_per_s: gbit_per_s(done_bytes, end_ps),
        latency_us: mean_us(&latencies_ps),
        lost: links.iter().map(|&(switch, host)| network.carried(switch, host).lost).sum(),
        repeated: pairs.iter().map(|&pair| network.transferred(pair).repeated).sum(),
        latency_99_us: quantile(latencies_ps, 0.99) as f64 / 1e6,
    })
}
