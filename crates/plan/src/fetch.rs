//! Hosts that come at any time and get an object in chains: when each is done, and how much leaves the root.
//!
//! Time is counted in steps, in each of which a member sends and receives at most one block. The choices are those of
//! [`schedule::attach`]. A host gets the lowest block that it lacks, so what it has is always a first part of the object.

use schedule::{ChainMember, attach};

/// Hosts that want an object.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// Blocks of the object; at least one.
    pub blocks: u64,
    /// When each host comes, in steps, ascending.
    pub arrivals: Vec<u64>,
    /// How many steps a host stays after it has everything; then it leaves once it sends to nobody. 0: it leaves at once.
    pub shares: u64,
}

/// What becomes of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// The step in which it came.
    pub came: u64,
    /// When it has everything: after as many steps.
    pub done: u64,
    /// The members that sent to it, one after another: hosts by their places from 1 on; 0 is the root.
    pub senders: Vec<usize>,
    /// Blocks that it has sent.
    pub sent: u64,
}

/// What becomes of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchOutcome {
    /// In the order of their arrivals.
    pub hosts: Vec<Fetched>,
    /// Blocks that the root has sent.
    pub root_sent: u64,
}

#[derive(Clone)]
struct Host {
    has: u64,
    sender: Option<usize>,
    served: u64,
    /// To how many it sends now.
    targets: u32,
    fetched: Fetched,
}

impl Fetch {
    /// Runs until every host has everything. Takes O(hosts that are here) for each step, and for each host that needs a sender.
    pub fn run(&self) -> FetchOutcome {
        let host = |&came: &u64| Host {
            has: 0,
            sender: None,
            served: 0,
            targets: 0,
            fetched: Fetched { came, done: 0, senders: Vec::new(), sent: 0 },
        };
        let mut hosts: Vec<Host> = self.arrivals.iter().map(host).collect();
        // Hosts that have come and not left, and how many have come.
        let (mut here, mut came): (Vec<usize>, usize) = (Vec::new(), 0);
        let (mut root_sent, mut step, mut left) = (0, 0, hosts.len());
        while left > 0 {
            if here.is_empty() {
                step = step.max(hosts[came].fetched.came);
            }
            while hosts.get(came).is_some_and(|host| host.fetched.came <= step) {
                here.push(came);
                came += 1;
            }
            self.leave(&mut hosts, &mut here, step);
            find_senders(&mut hosts, &here, self.blocks);
            // What each gets in this step: of what its sender had before.
            let gets = |&host: &usize| {
                let Host { has, sender, .. } = hosts[host];
                let has_next = |sender: usize| sender == 0 || hosts[sender - 1].has > has;
                sender.filter(|&sender| has < self.blocks && has_next(sender))
            };
            let moves: Vec<(usize, usize)> =
                here.iter().filter_map(|host| Some((gets(host)?, *host))).collect();
            for (sender, host) in moves {
                match sender.checked_sub(1) {
                    None => root_sent += 1,
                    Some(sender) => hosts[sender].fetched.sent += 1,
                }
                hosts[host].has += 1;
                if hosts[host].has == self.blocks {
                    hosts[host].fetched.done = step + 1;
                    left -= 1;
                    detach(&mut hosts, host);
                }
            }
            step += 1;
        }
        FetchOutcome { hosts: hosts.into_iter().map(|host| host.fetched).collect(), root_sent }
    }

    /// Lets hosts go that have stayed long enough.
    fn leave(&self, hosts: &mut [Host], here: &mut Vec<usize>, step: u64) {
        let leaves = |host: &Host| {
            let is_over = host.has == self.blocks && step >= host.fetched.done + self.shares;
            is_over && (self.shares == 0 || host.targets == 0)
        };
        let gone: Vec<usize> = here.iter().copied().filter(|&host| leaves(&hosts[host])).collect();
        if gone.is_empty() {
            return;
        }
        here.retain(|host| !gone.contains(host));
        for &host in here.iter() {
            if hosts[host].sender.is_some_and(|sender| sender > 0 && gone.contains(&(sender - 1))) {
                detach(hosts, host);
            }
        }
    }
}

/// Takes a host its sender.
fn detach(hosts: &mut [Host], host: usize) {
    if let Some(Some(sender)) = hosts[host].sender.take().map(|sender| sender.checked_sub(1)) {
        hosts[sender].targets -= 1;
    }
}

/// Finds a sender for hosts that are here and have none.
fn find_senders(hosts: &mut [Host], here: &[usize], blocks: u64) {
    let waits = |&host: &usize| hosts[host].has < blocks && hosts[host].sender.is_none();
    if !here.iter().any(waits) {
        return;
    }
    // The root is the first member.
    let mut places = vec![0; hosts.len() + 1];
    for (place, &host) in (1..).zip(here) {
        places[host + 1] = place;
    }
    let member = |&host: &usize| {
        let Host { has, sender, served, .. } = hosts[host];
        let sender = sender.map(|sender| places[sender]);
        ChainMember { has, is_complete: has == blocks, sender, served, ..ChainMember::host() }
    };
    let members: Vec<ChainMember> =
        [ChainMember::root()].into_iter().chain(here.iter().map(member)).collect();
    for (from, to) in attach(&members, |_, _| false).links {
        let (from, to) = (from.checked_sub(1).map(|place| here[place]), here[to - 1]);
        if let Some(from) = from {
            hosts[from].served += 1;
            hosts[from].targets += 1;
        }
        let sender = from.map_or(0, |host| host + 1);
        hosts[to].sender = Some(sender);
        hosts[to].fetched.senders.push(sender);
    }
}

impl FetchOutcome {
    /// For how many steps each host was here until it was done.
    pub fn times(&self) -> impl Iterator<Item = u64> + '_ {
        self.hosts.iter().map(|host| host.done - host.came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arrivals: impl Iterator<Item = u64>, shares: u64) -> FetchOutcome {
        Fetch { blocks: 1000, arrivals: arrivals.collect(), shares }.run()
    }

    #[test]
    fn hosts_that_come_together_form_a_chain() {
        let outcome = run([0; 4].into_iter(), 0);
        let dones: Vec<u64> = outcome.hosts.iter().map(|host| host.done).collect();
        assert_eq!(dones, [1000, 1001, 1002, 1003]);
        let first: Vec<usize> = outcome.hosts.iter().map(|host| host.senders[0]).collect();
        assert_eq!(first, [0, 1, 2, 3]);
        // Each publishes, and leaves the one behind it one block short.
        assert_eq!(outcome.root_sent, 1003);
        assert_eq!(run([0; 4].into_iter(), 10).root_sent, 1000);
    }

    #[test]
    fn a_thousand_hosts_need_little_more_than_one_copy_of_the_root() {
        for apart in [0, 1, 7, 100, 999, 1500] {
            let outcome = run((0..1000).map(|host| host * apart), 1000);
            let depth = 1000_u64.checked_div(apart).map_or(1000, |depth| depth + 1);
            let worst = outcome.times().max().unwrap();
            assert!(worst <= 1000 + depth, "{apart}: {worst}");
            let most = if apart > 1000 { 1000 * 500 } else { 1000 };
            assert!(outcome.root_sent <= most, "{apart}: {}", outcome.root_sent);
        }
    }
}
