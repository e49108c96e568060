//! Whole groups of real engines on the simulated network, in virtual time.

#[path = "common/world.rs"]
mod world;

use proptest::prelude::*;
use rdmc::{Algorithm, Window};
use transport_sim::{Jitter, LinkConfig, SimConfig};
use world::{BLOCK_TIME, World, contents, schedule, time_taken};

#[test]
fn undisturbed_schedules_take_exactly_their_steps() {
    for algorithm in Algorithm::ALL {
        for members in [2, 3, 4, 5, 6, 7, 8, 11, 16, 23, 31, 32, 33] {
            for blocks in [1, 2, 3, 7, 20] {
                let schedule = schedule(algorithm, members, members / 3);
                let taken = time_taken(&schedule, blocks, SimConfig::IDEAL, |_| {});
                let steps = BLOCK_TIME * schedule.steps(blocks) as u32;
                let what = format!("{algorithm}, {members} members, {blocks} blocks");
                if schedule.size_first() {
                    // The first credits come with the announcement, in any order, and the root
                    // does not wait for the one that would be best to use first.
                    assert!((steps..=steps + 2 * BLOCK_TIME).contains(&taken), "{what}: {taken:?}");
                } else if algorithm.needs_racks() {
                    // Layers that take turns leave steps empty, which nobody has to wait out.
                    assert!(taken <= steps, "{what}: {taken:?} > {steps:?}");
                } else {
                    assert_eq!(taken, steps, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_thousand_members_take_exactly_their_steps() {
    let schedule = schedule(Algorithm::BinomialPipeline, 1_024, 0);
    let config = SimConfig { carry_bytes: false, ..SimConfig::IDEAL };
    assert_eq!(time_taken(&schedule, 64, config, |_| {}), BLOCK_TIME * (64 - 1 + 10));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn delays_of_every_kind_lose_nothing(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 1_u32..=24,
        root in any::<u32>(),
        sizes in prop::collection::vec(0_usize..3_000, 1..5),
        window in 1_u32..=4,
        messages_in_flight in 1_u32..=4,
        slow in any::<u32>(),
        jitter in 0.0..2.0,
        reordering_ns in 0_u64..2_000,
        latency_ns in 0_u64..500,
        seed in any::<u64>(),
    ) {
        let root = root % members;
        let config = SimConfig {
            link: LinkConfig { latency_ns, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(jitter),
            delivery_jitter_ns_max: reordering_ns,
            control_jitter_ns_max: reordering_ns,
            ..SimConfig::IDEAL
        };
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |settings| {
            settings.window = Window { receives: window, sends: window };
            settings.messages_in_flight = messages_in_flight;
        });
        world.network.set_port_rate((slow % members) as usize, 100_000_000);
        for (message, &bytes) in sizes.iter().enumerate() {
            world.send(root as usize, contents(message, bytes));
        }
        world.close();
        let expected: Vec<_> =
            sizes.iter().enumerate().map(|(message, &bytes)| contents(message, bytes)).collect();
        for (rank, member) in world.members.iter().enumerate() {
            prop_assert!(member.closed, "member {rank} (seed {seed}): {:?}", member.failure);
            prop_assert!(member.messages == expected, "member {rank} (seed {seed})");
        }
    }

    #[test]
    fn every_survivor_of_a_death_learns_who_died(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 2_u32..=24,
        root in any::<u32>(),
        victim in any::<u32>(),
        bytes in 0_usize..5_000,
        happenings in 0_u64..400,
        seed in any::<u64>(),
    ) {
        let (root, victim) = (root % members, (victim % members) as usize);
        let config = SimConfig {
            link: LinkConfig { latency_ns: 20, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(0.5),
            loss_detection_ns: 300,
            ..SimConfig::IDEAL
        };
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |_| {});
        world.send(root as usize, contents(0, bytes));
        world.run(happenings);
        world.network.kill(victim);
        world.members[victim].alive = false;
        world.run(u64::MAX);
        for (rank, member) in world.members.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            let failure = member.failure.as_ref();
            prop_assert!(failure.is_some(), "member {rank} does not know (seed {seed})");
            prop_assert_eq!(failure.and_then(|failure| failure.member), Some(victim as u32));
        }
    }
}
