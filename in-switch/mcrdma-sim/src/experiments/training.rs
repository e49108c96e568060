//! Figure 9: parameter servers and their workers.

use mcrdma::plan::{Device, Node, Topology};
use serde::Serialize;

use super::fat_tree_config;
use crate::{Config, Network, NoGroup, Notice, Pair, Pattern, Replicator};

/// What is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct TrainingSettings {
    /// The network; its links are the paper's.
    pub config: Config,
    /// Lengths of messages.
    pub message_bytes: Vec<u32>,
    /// Iterations of each server.
    pub iterations: u64,
    /// Rate of links between switches. The paper's, that of hosts, leaves none to spare: where ECMP
    /// chooses the same link for more flows than on average, these take longer.
    pub switch_bits_per_s: u64,
}

impl Default for TrainingSettings {
    /// The paper's messages (section VII-F).
    fn default() -> Self {
        let message_bytes = [1, 4, 8].map(|mb| mb * 1_000_000).to_vec();
        let switch_bits_per_s = 100_000_000_000;
        Self { config: Config::default(), message_bytes, iterations: 3, switch_bits_per_s }
    }
}

/// One way of replication with one length.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TrainingRow {
    /// The way of replication.
    pub pattern: Pattern,
    /// Length of a message.
    pub message_bytes: u32,
    /// Mean time of an iteration: from the first gradient's post until all workers have the model
    /// and the server has all acknowledgements.
    pub iteration_ms: f64,
    /// The part of it until the server has all gradients.
    pub gather_ms: f64,
}

const SERVERS: usize = 5;
const WORKERS: usize = 6;
const PODS: usize = 6;
const HOSTS_OF_POD: usize = 9;

/// Five servers in the first pod of a fat tree, each with six workers in the others: workers send a
/// message each to their server, which then sends one of the same length to all of them.
///
/// Errors: the switches do not serve the groups.
pub fn training(settings: &TrainingSettings) -> Result<Vec<TrainingRow>, NoGroup> {
    let mut rows = Vec::new();
    for &message_bytes in &settings.message_bytes {
        for pattern in Pattern::ALL {
            let mut run = Run::new(settings, pattern, message_bytes)?;
            run.all(settings.iterations);
            let count = (SERVERS as u64 * settings.iterations) as f64;
            rows.push(TrainingRow {
                pattern,
                message_bytes,
                iteration_ms: run.iteration_ps as f64 / count / 1e9,
                gather_ms: run.gather_ps as f64 / count / 1e9,
            });
        }
    }
    Ok(rows)
}

struct Server {
    gradients: Vec<Pair>,
    model: Replicator,
    missing: usize,
    iterations: u64,
    begun_ps: u64,
}

struct Run {
    network: Network,
    servers: Vec<Server>,
    /// Whose each pair is.
    owners: Vec<usize>,
    message_bytes: u32,
    iteration_ps: u64,
    gather_ps: u64,
}

impl Run {
    fn new(
        settings: &TrainingSettings,
        pattern: Pattern,
        message_bytes: u32,
    ) -> Result<Self, NoGroup> {
        let topology = Topology::fat_tree(PODS, HOSTS_OF_POD / 3, Device::Copies);
        let hosts: Vec<Node> =
            (0..topology.len()).filter(|&node| topology.device(node) == Device::Host).collect();
        let mut config = fat_tree_config(settings.config);
        config.switch_link.bits_per_s = settings.switch_bits_per_s;
        let mut network = Network::new(topology, config);
        let (mut servers, mut owners) = (Vec::new(), Vec::new());
        for (server, &host) in hosts[..SERVERS].iter().enumerate() {
            // Each server's workers are spread over the other pods; no two share a host.
            let worker = |index: usize| {
                let at = server * WORKERS + index;
                hosts[HOSTS_OF_POD * (1 + at % (PODS - 1)) + at / (PODS - 1)]
            };
            let workers: Vec<Node> = (0..WORKERS).map(worker).collect();
            let gradients: Vec<Pair> =
                workers.iter().map(|&worker| network.connect(worker, host)).collect();
            let model = Replicator::new(&mut network, pattern, host, &workers)?;
            owners.extend(gradients.iter().copied().chain(model.pairs()).map(|_| server));
            servers.push(Server { gradients, model, missing: 0, iterations: 0, begun_ps: 0 });
        }
        Ok(Self { network, servers, owners, message_bytes, iteration_ps: 0, gather_ps: 0 })
    }

    fn all(&mut self, iterations: u64) {
        (0..self.servers.len()).for_each(|server| self.gather(server));
        while let Some(notice) = self.network.next(u64::MAX) {
            let (Notice::Completed { pair, .. } | Notice::Arrived { pair, .. }) = notice else {
                continue;
            };
            let server = self.owners[pair];
            if self.servers[server].gradients.contains(&pair) {
                if matches!(notice, Notice::Arrived { .. }) {
                    self.gathered(server);
                }
            } else if self.servers[server].model.handle(&mut self.network, notice).is_some() {
                self.iteration_ps += self.network.now_ps() - self.servers[server].begun_ps;
                if self.servers[server].iterations < iterations {
                    self.gather(server);
                }
            }
        }
    }

    fn gather(&mut self, server: usize) {
        let state = &mut self.servers[server];
        (state.begun_ps, state.missing) = (self.network.now_ps(), state.gradients.len());
        state.iterations += 1;
        for &pair in &state.gradients {
            self.network.post(pair, self.message_bytes, state.iterations);
        }
    }

    /// One more gradient has come; the last is answered with the model.
    fn gathered(&mut self, server: usize) {
        let state = &mut self.servers[server];
        state.missing -= 1;
        if state.missing == 0 {
            self.gather_ps += self.network.now_ps() - state.begun_ps;
            state.model.post(&mut self.network, self.message_bytes, state.iterations);
        }
    }
}
