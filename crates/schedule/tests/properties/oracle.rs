//! Properties of any schedule, checked by brute force against the public API.

use std::collections::HashSet;

use schedule::{Algorithm, Schedule, Transfer, lower_bound_steps};

/// Describes where a failure happened.
pub fn case(plan: &Schedule, blocks: u32) -> String {
    format!(
        "{}, {} members, root {}, {blocks} blocks: {plan:?}",
        plan.algorithm(),
        plan.members(),
        plan.root()
    )
}

/// Returns all transfers in step order, after checking that both ends of each agree.
pub fn transfers(plan: &Schedule, blocks: u32) -> Vec<Transfer> {
    let mut sent = Vec::new();
    let mut received = 0;
    for step in 0..plan.steps(blocks) {
        for rank in 0..plan.members() {
            if let Some(transfer) = plan.send_at(rank, step, blocks) {
                assert_eq!(
                    (transfer.step, transfer.source),
                    (step, rank),
                    "{}",
                    case(plan, blocks)
                );
                let other_end = plan.receive_at(transfer.target, step, blocks);
                assert_eq!(other_end, Some(transfer), "{}", case(plan, blocks));
                sent.push(transfer);
            }
            received += usize::from(plan.receive_at(rank, step, blocks).is_some());
        }
    }
    // Each send has its own receive, so equal numbers leave no receive without a send.
    assert_eq!(received, sent.len(), "{}", case(plan, blocks));
    sent
}

/// Replays the transfers in a synchronous one-port network: every member gets each block exactly
/// once, the root none, and no member sends a block that it did not hold before the step. Returns
/// the step of each member's last receipt.
pub fn deliver(plan: &Schedule, blocks: u32, transfers: &[Transfer]) -> Vec<Option<u64>> {
    let (members, k) = (plan.members() as usize, blocks as usize);
    let mut got_at: Vec<Option<u64>> = vec![None; members * k];
    let mut last = vec![None; members];
    for transfer in transfers {
        let Transfer { step, source, target, block } = *transfer;
        let held = got_at[source as usize * k + block as usize].is_some_and(|at| at < step);
        assert!(
            source == plan.root() || held,
            "{transfer:?} sends what it lacks: {}",
            case(plan, blocks)
        );
        assert_ne!(target, plan.root(), "{transfer:?}: {}", case(plan, blocks));
        let before = got_at[target as usize * k + block as usize].replace(step);
        assert_eq!(before, None, "{transfer:?} again: {}", case(plan, blocks));
        assert!(
            last[target as usize] < Some(step),
            "{transfer:?} two receives: {}",
            case(plan, blocks)
        );
        last[target as usize] = Some(step);
        assert_eq!(plan.received_at(target, block, blocks), Some(step), "{}", case(plan, blocks));
        let slack = plan.slack(source, step, blocks);
        let expected = got_at[source as usize * k + block as usize].map(|at| step - at);
        assert_eq!(slack, expected, "{transfer:?} slack: {}", case(plan, blocks));
    }
    assert_eq!(transfers.len(), (members - 1) * k, "{}", case(plan, blocks));
    last
}

/// The number of steps is the closed form, no less than the bound, and the last step is not empty.
pub fn steps(plan: &Schedule, blocks: u32, transfers: &[Transfer]) {
    let (n, k) = (u64::from(plan.members()), u64::from(blocks));
    let q = u64::from(plan.members().next_power_of_two().ilog2());
    let idle = n == 1 || k == 0;
    let expected = match plan.algorithm() {
        _ if idle => Some(0),
        Algorithm::Sequential | Algorithm::InSwitch => Some(k * (n - 1)),
        Algorithm::Chain => Some(k + n - 2),
        Algorithm::BinomialTree => Some(k * q),
        Algorithm::BinomialPipeline | Algorithm::Circulant => Some(k - 1 + q),
        _ => None,
    };
    let steps = plan.steps(blocks);
    if let Some(expected) = expected {
        assert_eq!(steps, expected, "{}", case(plan, blocks));
    }
    assert_eq!(steps, transfers.last().map_or(0, |last| last.step + 1), "{}", case(plan, blocks));
    assert!(steps >= lower_bound_steps(plan.members(), blocks), "{}", case(plan, blocks));
}

/// Transfers and announcements happen between declared neighbours, which are distinct and mutual.
pub fn neighbours(plan: &Schedule) -> Vec<HashSet<u32>> {
    let sets: Vec<HashSet<u32>> = (0..plan.members())
        .map(|rank| {
            let set: HashSet<u32> = plan.neighbours(rank).collect();
            assert_eq!(set.len(), plan.neighbours(rank).count(), "rank {rank}: {plan:?}");
            assert!(!set.contains(&rank), "rank {rank}: {plan:?}");
            set
        })
        .collect();
    for (rank, set) in (0..).zip(&sets) {
        for &other in set {
            assert!(sets[other as usize].contains(&rank), "{rank} and {other}: {plan:?}");
        }
    }
    sets
}

/// Announcers form a tree rooted at the root whose edges are neighbours.
pub fn announcers(plan: &Schedule, neighbours: &[HashSet<u32>]) {
    for rank in 0..plan.members() {
        let mut at = rank;
        let mut hops = 0;
        while let Some(parent) = plan.announcer(at) {
            assert!(
                neighbours[at as usize].contains(&parent),
                "{parent} announces to {at}: {plan:?}"
            );
            at = parent;
            hops += 1;
            assert!(hops < plan.members(), "rank {rank} is in a cycle: {plan:?}");
        }
        assert_eq!(at, plan.root(), "rank {rank}: {plan:?}");
    }
}

/// The source of each member's first block is the declared one.
pub fn first_sources(plan: &Schedule, blocks: u32, transfers: &[Transfer]) {
    let mut seen = HashSet::new();
    for transfer in transfers.iter().filter(|transfer| seen.insert(transfer.target)) {
        let declared = plan.first_source(transfer.target);
        let expected = (!plan.size_first()).then_some(transfer.source);
        assert_eq!(declared, expected, "{transfer:?}: {}", case(plan, blocks));
    }
    // An announcer sends in every message.
    let pairs: HashSet<(u32, u32)> = transfers.iter().map(|it| (it.source, it.target)).collect();
    let announced = |rank| plan.announcer(rank).is_none_or(|from| pairs.contains(&(from, rank)));
    let all = blocks == 0 || (0..plan.members()).all(announced);
    assert!(all, "{}", case(plan, blocks));
    assert_eq!(plan.first_source(plan.root()), None);
    assert_eq!(plan.announcer(plan.root()), None);
}

/// `next_send` and `next_receive` find what a scan of all steps finds, from every step.
pub fn next_agrees_with_scan(plan: &Schedule, blocks: u32) {
    let end = plan.steps(blocks);
    for rank in 0..plan.members() {
        let (mut send, mut receive) = (None, None);
        assert_eq!(plan.next_send(rank, end, blocks), None);
        assert_eq!(plan.next_receive(rank, end, blocks), None);
        for step in (0..end).rev() {
            send = plan.send_at(rank, step, blocks).or(send);
            receive = plan.receive_at(rank, step, blocks).or(receive);
            assert_eq!(
                plan.next_send(rank, step, blocks),
                send,
                "from {step}: {}",
                case(plan, blocks)
            );
            assert_eq!(
                plan.next_receive(rank, step, blocks),
                receive,
                "from {step}: {}",
                case(plan, blocks)
            );
        }
    }
}
