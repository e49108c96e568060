//! Pushes in which one thing is out of the ordinary.

use super::*;

/// A push to two hosts with this many retries; the second cannot be started for so long, and the
/// digest of the source is known after a minute.
fn refused_for(time: Duration, retries: u32) -> Vec<Step> {
    let settings = settings(2, retries);
    let mut core = Coordinator::new(&settings, BYTES);
    let mut world = World::new(7, 2);
    world.hosts[1].refuses_until = time;
    world.after(1, Event::Comes(0));
    world.after(1, Event::Refused(1, 0));
    world.queue.insert((Duration::from_secs(60), 0), Event::Digest);
    world.run(&mut core).unwrap();
    core.hosts.iter().map(|host| host.step.clone()).collect()
}

#[test]
fn a_host_that_comes_back_soon_has_not_used_up_its_retries() {
    assert_eq!(refused_for(Duration::from_secs(2), 5)[1], Step::Published);
}

#[test]
fn a_host_is_tried_on_while_others_receive() {
    assert_eq!(refused_for(Duration::from_secs(1), 1)[1], Step::Published);
    // Who could have sent it anything has published; it was tried until then.
    let steps = refused_for(Duration::from_secs(3600), 1);
    assert_eq!(steps, [Step::Published, Step::Failed("refused".into())]);
    assert_eq!(refused_for(Duration::from_millis(2), 0)[1], Step::Failed("refused".into()));
}

#[test]
fn a_source_that_changes_ends_the_push_before_all_is_sent() {
    let settings = settings(3, 0);
    let mut core = Coordinator::new(&settings, BYTES);
    let mut world = World::new(3, 3);
    (0..3).for_each(|host| world.after(1, Event::Comes(host)));
    world.changes_at = Some(Duration::from_millis(500));
    // Groups that never end: only looking at the source ends them.
    let outcome = loop {
        core.now = world.now;
        let outcome = core.advance(&mut world);
        if outcome.is_err() || world.now > Duration::from_secs(5) {
            break outcome;
        }
        world.now += Duration::from_millis(100);
        let due = world.queue.range(..(world.now, 0)).next().map(|(&key, _)| key);
        match due.and_then(|key| world.queue.remove(&key)) {
            None | Some(Event::Moves(_)) => {}
            Some(event) => happen(&mut core, &mut world, event).unwrap(),
        }
    };
    assert!(matches!(outcome, Err(PushError::Source(_))), "{outcome:?} at {:?}", world.now);
}

/// A push to two hosts, of which the second has another copy than the digest says; its steps, and why
/// it ended.
fn differing(later_contents: &'static [u8]) -> (Vec<Step>, Result<(), PushError>) {
    let settings = settings(2, 0);
    let mut core = Coordinator::new(&settings, BYTES);
    let mut world = World::new(7, 2);
    (world.hosts[1].is_right, world.later_contents) = (false, later_contents);
    (0..2).for_each(|host| world.after(1, Event::Comes(host)));
    world.after(1, Event::Digest);
    let outcome = world.run(&mut core);
    (core.hosts.into_iter().map(|host| host.step).collect(), outcome)
}

#[test]
fn a_copy_that_differs_has_the_source_read_again_before_its_host_is_blamed() {
    let (steps, outcome) = differing(CONTENTS);
    assert!(outcome.is_ok() && steps[0] == Step::Published, "{steps:?}, {outcome:?}");
    let Step::Failed(reason) = &steps[1] else { panic!("{steps:?}") };
    assert!(reason.contains("reads as it did before"), "{reason}");
    let (_, outcome) = differing(b"another object");
    assert!(matches!(outcome, Err(PushError::Source(_))), "{outcome:?}");
}

#[test]
fn a_host_that_prepares_for_long_gets_its_copy_after_the_others() {
    let settings = settings(4, 0);
    let mut core = Coordinator::new(&settings, BYTES);
    let mut world = World::new(5, 4);
    let half_an_hour = Duration::from_secs(1700);
    world.hosts[3].prepares_for = half_an_hour;
    (0..4).for_each(|host| world.after(1, Event::Comes(host)));
    world.after(1, Event::Digest);
    world.run(&mut core).unwrap();
    assert!(core.hosts.iter().all(|host| host.step == Step::Published), "{}", core.describe());
    let at: Vec<Duration> = world.hosts.iter().map(|host| host.published_at).collect();
    assert!(at[..3].iter().all(|&at| at < Duration::from_secs(300)), "{at:?}");
    assert!(at[3] > half_an_hour, "{at:?}");
}

#[test]
fn a_host_that_starts_its_fabric_for_long_does_not_delay_the_first_groups() {
    let settings = settings(3, 0);
    let mut core = Coordinator::new(&settings, BYTES);
    let mut world = World::new(5, 3);
    let long = Duration::from_secs(14);
    world.hosts[2].starts_for = long;
    (0..3).for_each(|host| world.after(1, Event::Comes(host)));
    world.after(1, Event::Digest);
    world.run(&mut core).unwrap();
    assert_eq!(core.hosts[0].step, Step::Published);
    assert!(world.first_round.unwrap() < long, "{:?}", world.first_round);
}

#[test]
fn a_host_may_verify_for_as_long_as_it_gets_on() {
    let settings = settings(2, 0);
    let mut core = Coordinator::new(&settings, BYTES);
    let mut world = World::new(5, 2);
    world.hosts[1].compares_for = Duration::from_secs(3 * 3600);
    (0..2).for_each(|host| world.after(1, Event::Comes(host)));
    world.after(1, Event::Digest);
    world.run(&mut core).unwrap();
    assert!(core.hosts.iter().all(|host| host.step == Step::Published), "{}", core.describe());
}
