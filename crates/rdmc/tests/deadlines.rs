//! Every wait of the library ends at its deadline, whoever is stuck or silent; and no duration is
//! too long to wait for.

mod common;

use std::{thread, time::Duration};

use common::{World, group};
use rdmc::{Algorithm, GroupSettings, Region};

fn chain(number: u64, members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    group(number, Algorithm::Chain, members, 0)
}

#[test]
fn no_duration_is_too_long_to_wait_for() {
    let world = World::start_with(2, |settings| settings.connect_timeout = Duration::MAX);
    let groups = world.join(chain(1, 2));
    let sent = groups[0].0.send(Region::zeroed(5_000)).unwrap();
    sent.wait(Duration::MAX).unwrap();
    groups[0].0.wait_complete(1, Duration::MAX).unwrap();
    let [root, receiver] = [0, 1].map(|rank| &groups[rank].0);
    thread::scope(|scope| {
        scope.spawn(|| receiver.close(Duration::MAX).unwrap());
        root.close(Duration::MAX).unwrap();
    });
    for context in world.contexts {
        context.close(Duration::MAX).unwrap();
    }
}
