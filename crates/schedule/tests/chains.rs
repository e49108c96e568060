//! Chains in rounds: in each, every member sends and receives at most one block.

use std::collections::BTreeMap;

use proptest::prelude::*;
use schedule::{ChainMember, attach};

/// A host of the model.
struct Host {
    arrives: u32,
    /// When it dies, unless it is done before.
    dies: Option<u32>,
    has: Vec<bool>,
    count: u32,
    /// Its place in the list of hosts, from 1 on; 0 is the root.
    sender: Option<usize>,
    served: u64,
    sent: u64,
    done: Option<u32>,
    is_gone: bool,
}

/// What came of a run.
struct Outcome {
    /// Rounds from the arrival until it was done, of hosts that have not died.
    times: Vec<u32>,
    /// Blocks that the root has sent.
    root_sent: u64,
    /// The most that a host has sent.
    host_sent: u64,
}

impl Outcome {
    fn worst(&self) -> u32 {
        self.times.iter().copied().max().unwrap_or(0)
    }

    fn median(&self) -> u32 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[times.len() / 2]
    }
}

/// Hosts that arrive, and may die, in these rounds, each of which wants `blocks` and leaves `shares` rounds after it has them, if it
/// sends to nobody then or `shares` is 0.
fn run(blocks: u32, arrivals: &[u32], deaths: &BTreeMap<usize, u32>, shares: u32) -> Outcome {
    let host = |(index, &arrives): (usize, &u32)| Host {
        arrives,
        dies: deaths.get(&index).copied(),
        has: vec![false; blocks as usize],
        count: 0,
        sender: None,
        served: 0,
        sent: 0,
        done: None,
        is_gone: false,
    };
    let mut hosts: Vec<Host> = arrivals.iter().enumerate().map(host).collect();
    let (mut root_sent, mut round) = (0, 0);
    while hosts.iter().any(|host| host.done.is_none() && !host.is_gone) {
        let senders: Vec<usize> = hosts.iter().filter_map(|host| host.sender).collect();
        for (place, host) in (1..).zip(&mut hosts) {
            let is_free = shares == 0 || !senders.contains(&place);
            let leaves = is_free && host.done.is_some_and(|done| round >= done + shares);
            host.is_gone |= leaves || host.dies == Some(round) && host.done.is_none();
        }
        let here = |host: &Host| host.arrives <= round && !host.is_gone;
        // The root is the first of the list.
        let present: Vec<usize> = (0..hosts.len()).filter(|&host| here(&hosts[host])).collect();
        for &host in &present {
            let is_lost = |sender: usize| sender > 0 && hosts[sender - 1].is_gone;
            if hosts[host].sender.is_some_and(is_lost) {
                hosts[host].sender = None;
            }
        }
        let place = |sender: usize| match sender {
            0 => 0,
            sender => 1 + present.iter().position(|&host| host == sender - 1).expect("it is here"),
        };
        let member = |&host: &usize| {
            let Host { count, sender, served, .. } = hosts[host];
            let (has, is_complete) = (u64::from(count), count == blocks);
            let sender = sender.filter(|_| !is_complete).map(place);
            ChainMember { has, is_complete, sender, served, ..ChainMember::host() }
        };
        let members: Vec<ChainMember> =
            [ChainMember::root()].into_iter().chain(present.iter().map(member)).collect();
        let attached = attach(&members, |_, _| false);
        assert!(attached.blocked.is_empty() && attached.cut_off.is_empty());
        for (sender, target) in attached.links {
            let sender = if sender == 0 { 0 } else { present[sender - 1] + 1 };
            if sender > 0 {
                hosts[sender - 1].served += 1;
            }
            hosts[present[target - 1]].sender = Some(sender);
        }
        // What members had before this round.
        let mut moves = Vec::new();
        for &host in present.iter().filter(|&&host| hosts[host].done.is_none()) {
            let sender = hosts[host].sender.expect("everybody has one");
            let sends = |&block: &usize| sender == 0 || hosts[sender - 1].has[block];
            let lacks = |&block: &usize| !hosts[host].has[block];
            let next = (0..blocks as usize).filter(lacks).find(sends);
            moves.extend(next.map(|block| (sender, host, block)));
        }
        let mut senders: Vec<usize> = moves.iter().map(|&(sender, ..)| sender).collect();
        senders.sort_unstable();
        assert!(senders.windows(2).all(|pair| pair[0] != pair[1]), "one block at a time");
        for (sender, host, block) in moves {
            match sender {
                0 => root_sent += 1,
                sender => hosts[sender - 1].sent += 1,
            }
            let host = &mut hosts[host];
            (host.has[block], host.count) = (true, host.count + 1);
            if host.count == blocks {
                (host.done, host.sender) = (Some(round + 1), None);
            }
        }
        round += 1;
        let latest = arrivals.iter().max().expect("hosts");
        assert!(round < latest + 20 * blocks + 100 * arrivals.len() as u32, "it does not end");
    }
    Outcome {
        times: hosts.iter().filter_map(|it| Some(it.done? - it.arrives)).collect(),
        root_sent,
        host_sent: hosts.iter().map(|host| host.sent).max().unwrap_or(0),
    }
}

const FOREVER: u32 = 1 << 20;

#[test]
fn one_copy_leaves_the_root_and_every_host_is_done_a_copys_time_after_it_came() {
    let (blocks, hosts) = (200, 40);
    let nobody = BTreeMap::new();
    for (case, arrivals, worst) in [
        ("all at once", vec![0; hosts], blocks + hosts as u32 - 1),
        ("one after another", (0..hosts as u32).map(|host| host * (blocks + 5)).collect(), blocks),
        ("one in every 50 rounds", (0..hosts as u32).map(|host| host * 50).collect(), blocks),
        ("one in every 5 rounds", (0..hosts as u32).map(|host| host * 5).collect(), blocks + 2),
    ] {
        for shares in [blocks, FOREVER] {
            let outcome = run(blocks, &arrivals, &nobody, shares);
            assert!(outcome.worst() <= worst, "{case}: {} rounds", outcome.worst());
            assert_eq!(outcome.root_sent, u64::from(blocks), "{case}");
            assert!(outcome.host_sent <= u64::from(blocks), "{case}: {}", outcome.host_sent);
        }
    }
}

#[test]
fn hosts_that_leave_at_once_cost_the_root_what_they_would_have_sent() {
    let arrivals: Vec<u32> = (0..40).map(|host| host * 50).collect();
    let outcome = run(200, &arrivals, &BTreeMap::new(), 0);
    assert!(outcome.worst() <= 210, "{}", outcome.worst());
    assert!(outcome.root_sent > 10 * 200, "{}", outcome.root_sent);
}

#[test]
fn waves_and_deaths_cost_the_root_at_most_two_copies() {
    let arrivals: Vec<u32> = (0..40).map(|host| host / 10 * 100).collect();
    let outcome = run(200, &arrivals, &BTreeMap::new(), FOREVER);
    assert!(outcome.worst() <= 220 && outcome.median() <= 210, "{}", outcome.worst());
    assert!(outcome.root_sent <= 400, "{}", outcome.root_sent);
    for seed in 0..20 {
        let deaths =
            (0..4).map(|it| (it * 10 + seed % 10, arrivals[it * 10] + 7 * seed as u32 + 3));
        let outcome = run(200, &arrivals, &deaths.collect(), FOREVER);
        assert!(outcome.worst() <= 260, "{seed}: {}", outcome.worst());
        assert!(outcome.root_sent <= 500, "{seed}: {}", outcome.root_sent);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Each block comes once, and at most one at a time leaves and reaches a member, whatever happens; `run` checks that.
    #[test]
    fn everybody_is_done_whoever_comes_and_dies(
        blocks in 1_u32..60,
        arrivals in prop::collection::vec(0_u32..200, 1..24),
        deaths in prop::collection::btree_map(0_usize..24, 0_u32..300, 0..8),
        shares in prop_oneof![Just(0), 0_u32..100, Just(FOREVER)],
    ) {
        let outcome = run(blocks, &arrivals, &deaths, shares);
        let left = (0..arrivals.len()).filter(|host| !deaths.contains_key(host)).count();
        prop_assert!(outcome.times.len() >= left);
        prop_assert!(outcome.times.iter().all(|&rounds| rounds >= blocks));
        if deaths.is_empty() && shares == FOREVER {
            let depth = arrivals.len() as u32;
            prop_assert!(outcome.worst() <= blocks + depth, "{}", outcome.worst());
        }
    }
}
