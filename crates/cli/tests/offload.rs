//! `rdmc push --offload`: used where the fabric can, and plainly not used elsewhere.

use crate::common::Place;

/// Whether libfabric is here, with the provider that offloads in software.
fn has_sockets(place: &Place) -> bool {
    let doctor = place.run_words("doctor --json").json();
    let devices = doctor["machine"]["libfabric"]["devices"].as_array().cloned().unwrap_or_default();
    devices
        .iter()
        .any(|device| device["fabric"].as_str().is_some_and(|fabric| fabric.starts_with("sockets")))
}

#[test]
fn without_an_offloading_fabric_it_says_so_and_delivers() {
    let place = Place::with(50_000);
    let outcome = place.run_words("push object --local 3 --fabric tcp --offload");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.err.contains("continued without --offload: this fabric does not"),
        "{outcome:?}"
    );
    assert!(outcome.err.contains("sockets") && outcome.err.lines().count() == 1, "{outcome:?}");
    assert!(!outcome.out.contains("relayed by the network"), "{outcome:?}");
    assert!((1..=3).all(|host| place.is_copy(&format!("rdmc-local/local-{host}/object"))));

    // What is there already would not be sent again.
    let place = Place::with(50_000);
    let outcome = place.run_words("push object --local 1 --fabric tcp --offload --json");
    let summary = outcome.json();
    let offload = summary["offload"].as_str().unwrap();
    assert!(offload.starts_with("unavailable: this fabric does not"), "{summary}");
    assert!(outcome.err.is_empty(), "{outcome:?}");
    let summary = place.run_words("push object --local 1 --fabric tcp --json").json();
    assert!(summary["offload"].is_null(), "{summary}");
}

#[test]
fn a_fabric_that_offloads_is_used_and_delivers() {
    let place = Place::with(50_000);
    if !has_sockets(&place) {
        eprintln!("SKIPPED: no libfabric with the provider sockets");
        return;
    }
    let dest = "--dest ./{host}-copy --block-size 2000";
    for (algorithm, hosts) in [("chain", 3), ("binomial-pipeline", 3), ("circulant", 4)] {
        let outcome = place.run_words(&format!(
            "push object --local {hosts} --fabric sockets --offload --algorithm {algorithm} {dest} --json"
        ));
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{algorithm}: {outcome:?}");
        assert_eq!(outcome.json()["offload"], "used", "{algorithm}");
        for host in 1..=hosts {
            let copy = format!("local-{host}-copy");
            assert!(place.is_copy(&copy), "{algorithm}");
            std::fs::remove_file(place.path(&copy)).unwrap();
        }
    }
    let outcome =
        place.run_words(&format!("push object --local 2 --fabric sockets --offload {dest}"));
    assert!(outcome.out.contains(", relayed by the network; verified"), "{outcome:?}");
}
