//! Contexts with a limit on their rate. Times are lower bounds only.

use std::{
    cell::Cell,
    io::Read,
    thread,
    time::{Duration, Instant},
};

use rdmc::{Algorithm, Context, Error, Fabric, Group, Region, Secret};

use crate::common::{PATIENCE, World, among, contents, context_settings, group};

const RATE: u64 = 8_000_000;

/// What may pass at once, and ahead of the limit on each link (docs/decisions/rate-limit.md).
const FREE_BYTES: usize = 128 << 10;
const AHEAD_BYTES: usize = 192 << 10;

/// Three members over TCP, of which only the one with rank 1 has a limit.
fn world() -> World {
    let rank = Cell::new(0);
    World::start_with(3, |settings| {
        settings.fabric = Fabric::Tcp;
        settings.rate_max = (rank.get() == 1).then_some(RATE);
        rank.set(rank.get() + 1);
    })
}

fn join(world: &World, number: u64) -> Vec<Group> {
    world.join_to_receive(|rank| group(number, Algorithm::Chain, 3, 0)(rank).block_bytes(64 << 10))
}

/// Sends one message in each group, and returns when all members have all of them.
fn replicate(groups: &[Vec<Group>], bytes: usize) -> Duration {
    let begin = Instant::now();
    thread::scope(|scope| {
        for (message, groups) in (0..).zip(groups) {
            let message = contents(message, bytes);
            scope.spawn({
                let message = message.clone();
                move || {
                    groups[0].try_send(Region::from_vec(message)).unwrap();
                    groups[0].close(PATIENCE).unwrap();
                }
            });
            for group in &groups[1..] {
                let message = message.clone();
                scope.spawn(move || {
                    let mut received = group.receive(PATIENCE).unwrap().unwrap();
                    let mut read = Vec::new();
                    received.read_to_end(&mut read).unwrap();
                    assert!(read == message, "{} bytes arrived", read.len());
                    assert!(group.receive(PATIENCE).unwrap().is_none());
                });
            }
        }
    });
    begin.elapsed()
}

/// Returns how long a member takes at least to receive this many bytes over this many links.
fn least(bytes: usize, links: usize) -> Duration {
    let limited_bytes = bytes - FREE_BYTES - AHEAD_BYTES * links;
    Duration::from_secs_f64(limited_bytes as f64 / RATE as f64)
}

#[test]
fn one_limited_member_limits_the_group_and_all_its_groups_together() {
    let world = world();
    let bytes = 2 << 20;
    let one = [join(&world, 1)];
    let took = replicate(&one, bytes);
    assert!(took >= least(bytes, 1), "{took:?}");
    let both = [join(&world, 2), join(&world, 3)];
    let took = replicate(&both, bytes);
    assert!(took >= least(2 * bytes, 2), "{took:?}");
    drop((one, both));
    world.close();
}

#[test]
fn limits_that_cannot_be_kept_are_refused() {
    let secret = Secret::random().unwrap();
    let start = |fabric: Fabric, rate: u64| {
        let mut settings = context_settings(&secret).rate_max(Some(rate));
        settings.fabric = fabric;
        Context::start(settings)
    };
    let refused = |result: Result<Context, Error>| match result {
        Err(error @ Error::Setting { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted"),
    };
    let error = refused(start(Fabric::Tcp, 124_999));
    assert!(error.contains("rate_max") && error.contains("1 Mbit/s"), "{error}");
    let error = refused(start(Fabric::libfabric("sockets"), RATE));
    assert!(error.contains("sockets") && error.contains("tcp with a rate limit"), "{error}");

    let context = start(Fabric::Tcp, 125_000).unwrap();
    let addresses = [context.address(), ([127, 0, 0, 1], 1).into()];
    let settings = among(group(1, Algorithm::InSwitch, 2, 0)(0), &addresses);
    let Err(error) = context.create_group(settings) else { panic!("accepted") };
    assert!(error.to_string().contains("rate_max"), "{error}");
    context.close(PATIENCE).unwrap();
}
