//! Twenty thousand small groups: nothing is lost, nothing hangs, nobody is blamed for nothing.

use simulate::{Campaign, Groups, Limits, Pushes, Subject};

fn assert_good<S: Subject>(campaign: &Campaign<S>, kind: &str) -> S::Tally {
    let (tally, failed) = campaign.run();
    let sizes = &campaign.limits.members;
    let again = format!("--members {}..{}", sizes.start(), sizes.end());
    assert_eq!(failed, None, "again: ./dev sim{kind} {again} --seed SEED\n{tally}");
    println!("{tally}");
    tally
}

#[test]
fn small_groups_keep_every_promise() {
    let tally = assert_good(&Campaign::<Groups>::new(0, 19_000), "");
    // Everything that can be done to a group was done, and every outcome was seen.
    assert!(tally.harms.iter().all(|&count| count > 500), "{tally}");
    assert!(tally.unharmed > 3_000 && tally.successes > tally.unharmed, "{tally}");
    let [lost, silent, stalled, gave_up, broke_protocol, bad_memory] = tally.failed;
    assert!([lost, silent, stalled, gave_up].iter().all(|&count| count > 1_000), "{tally}");
    assert_eq!([broke_protocol, bad_memory], [0, 0], "{tally}");
}

#[test]
fn larger_groups_keep_every_promise() {
    let limits = Limits { members: 10..=40 };
    assert_good(&Campaign::<Groups> { limits, ..Campaign::new(0, 1_000) }, "");
}

#[test]
fn pushes_keep_every_promise() {
    let tally = assert_good(&Campaign::<Pushes>::new(0, 3_000), " --pushes");
    assert!(tally.harms.iter().all(|&count| count > 20), "{tally}");
    assert!(tally.unharmed > 300 && tally.retries > 300, "{tally}");
    // Everybody has a copy after the second push, and many after the first.
    assert!(tally.published > 2 * tally.failed && tally.failed > 1_000, "{tally}");
    // What is there is not sent again, but for small differences.
    assert!(tally.resumed_bytes > 20 * tally.bytes_again, "{tally}");
}
