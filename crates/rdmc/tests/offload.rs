//! Groups whose blocks the simulated network relays by itself.

#[path = "common/world.rs"]
mod world;

use std::time::Duration;

use proptest::prelude::*;
use rdmc::{Algorithm, GroupSettings, Offload, Schedule};
use transport_sim::{Jitter, LinkConfig, SimConfig};
use world::{BLOCK_BYTES, BLOCK_TIME, World, contents, schedule, time_taken};

fn with_offload(settings: &mut GroupSettings) {
    settings.offload = true;
}

#[test]
fn print_ratios() {
    for algorithm in Algorithm::ALL {
        let mut worst: f64 = 0.0;
        for members in [2, 3, 4, 5, 6, 7, 8, 11, 16, 23, 31, 32, 33] {
            for blocks in [1, 2, 3, 7, 20, 200] {
                let schedule = schedule(algorithm, members, members / 3);
                let taken = time_taken(&schedule, blocks, SimConfig::IDEAL, with_offload);
                let steps = BLOCK_TIME * schedule.steps(blocks) as u32;
                let ratio = taken.as_nanos() as f64 / steps.as_nanos() as f64;
                if ratio > worst {
                    println!("{algorithm} n={members} k={blocks} {ratio:.3}");
                    worst = ratio;
                }
            }
        }
    }
}
