//! Groups leave nothing behind. Alone in its process, since it counts what the process holds.

mod common;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use common::{PATIENCE, World, close_all, contents, group};
use rdmc::{Algorithm, Region};

/// Open descriptors and threads of this process.
fn held() -> (usize, usize) {
    let count = |directory: &str| fs::read_dir(directory).unwrap().count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

/// Creates, uses and closes groups of ever new numbers.
fn use_groups(world: &World, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let groups = world.join(group(number, Algorithm::BinomialPipeline, 3, 0));
        groups[0].0.send(Region::from_vec(contents(0, 3_000))).unwrap();
        close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    }
}

#[test]
fn descriptors_and_threads_are_the_same_after_many_groups() {
    let world = World::start(3);
    let before = held();
    use_groups(&world, 0..100);
    // Threads that have answered a connection end a moment later.
    let deadline = Instant::now() + PATIENCE;
    while held() != before {
        assert!(Instant::now() < deadline, "{:?} before, {:?} now", before, held());
        thread::sleep(Duration::from_millis(10));
    }
    world.close();
}
