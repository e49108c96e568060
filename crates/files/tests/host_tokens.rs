//! Receivers that a root has started, and one that says that it is another.

use files::{
    HostTokens,
    receiver::{Placement, ReceiverSettings},
};

use crate::session::{World, joined};

#[test]
fn a_receiver_is_the_host_that_it_was_started_for() {
    let world = World::with(b"contents");
    let tokens = HostTokens::random(false).unwrap();
    let push = world.open(2, |settings| settings.tokens = Some(tokens.clone()));
    let start = |host: usize, token| {
        let new = ReceiverSettings::new(format!("host-{host}"), Placement::Anywhere);
        world.receive_with(push.control_port(), ReceiverSettings { token, ..new })
    };
    for token in [None, Some(tokens.of("host-1"))] {
        let refused = start(0, token).join().unwrap().unwrap_err().to_string();
        assert!(refused.contains("it claims to be host-0, but lacks the token of"), "{refused}");
    }
    let receptions = (0..2).map(|host| start(host, Some(tokens.of(&format!("host-{host}")))));
    let receptions = receptions.collect();
    let report = push.run(&mut |_| {});
    assert_eq!(report.published(), 2, "{report:?}");
    assert!(joined(receptions).into_iter().all(|outcome| outcome.is_ok()));
}

#[test]
fn tokens_are_random_and_one_for_all_where_there_is_one_invitation() {
    let [own, other, shared] = [false, false, true].map(|one| HostTokens::random(one).unwrap());
    assert_ne!(own.of("a"), own.of("b"));
    assert_ne!(own.of("a"), other.of("a"));
    assert_eq!(own.of("a"), own.of("a"));
    assert_eq!(shared.of("a"), shared.of("b"));
}
