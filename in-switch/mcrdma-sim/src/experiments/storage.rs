//! Figure 8: a storage system that keeps three replicas.

use std::collections::HashMap;

use mcrdma::plan::{Device, Node, Topology};
use roce::rc::RequesterConfig;
use serde::Serialize;

use super::{fat_tree_config, mean_us, quantile};
use crate::{
    Config, Distribution, Network, NoGroup, Notice, PS_PER_S, Pair, Pattern, Poisson, Replicator,
    random::Random,
};

/// What is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct StorageSettings {
    /// The network; its links are the paper's.
    pub config: Config,
    /// How long messages are.
    pub distribution: Distribution,
    /// Whether the switches above the lowest can copy.
    pub above: Device,
    /// Ways of replication.
    pub patterns: Vec<Pattern>,
    /// Bytes that each client asks to read and to write / what its link carries in that time.
    pub loads: Vec<f64>,
    /// Clients ask for this long, in virtual time. The first fifth is not measured.
    pub duration_ms: u64,
}

impl StorageSettings {
    /// The fat tree of section VII-E, all of whose switches copy. Packets have up to 4 KiB, to
    /// simulate fewer of them.
    #[must_use]
    pub fn new(distribution: Distribution) -> Self {
        let config = Config::default();
        let requester = RequesterConfig { mtu_bytes: 4096, ..config.requester };
        let duration_ms = match distribution {
            Distribution::AlibabaStorage => 5,
            // Messages of up to 30 MB: fewer of them in the same time.
            Distribution::WebSearch => 20,
        };
        Self {
            config: Config { requester, ..config },
            distribution,
            above: Device::Copies,
            patterns: Pattern::ALL.to_vec(),
            loads: vec![0.2, 0.4, 0.6],
            duration_ms,
        }
    }
}

/// One way of replication at one load.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct StorageRow {
    /// How long messages were.
    pub distribution: Distribution,
    /// How.
    pub pattern: Pattern,
    /// Whether the switches above the lowest could copy.
    pub full_deployment: bool,
    /// Requested bytes / what clients' links carry.
    pub load: f64,
    /// Mean time of a read, from its request to the last byte.
    pub read_us: f64,
    /// Of a hundred reads, 99 took no longer.
    pub read_99_us: f64,
    /// Mean time of a write, from its first byte until its acknowledgement by all three.
    pub write_us: f64,
    /// Reads that were measured.
    pub reads: usize,
}

/// 27 clients in three pods of a fat tree, and 27 hosts in the other three, each of which keeps
/// data, with a copy in each of the two other pods. So every host has copies of two others' data: by
/// chance some would have those of five, and the waits there would be all that is seen.
///
/// Errors: the switches do not serve the groups.
pub fn storage(settings: &StorageSettings) -> Result<Vec<StorageRow>, NoGroup> {
    let mut rows = Vec::new();
    for &load in &settings.loads {
        for &pattern in &settings.patterns {
            let mut run = Run::new(settings, pattern, load)?;
            run.all();
            rows.push(StorageRow {
                distribution: settings.distribution,
                pattern,
                full_deployment: settings.above == Device::Copies,
                load,
                read_us: mean_us(&run.reads_ps),
                write_us: mean_us(&run.writes_ps),
                reads: run.reads_ps.len(),
                read_99_us: quantile(run.reads_ps, 0.99) as f64 / 1e6,
            });
        }
    }
    Ok(rows)
}

const CLIENTS: usize = 27;
const STORES: usize = 27;
const STORES_OF_POD: usize = 9;
const ACCESS_BITS_PER_S: f64 = 1e11;
/// A request to read, and the answer to a write.
const WORD_BYTES: u32 = 64;

/// A request of a client. Requests are named by their index.
#[derive(Clone, Copy)]
struct Request {
    client: usize,
    /// The server of the request.
    store: usize,
    bytes: u32,
    is_read: bool,
    begun_ps: u64,
}

/// What a pair is for.
#[derive(Clone, Copy)]
enum Role {
    ToStore,
    ToClient,
    Replicates { store: usize },
}

struct Run {
    network: Network,
    /// From each client to each store, and back.
    to_store: Vec<Pair>,
    to_client: Vec<Pair>,
    /// By store: whom it replicates to, with the stores that have a copy.
    groups: Vec<(Replicator, [usize; 3])>,
    roles: HashMap<Pair, Role>,
    requests: Vec<Request>,
    random: Random,
    distribution: Distribution,
    gaps: Poisson,
    ends_ps: u64,
    reads_ps: Vec<u64>,
    writes_ps: Vec<u64>,
}

impl Run {
    fn new(settings: &StorageSettings, pattern: Pattern, load: f64) -> Result<Self, NoGroup> {
        let topology = Topology::fat_tree(6, 3, settings.above);
        let hosts: Vec<Node> =
            (0..topology.len()).filter(|&node| topology.device(node) == Device::Host).collect();
        let config = fat_tree_config(settings.config);
        let mut network = Network::new(topology, config);
        let (clients, stores) = hosts.split_at(CLIENTS);
        let mut roles = HashMap::new();
        let (mut to_store, mut to_client, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for &client in clients {
            for &store in stores {
                to_store.push(network.connect(client, store));
                to_client.push(network.connect(store, client));
            }
        }
        roles.extend(to_store.iter().map(|&pair| (pair, Role::ToStore)));
        roles.extend(to_client.iter().map(|&pair| (pair, Role::ToClient)));
        let random = Random::new(config.seed);
        for store in 0..STORES {
            let members = [1, 2].map(|pods| (store + pods * STORES_OF_POD) % STORES);
            let nodes = members.map(|member| stores[member]);
            let group = Replicator::new(&mut network, pattern, stores[store], &nodes)?;
            roles.extend(group.pairs().map(|pair| (pair, Role::Replicates { store })));
            groups.push((group, [store, members[0], members[1]]));
        }
        let per_s = load * ACCESS_BITS_PER_S / 8.0 / settings.distribution.mean_bytes();
        Ok(Self {
            network,
            to_store,
            to_client,
            groups,
            roles,
            requests: Vec::new(),
            random,
            distribution: settings.distribution,
            gaps: Poisson::new(per_s),
            ends_ps: settings.duration_ms * PS_PER_S / 1000,
            reads_ps: Vec::new(),
            writes_ps: Vec::new(),
        })
    }

    /// Runs until all requests have been served.
    fn all(&mut self) {
        (0..CLIENTS).for_each(|client| self.ask_later(client));
        while let Some(notice) = self.network.next(u64::MAX) {
            match notice {
                Notice::Timer { token } => self.ask(token as usize),
                Notice::Completed { pair, .. } | Notice::Arrived { pair, .. } => {
                    self.handle(self.roles[&pair], notice);
                }
            }
        }
    }

    fn ask_later(&mut self, client: usize) {
        let at_ps = self.network.now_ps() + self.gaps.gap_ps(&mut self.random);
        if at_ps < self.ends_ps {
            self.network.at(at_ps, client as u64);
        }
    }

    fn ask(&mut self, client: usize) {
        let is_read = self.random.part() < 0.5;
        let group = self.random.below(STORES);
        let replica = if is_read { self.random.below(3) } else { 0 };
        let store = self.groups[group].1[replica];
        let bytes = self.distribution.bytes(&mut self.random);
        let token = self.requests.len() as u64;
        let begun_ps = self.network.now_ps();
        self.requests.push(Request { client, store, bytes, is_read, begun_ps });
        let sent_bytes = if is_read { WORD_BYTES } else { bytes };
        self.network.post(self.to_store[client * STORES + store], sent_bytes, token);
        self.ask_later(client);
    }

    fn handle(&mut self, role: Role, notice: Notice) {
        match (role, notice) {
            (Role::ToStore, Notice::Arrived { token, .. }) => {
                let request = self.requests[token as usize];
                if request.is_read {
                    self.answer(token, request.bytes);
                } else {
                    let group = &mut self.groups[request.store].0;
                    group.post(&mut self.network, request.bytes, token);
                }
            }
            (Role::ToClient, Notice::Arrived { token, .. }) => self.answered(token),
            (Role::Replicates { store }, _) => {
                let group = &mut self.groups[store].0;
                if let Some((token, _)) = group.handle(&mut self.network, notice) {
                    self.answer(token, WORD_BYTES);
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, token: u64, bytes: u32) {
        let Request { client, store, .. } = self.requests[token as usize];
        self.network.post(self.to_client[client * STORES + store], bytes, token);
    }

    fn answered(&mut self, token: u64) {
        let Request { is_read, begun_ps, .. } = self.requests[token as usize];
        if begun_ps < self.ends_ps / 5 {
            return;
        }
        let times = if is_read { &mut self.reads_ps } else { &mut self.writes_ps };
        times.push(self.network.now_ps() - begun_ps);
    }
}
