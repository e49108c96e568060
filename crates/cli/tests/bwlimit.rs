//! `--bwlimit`: no member sends or receives more, and the limit reaches every member. Times are lower bounds only.

use std::fs;

use crate::common::Place;

/// 80mbit.
const RATE: f64 = 10e6;

/// The least seconds in which one member can move this many bytes over this many links; some pass at once
/// (docs/decisions/rate-limit.md).
fn least_seconds(bytes: usize, links: usize) -> f64 {
    (bytes - (128 << 10) - links * (192 << 10)) as f64 / RATE
}

fn copies(place: &Place, hosts: usize) -> bool {
    (1..=hosts).all(|host| place.is_copy(&format!("rdmc-local/local-{host}/object")))
}

#[test]
fn a_root_that_sends_all_copies_is_limited_over_all_its_links_together() {
    let bytes = 2 << 20;
    let place = Place::with(bytes);
    let push = "push object --local 3 --bwlimit 80mbit --algorithm sequential";
    let outcome = place.run_words(&format!("{push} --json"));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(copies(&place, 3));
    let summary = outcome.json();
    assert_eq!(summary["bwlimit_bits_per_second"], 80_000_000);
    assert_eq!(summary["fabric"], "tcp");
    let took = summary["seconds"].as_f64().unwrap();
    assert!(took >= least_seconds(3 * bytes, 3), "{summary}");
    fs::remove_dir_all(place.path("rdmc-local")).unwrap();
    let outcome = place.run_words(push);
    assert!(outcome.out.contains(", limited to 80mbit; verified"), "{outcome:?}");
}

/// The root sends one copy, the second rack's leader two: one in its rack, and one to the next leader. So
/// the time tells that receivers, too, have the limit.
#[test]
fn a_receiver_that_relays_more_than_the_root_sends_is_limited() {
    let bytes = 3 << 20;
    let place = Place::with(bytes);
    let push = "push object --local 4 --bwlimit 80mbit --algorithm chain-of-racks --racks 1,3,1";
    let outcome = place.run_words(&format!("{push} --json"));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(copies(&place, 4));
    let summary = outcome.json();
    let took = summary["seconds"].as_f64().unwrap();
    assert!(took >= least_seconds(2 * bytes, 3), "{summary}");
    // Each receiver has received everything.
    for host in summary["hosts"].as_array().unwrap() {
        let took = host["seconds"].as_f64().unwrap();
        assert!(took >= least_seconds(bytes, 1), "{summary}");
    }
}

#[test]
fn a_bench_is_limited() {
    let bytes = 2 << 20;
    let place = Place::with(1);
    let bench = "bench --local 1 --size 2MiB --repeats 1 --round-trips 1 --bwlimit 80mbit";
    let outcome = place.run_words(&format!("{bench} --json"));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let document = outcome.json();
    assert_eq!(document["settings"]["bwlimit_bits_per_second"], 80_000_000);
    let rows = document["runs"][0]["measurements"].as_array().unwrap();
    let unicast = rows.iter().find(|row| row["kind"] == "unicast").unwrap();
    let took = unicast["seconds"]["least"].as_f64().unwrap();
    assert!(took >= least_seconds(bytes, 1), "{unicast}");
    let outcome = place.run_words(bench);
    assert!(outcome.out.contains("each host limited to 80mbit"), "{outcome:?}");
}

#[test]
fn limits_that_cannot_be_kept_are_refused() {
    let place = Place::with(10);
    for (more, words) in [
        ("--bwlimit 999kbit", "at least 1mbit"),
        ("--bwlimit 10", "is not a rate"),
        ("--bwlimit 50mbit --min-rate 50mbit", "use a lower minimum"),
        ("--bwlimit 50mbit --fabric sockets", "tcp with a rate limit"),
        ("--bwlimit 50mbit --cert a --key b --ca c --switch d:1", "cannot be used with"),
    ] {
        place.run_words(&format!("push object --local 1 {more}")).has_failed_with(2, words);
    }
}

/// The table of a demonstration: by name, the receivers and the seconds.
fn rows(table: &str) -> Vec<(String, u32, f64)> {
    let after_head = table.split("times one copy\n").nth(1).unwrap();
    let lines = after_head.lines().take_while(|line| !line.is_empty());
    let row = |line: &str| {
        let words: Vec<&str> = line[20..].split_whitespace().collect();
        (line[..20].trim().to_owned(), words[0].parse().unwrap(), words[1].parse().unwrap())
    };
    lines.map(row).collect()
}

#[test]
fn a_demonstration_limits_its_members() {
    let place = Place::with(10);
    let bytes = 2 << 20;
    let outcome = place.run_words("demo --receivers 3 --size 2MiB --bwlimit 80mbit --dir .");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("sends or receives more than 80mbit"), "{outcome:?}");
    let rows = rows(&outcome.out);
    let names: Vec<&str> = rows.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["one copy", "one by one", "rdmc"]);
    let receivers: Vec<u32> = rows.iter().map(|&(_, receivers, _)| receivers).collect();
    assert_eq!(receivers, [1, 3, 3]);
    // The table's times are rounded to hundredths.
    for ((_, _, took), (bytes, links)) in rows.iter().zip([(bytes, 1), (3 * bytes, 3), (bytes, 3)])
    {
        assert!(took + 0.01 >= least_seconds(bytes, links), "{outcome:?}");
    }
}
