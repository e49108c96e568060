//! Groups whose blocks the simulated network relays by itself.

#[path = "common/world.rs"]
mod world;

use proptest::prelude::*;
use rdmc::{Algorithm, GroupSettings};
use transport_sim::{Jitter, LinkConfig, SimConfig};
use world::{BLOCK_BYTES, BLOCK_TIME, World, contents, schedule, time_taken};

fn with_offload(settings: &mut GroupSettings) {
    settings.offload = true;
}

#[test]
fn the_network_takes_as_many_block_times_as_the_schedule_has_steps() {
    for algorithm in Algorithm::ALL {
        for members in [2, 3, 4, 5, 8, 11, 16, 32, 33] {
            for blocks in [1, 2, 7, 20] {
                let schedule = schedule(algorithm, members, members / 3);
                let taken = time_taken(&schedule, blocks, SimConfig::IDEAL, with_offload);
                let steps = BLOCK_TIME * schedule.steps(blocks) as u32;
                let case = format!("{algorithm}, {members} members, {blocks} blocks");
                match algorithm {
                    // Without offload it misses its steps as well.
                    Algorithm::Circulant => assert!(taken <= steps * 6 / 5, "{case}: {taken:?}"),
                    // Steps in which nobody has anything to do are not waited for.
                    Algorithm::ChainOfRacks | Algorithm::NestedPipelines => {
                        assert!(taken <= steps, "{case}: {taken:?}");
                    }
                    _ => assert_eq!(taken, steps, "{case}"),
                }
            }
        }
    }
}

/// How long a message of 40 blocks takes to the last of 8 members, but for the one whose program
/// stops for `pause_blocks` block times when it has some blocks.
fn time_with_a_pause(algorithm: Algorithm, offload: bool, pause_blocks: u32) -> f64 {
    const BLOCKS: u32 = 40;
    let late = 2;
    let schedule = schedule(algorithm, 8, 0);
    let mut world = World::new(&schedule, SimConfig::IDEAL, 1, |settings| {
        settings.offload = offload;
    });
    world.run(u64::MAX);
    let start = world.network.now();
    world.send(0, contents(0, BLOCKS as usize * BLOCK_BYTES as usize));
    world.run_until(start + BLOCK_TIME * 15);
    world.set_polled(late, false);
    world.run_until(start + BLOCK_TIME * (15 + pause_blocks));
    world.set_polled(late, true);
    world.progress(late);
    world.run(u64::MAX);
    let others = (0..).zip(&world.members).filter(|&(rank, _)| rank != late);
    let mut last = start;
    for (rank, member) in others {
        assert_eq!(member.messages.len(), 1, "member {rank}: {:?}", member.failure);
        last = last.max(member.received_at);
    }
    (last - start).as_secs_f64() / BLOCK_TIME.as_secs_f64()
}

#[test]
fn members_behind_a_late_program_do_not_notice_with_offload() {
    for algorithm in [Algorithm::Chain, Algorithm::BinomialPipeline] {
        let punctual = time_with_a_pause(algorithm, true, 0);
        let late = time_with_a_pause(algorithm, true, 1_000);
        assert_eq!(late, punctual, "{algorithm}");
        let relaying = time_with_a_pause(algorithm, false, 1_000);
        assert!(relaying > 900.0, "{algorithm}: {relaying} block times by programs");
    }
}

proptest! {
    #[test]
    fn messages_arrive_whole_and_in_order(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 1_u32..=17,
        root in any::<u32>(),
        sizes in prop::collection::vec(0_usize..2_500, 0..8),
        messages_in_flight in 1_u32..=4,
        sends in 1_u32..=4,
        latency_ns in 0_u64..500,
        reordering_ns in 0_u64..2_000,
        happenings in 0_u64..200,
        seed in any::<u64>(),
    ) {
        let root = root % members;
        let config = SimConfig {
            link: LinkConfig { latency_ns, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(0.7),
            delivery_jitter_ns_max: reordering_ns,
            control_jitter_ns_max: reordering_ns,
            ..SimConfig::IDEAL
        };
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |settings| {
            settings.offload = true;
            settings.messages_in_flight = messages_in_flight;
            settings.window.sends = sends;
        });
        for (message, &bytes) in sizes.iter().enumerate() {
            world.send(root as usize, contents(message, bytes));
            world.run(happenings);
        }
        world.close();
        world.run(u64::MAX);
        let expected: Vec<_> =
            sizes.iter().enumerate().map(|(message, &bytes)| contents(message, bytes)).collect();
        for (rank, member) in world.members.iter().enumerate() {
            prop_assert!(member.closed, "member {rank} (seed {seed}): {:?}", member.failure);
            prop_assert!(member.messages == expected, "member {rank} (seed {seed})");
        }
    }

    #[test]
    fn a_death_is_told_to_everybody_and_memory_comes_back(
        algorithm in prop::sample::select(vec![Algorithm::Chain, Algorithm::BinomialPipeline]),
        members in 2_u32..=16,
        victim in any::<u32>(),
        happenings in 0_u64..300,
        seed in any::<u64>(),
    ) {
        let victim = (victim % members) as usize;
        let config = SimConfig { loss_detection_ns: 300, ..SimConfig::IDEAL };
        let mut world = World::new(&schedule(algorithm, members, 0), config, seed, with_offload);
        world.send(0, contents(0, 2_000));
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
