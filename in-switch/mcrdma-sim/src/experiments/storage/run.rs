//! One way of replication at one load.

use mcrdma::plan::{Device, Node};

use super::{
    layout::{CLIENTS, Links, STORES, Utilisation, members},
    settings::StorageSettings,
};
use crate::{
    Distribution, Network, NoGroup, Notice, PS_PER_S, Pair, Pattern, Poisson, Replicator,
    experiments::fat_tree_config, random::Random,
};

const ACCESS_BITS_PER_S: f64 = 1e11;
/// A request to read, and the answer to a write.
const WORD_BYTES: u32 = 64;
const PS_PER_MS: u64 = PS_PER_S / 1000;
/// Timers after those of clients: it is measured from here on, and until there.
const BEGINS: u64 = CLIENTS as u64;
const ENDS: u64 = BEGINS + 1;

/// A request of a client. Requests are named by their index.
#[derive(Clone, Copy)]
struct Request {
    client: usize,
    /// The server of the request.
    store: usize,
    /// The group that a write goes to.
    group: usize,
    bytes: u32,
    is_read: bool,
    begun_ps: u64,
}

/// What a pair is for.
#[derive(Clone, Copy)]
enum Role {
    ToStore,
    ToClient,
    Replicates { group: usize },
}

pub struct Run {
    network: Network,
    /// From each client to each store, and back.
    to_store: Vec<Pair>,
    to_client: Vec<Pair>,
    /// Those of the first store, of the second, and so on, with the stores that have a copy.
    groups: Vec<(Replicator, [usize; 3])>,
    /// By pair.
    roles: Vec<Role>,
    requests: Vec<Request>,
    random: Random,
    distribution: Distribution,
    gaps: Poisson,
    begins_ps: u64,
    ends_ps: u64,
    pub reads_ps: Vec<u64>,
    /// Of writes that began in the earlier and in the later half.
    pub writes_ps: [Vec<u64>; 2],
    links: Links,
    /// At the begin of the time measured; after its end, in it.
    carried: [f64; 4],
}

impl Run {
    pub fn new(settings: &StorageSettings, pattern: Pattern, load: f64) -> Result<Self, NoGroup> {
        let topology = settings.layout.topology(settings.above);
        let hosts: Vec<Node> =
            (0..topology.len()).filter(|&node| topology.device(node) == Device::Host).collect();
        let config = fat_tree_config(settings.config);
        let (clients, stores) = hosts.split_at(CLIENTS);
        let links = Links::new(&topology, stores);
        let mut network = Network::new(topology, config);
        let (mut to_store, mut to_client, mut roles) = (Vec::new(), Vec::new(), Vec::new());
        for &client in clients {
            for &store in stores {
                to_store.push(network.connect(client, store));
                to_client.push(network.connect(store, client));
                roles.extend([Role::ToStore, Role::ToClient]);
            }
        }
        let mut groups = Vec::new();
        for store in 0..STORES {
            for group in 0..settings.groups_of_store {
                let others = members(store, group);
                let nodes = others.map(|member| stores[member]);
                let replicator = Replicator::new(&mut network, pattern, stores[store], &nodes)?;
                roles.extend(replicator.pairs().map(|_| Role::Replicates { group: groups.len() }));
                groups.push((replicator, [store, others[0], others[1]]));
            }
        }
        let client_bits_per_s = load * ACCESS_BITS_PER_S * settings.layout.uplinks_per_host();
        let begins_ps = settings.warm_up_ms * PS_PER_MS;
        Ok(Self {
            network,
            to_store,
            to_client,
            groups,
            roles,
            requests: Vec::new(),
            random: Random::new(config.seed),
            distribution: settings.distribution,
            gaps: Poisson::new(client_bits_per_s / 8.0 / settings.distribution.mean_bytes()),
            begins_ps,
            ends_ps: begins_ps + settings.duration_ms * PS_PER_MS,
            reads_ps: Vec::new(),
            writes_ps: [Vec::new(), Vec::new()],
            links,
            carried: [0.0; 4],
        })
    }

    /// Runs until all requests have been served.
    pub fn all(&mut self) {
        self.network.at(self.begins_ps, BEGINS);
        self.network.at(self.ends_ps, ENDS);
        (0..CLIENTS).for_each(|client| self.ask_later(client));
        while let Some(notice) = self.network.next(u64::MAX) {
            match notice {
                Notice::Timer { token: BEGINS } => self.carried = self.links.carried(&self.network),
                Notice::Timer { token: ENDS } => {
                    let now = self.links.carried(&self.network);
                    self.carried = [0, 1, 2, 3].map(|kind| now[kind] - self.carried[kind]);
                }
                Notice::Timer { token } => self.ask(token as usize),
                Notice::Completed { pair, .. } | Notice::Arrived { pair, .. } => {
                    self.handle(self.roles[pair], notice);
                }
            }
        }
    }

    pub fn utilisation(&self) -> Utilisation {
        let seconds = (self.ends_ps - self.begins_ps) as f64 / PS_PER_S as f64;
        Utilisation::new(self.carried, ACCESS_BITS_PER_S / 8.0 * seconds)
    }

    fn ask_later(&mut self, client: usize) {
        let at_ps = self.network.now_ps() + self.gaps.gap_ps(&mut self.random);
        if at_ps < self.ends_ps {
            self.network.at(at_ps, client as u64);
        }
    }

    fn ask(&mut self, client: usize) {
        let is_read = self.random.part() < 0.5;
        let group = self.random.below(self.groups.len());
        let replica = if is_read { self.random.below(3) } else { 0 };
        let store = self.groups[group].1[replica];
        let bytes = self.distribution.bytes(&mut self.random);
        let token = self.requests.len() as u64;
        let begun_ps = self.network.now_ps();
        self.requests.push(Request { client, store, group, bytes, is_read, begun_ps });
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
                    let group = &mut self.groups[request.group].0;
                    group.post(&mut self.network, request.bytes, token);
                }
            }
            (Role::ToClient, Notice::Arrived { token, .. }) => self.answered(token),
            (Role::Replicates { group }, _) => {
                let group = &mut self.groups[group].0;
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
        if begun_ps < self.begins_ps {
            return;
        }
        let is_later = begun_ps >= u64::midpoint(self.begins_ps, self.ends_ps);
        let times =
            if is_read { &mut self.reads_ps } else { &mut self.writes_ps[usize::from(is_later)] };
        times.push(self.network.now_ps() - begun_ps);
    }
}
