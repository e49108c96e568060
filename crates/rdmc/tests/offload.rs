//! Groups whose blocks the simulated network relays by itself.

use std::time::Duration;

use engine::GroupSettings;
use proptest::prelude::*;
use rdmc::{Algorithm, Offload, Window};
use transport_sim::SimConfig;

use crate::world::{BLOCK_BYTES, BLOCK_TIME, World, contents, disturbed, schedule, time_taken};

fn with_offload(settings: &mut GroupSettings) {
    settings.offload = true;
}

#[test]
fn undisturbed_schedules_take_no_longer_than_their_steps() {
    for algorithm in Algorithm::ALL {
        for members in [2, 3, 4, 5, 6, 7, 8, 11, 16, 23, 31, 32, 33] {
            for blocks in [1, 2, 3, 7, 20] {
                let schedule = schedule(algorithm, members, members / 3);
                let taken = time_taken(&schedule, blocks, SimConfig::IDEAL, with_offload);
                let steps = BLOCK_TIME * schedule.steps(blocks) as u32;
                let what = format!("{algorithm}, {members} members, {blocks} blocks");
                if schedule.size_first() {
                    // As without offload, the root does not wait for the credit that would be best
                    // to use first; nor do racks' exits.
                    let late = BLOCK_TIME * if algorithm.needs_racks() { 4 } else { 2 };
                    assert!(taken <= steps + late, "{what}: {taken:?} > {steps:?}");
                } else if algorithm.needs_racks() {
                    assert!(taken <= steps, "{what}: {taken:?} > {steps:?}");
                } else {
                    assert_eq!(taken, steps, "{what}");
                }
            }
        }
    }
}

#[test]
fn groups_say_whether_they_offload() {
    let schedule = schedule(Algorithm::Chain, 3, 0);
    let asked = World::new(&schedule, SimConfig::IDEAL, 1, with_offload);
    let not_asked = World::new(&schedule, SimConfig::IDEAL, 1, |_| {});
    for rank in 0..3 {
        assert_eq!(asked.members[rank].engine.offload(1).unwrap(), Offload::Used);
        assert_eq!(not_asked.members[rank].engine.offload(1).unwrap(), Offload::NotAsked);
        assert!(asked.members[rank].engine.offload(2).is_err());
    }
}

const BLOCKS: u32 = 100;

/// Returns the time until all members but one have a message while that member's process is paused,
/// from a third of the transfer on for half of its time.
fn time_with_a_pause(algorithm: Algorithm, members: u32, late: usize, offload: bool) -> Duration {
    let schedule = schedule(algorithm, members, 0);
    let mut world = World::new(&schedule, SimConfig::IDEAL, 1, |settings| {
        settings.offload = offload;
    });
    world.run(u64::MAX);
    let start = world.network.now();
    world.send(0, vec![5; BLOCKS as usize * BLOCK_BYTES as usize]);
    world.run_until(start + BLOCK_TIME * BLOCKS / 3);
    world.set_polled(late, false);
    world.run_until(start + BLOCK_TIME * BLOCKS * 5 / 6);
    world.set_polled(late, true);
    world.run(u64::MAX);
    assert!(world.members.iter().all(|member| member.messages.len() == 1));
    let others = world.members.iter().enumerate().filter(|&(rank, _)| rank != late);
    others.map(|(_, member)| member.received_at).max().unwrap() - start
}

#[test]
fn a_paused_relay_delays_no_other_member() {
    for (algorithm, members) in
        [(Algorithm::Chain, 4), (Algorithm::BinomialPipeline, 8), (Algorithm::BinomialPipeline, 11)]
    {
        let steps = BLOCK_TIME * schedule(algorithm, members, 0).steps(BLOCKS) as u32;
        for late in 1..members as usize - 1 {
            let what = format!("{algorithm}, member {late} of {members} late");
            let taken = time_with_a_pause(algorithm, members, late, true);
            assert!(taken <= steps, "{what}: {taken:?} > {steps:?}");
            // Without offload it takes at least a third longer: the half of the time, less the
            // windows and what other members can transfer meanwhile.
            let taken = time_with_a_pause(algorithm, members, late, false);
            assert!(taken > steps * 4 / 3, "{what}, not offloaded: {taken:?} of {steps:?}");
        }
    }
}

#[test]
fn many_messages_pass_a_relay_that_polls_rarely() {
    let schedule = schedule(Algorithm::BinomialPipeline, 8, 0);
    let mut world = World::new(&schedule, SimConfig::IDEAL, 1, with_offload);
    let sizes: Vec<usize> = (0..20).map(|message| message * 377 % 2_000).collect();
    for (message, &bytes) in sizes.iter().enumerate() {
        world.send(0, contents(message, bytes));
    }
    for look in 1..10_000 {
        world.set_polled(3, false);
        world.run_until(BLOCK_TIME * 25 * look);
        world.set_polled(3, true);
    }
    for member in &world.members {
        let expected: Vec<_> =
            sizes.iter().enumerate().map(|(message, &bytes)| contents(message, bytes)).collect();
        assert!(member.messages == expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn delays_of_every_kind_lose_nothing(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 1_u32..=24,
        root in any::<u32>(),
        sizes in prop::collection::vec(0_usize..3_000, 1..5),
        sends in 1_u32..=4,
        messages_in_flight in 1_u32..=4,
        jitter in 0.0..2.0,
        reordering_ns in 0_u64..2_000,
        latency_ns in 0_u64..500,
        seed in any::<u64>(),
    ) {
        let root = root % members;
        let config = disturbed(jitter, reordering_ns, latency_ns);
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |settings| {
            settings.offload = true;
            settings.window = Window { receives: 1, sends };
            settings.messages_in_flight = messages_in_flight;
        });
        world.deliver(root as usize, &sizes);
    }

    /// The world also checks that all memory is returned, although the network used it.
    #[test]
    fn every_survivor_of_a_death_is_notified_which_member_died(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 2_u32..=24,
        root in any::<u32>(),
        victim in any::<u32>(),
        bytes in 0_usize..5_000,
        happenings in 0_u64..400,
        seed in any::<u64>(),
    ) {
        let (root, victim) = (root % members, (victim % members) as usize);
        let config = disturbed(0.5, 0, 20);
        let mut world =
            World::new(&schedule(algorithm, members, root), config, seed, with_offload);
        world.lose(root as usize, bytes, victim, happenings);
    }
}
