//! `--interface` and `--network`: where data goes.

use crate::common::{Place, RDMC};

fn push<'a>(launcher: &'a str, dest: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let to = ["push", "object", "--to", "h", "--launcher", launcher, "--remote-rdmc", RDMC];
    [&to[..], &["--dest", dest], more].concat()
}

#[test]
fn the_chosen_network_is_in_the_summary() {
    let place = Place::with(100_000);
    let dest = place.path("copy").to_str().unwrap().to_owned();
    let all = if_addrs::get_if_addrs().unwrap();
    let Some(usable) = all.iter().find(|it| !it.is_loopback() && !it.is_link_local()) else {
        eprintln!("SKIPPED: this machine has no network");
        return;
    };
    let (name, address) = (usable.name.as_str(), usable.ip().to_string());
    let bits = if usable.ip().is_ipv4() { 32 } else { 128 };
    let range = format!("{address}/{bits}");
    for choice in [["--interface", name], ["--network", range.as_str()]] {
        let words =
            push("env X={host}", &dest, &[&choice[..], &["--json", "--fabric", "tcp"]].concat());
        let outcome = place.run(&words);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let network = &outcome.json()["network"];
        assert_eq!(network["interface"], name, "{network}");
        if choice[0] == "--network" {
            assert_eq!(network["address"], address.as_str(), "{network}");
        }
    }
    let shown = place.run(&push(
        "env X={host}",
        &place.path("2").display().to_string(),
        &["--fabric", "tcp"],
    ));
    assert!(shown.out.contains(", over "), "{shown:?}");
    assert!(place.is_copy("copy"));
}

#[test]
fn a_network_that_is_not_there_is_refused_with_those_that_are() {
    let place = Place::with(10);
    for choice in [["--interface", "none0"], ["--network", "240.1.2.0/24"]] {
        let outcome = place.run(&push("env X={host}", "copy", &choice));
        outcome.has_failed_with(2, "this machine has no address there; it has ");
    }
    place
        .run(&push("env X={host}", "copy", &["--network", "10.0.0.0"]))
        .has_failed_with(2, "use a network such as 10.1.0.0/16");
}

/// The host says so as a receiver does that shares one.
#[test]
fn a_faster_network_that_hosts_share_is_named() {
    let place = Place::with(100_000);
    let dest = place.path("copy").to_str().unwrap().to_owned();
    let launcher = "sh -c 'echo \"rdmc: a faster network: ib0 (10.1.0.1/16, 100gbit)\" >&2; exec \"$@\"' {host}";
    let outcome = place.run(&push(launcher, &dest, &["--advertise", "127.0.0.1"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let words = "1 of the hosts share a faster network with this machine than the one they used: ib0 (10.1.0.1/16, 100gbit)";
    assert!(outcome.err.contains(words), "{outcome:?}");
    assert!(place.is_copy("copy"));
}
