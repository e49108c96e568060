//! `rdmc bench` over loopback: what it reports, not how fast anything is.

use serde_json::Value;

use crate::common::{
    Outcome, Place, await_that, children, has_thread, is_running, signal, ticks_of_thread,
};

const SMALL: &str = "bench --local 3 --fabric tcp --size 100000 --repeats 3 --round-trips 5";

fn plausible(spread: &Value, count: u64) {
    let value = |name: &str| spread[name].as_f64().unwrap();
    assert!(value("least") > 0.0, "{spread}");
    assert!(value("least") <= value("median") && value("median") <= value("most"), "{spread}");
    assert_eq!(spread["count"], count);
}

#[test]
fn the_report_in_json_has_all_its_parts() {
    let place = Place::with(0);
    let outcome = place.run_words(&format!("{SMALL} --json --block-size 10000"));
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    let report = outcome.json();
    assert!(report["machine"]["cpus"].as_u64().unwrap() > 0);
    assert_eq!(report["machine"]["rdmc"], env!("CARGO_PKG_VERSION"));
    assert!(report["protocol"].as_u64().unwrap() > 0);
    assert_eq!(report["settings"]["block_bytes"], 10_000);
    assert_eq!(report["settings"]["hosts"][2], "local-3");
    let [run] = &report["runs"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&run["fabric"], &run["error"]), (&"tcp".into(), &Value::Null));
    let rows = run["measurements"].as_array().unwrap();
    let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).collect::<Vec<_>>();
    assert_eq!([of("latency").len(), of("unicast").len(), of("multicast").len()], [6, 3, 1]);
    for row in of("latency") {
        assert!(row["bytes"] == 1 || row["bytes"] == 65_536, "{row}");
        assert!(row["bytes_per_second"].is_null());
        plausible(&row["seconds"], 5);
    }
    for row in of("unicast").into_iter().chain(of("multicast")) {
        assert_eq!(row["bytes"], 100_000);
        plausible(&row["seconds"], 3);
        plausible(&row["bytes_per_second"], 3);
    }
    assert_eq!(of("multicast")[0]["members"], 4);
    // Memory to memory: no directory of copies, no files.
    assert!(!place.path("rdmc-local").exists());
}

#[test]
fn the_table_has_a_line_for_each_measurement() {
    let outcome = Place::with(0).run_words(SMALL);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let count = |word: &str| {
        let lines = outcome.out.lines().map(str::trim_start);
        lines.filter(|line| line.starts_with(word)).count()
    };
    assert_eq!([count("latency"), count("unicast"), count("multicast")], [6, 3, 1]);
    assert!(outcome.out.contains("fabric tcp"), "{outcome:?}");
    let unicast = outcome.out.lines().find(|line| line.trim_start().starts_with("unicast"));
    let words: Vec<&str> = unicast.unwrap().split_whitespace().collect();
    let rates: Vec<u64> = words
        .iter()
        .filter_map(|word| plan::size::parse_rate(word.trim_matches(['(', ')'])).ok())
        .collect();
    let [median, least, most] = rates[..] else { panic!("{outcome:?}") };
    assert!(least <= median && median <= most, "{rates:?}");
}

#[test]
fn fabrics_that_are_not_here_do_not_stop_the_others() {
    let outcome = Place::with(0).run_words(&format!("{SMALL} --fabric no-such --json"));
    outcome.has_failed_with(3, "no-such");
    let report = outcome.json();
    assert_eq!(report["runs"][0]["fabric"], "tcp");
    assert!(report["runs"][1]["error"].as_str().unwrap().contains("no-such"));
    let alone = Place::with(0).run_words("bench --local 1 --fabric no-such");
    alone.has_failed_with(1, "no-such");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let place = Place::with(0);
    for (arguments, words) in [
        ("bench", "--local"),
        ("bench --local 0", "--local"),
        ("bench --to a --local 1", "cannot be used with"),
        ("bench --to a,b,a", "host a is named twice"),
        ("bench --to a:7000", "--secret-file"),
        ("bench --local 1 --repeats 0", "--repeats"),
        ("bench --local 1 --size 1parsec", "unknown unit"),
        ("bench --local 2 --algorithm chain-of-racks", "needs racks"),
        ("bench --local 2 --algorithm in-switch", "needs switches"),
        ("bench --local 1 --size 0", "at least 1 byte"),
        ("bench --local 1 --size 1TiB", "16 GiB"),
        ("bench --local 1 --sizes 4", "--collective"),
        ("bench --local 1 --collective scan", "broadcast, allreduce"),
        ("bench --local 1 --collective allreduce --sizes 6", "6 is not a multiple"),
        ("bench --local 1 --collective broadcast --degree 2", "has no degree"),
        ("bench --local 1 --collective broadcast --sizes 1TiB", "too long"),
        ("bench --local 1 --collective broadcast --repeats 10001", "--repeats"),
    ] {
        place.run_words(arguments).has_failed_with(2, words);
    }
}

#[test]
fn hosts_that_cannot_be_reached_are_named() {
    let place = Place::with(0);
    let outcome = place.run(&["bench", "--to", "a", "--launcher", "no-such-launcher {host}"]);
    outcome.has_failed_with(1, "a: the launcher \"no-such-launcher\" is not installed here");
}

#[test]
fn a_collective_operation_is_measured_for_each_length() {
    let place = Place::with(0);
    let words =
        "bench --local 2 --fabric tcp --collective allreduce --degree 2 --sizes 4,1KiB,100KiB";
    let outcome = place.run_words(&format!("{words} --repeats 6 --json"));
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    let report = outcome.json();
    assert_eq!(report["settings"]["collective"]["operation"], "allreduce");
    assert_eq!(report["settings"]["collective"]["degree"], 2);
    let [run] = &report["runs"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(run["measurements"].as_array().map(Vec::len), Some(0));
    let rows = run["collectives"].as_array().unwrap();
    let lengths: Vec<_> = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [4, 1 << 10, 100 << 10]);
    for row in rows {
        let of = |name: &str| row[name].as_f64().unwrap();
        assert_eq!((&row["members"], &row["repeats"]), (&3.into(), &6.into()), "{row}");
        assert!(of("minimum_us") > 0.0 && of("minimum_us") <= of("average_us"), "{row}");
        assert!(of("average_us") <= of("maximum_us") && of("p50_us") <= of("p99_us"), "{row}");
    }
    let table = place.run_words(&format!("{words} --repeats 6"));
    assert_eq!(table.code, Some(0), "{table:?}");
    let lines = |start: &str| table.out.lines().filter(|it| it.trim().starts_with(start)).count();
    assert_eq!([lines("4 B"), lines("1 KiB"), lines("100 KiB")], [1, 1, 1], "{table:?}");
    assert!(table.out.contains("allreduce of degree 2, 3 members"), "{table:?}");
    let broadcast =
        place.run_words("bench --local 1 --collective broadcast --sizes 0,5 --repeats 2");
    assert_eq!(broadcast.code, Some(0), "{broadcast:?}");
}

#[test]
fn a_host_that_dies_during_a_collective_operation_is_named() {
    let place = Place::with(0);
    // Far more than is measured until it dies.
    let sizes = ["64KiB"; 1000].join(",");
    let arguments = ["bench", "--local", "2", "--collective", "allreduce", "--sizes", &sizes];
    let bench = place.rdmc(&arguments).args(["--repeats", "10000"]).spawn().unwrap();
    // It sleeps until the team is made, and polls in the operations.
    let is_measuring = |receiver: &u32| ticks_of_thread(*receiver, "rdmc-measure") > 10;
    await_that("the receivers take part", || {
        let receivers = children(bench.id());
        receivers.len() == 2 && receivers.iter().all(is_measuring)
    });
    let receivers = children(bench.id());
    signal(receivers[0], "KILL");
    let outcome = Outcome::of(bench.wait_with_output().unwrap());
    assert!(matches!(outcome.code, Some(1 | 3)), "{outcome:?}");
    let names =
        |name: &str| outcome.err.lines().any(|it| it.starts_with(&format!("rdmc: {name}: ")));
    assert!(names("local-1") ^ names("local-2"), "one host is named: {outcome:?}");
    assert!(receivers.into_iter().all(|receiver| !is_running(receiver)));
}

/// Also after libraries of fabrics were loaded, which must not install signal handlers.
#[test]
fn ctrl_c_ends_a_bench_and_its_receivers() {
    let place = Place::with(0);
    let arguments = ["bench", "--local", "2", "--round-trips", "1000000", "--fabric", "auto"];
    let bench = place.rdmc(&arguments).spawn().unwrap();
    let is_joined = |receiver: &u32| has_thread(*receiver, "rdmc-progress");
    await_that("the receivers take part in groups", || {
        let receivers = children(bench.id());
        receivers.len() == 2 && receivers.iter().all(is_joined)
    });
    let receivers = children(bench.id());
    signal(bench.id(), "INT");
    let outcome = Outcome::of(bench.wait_with_output().unwrap());
    outcome.has_failed_with(130, "interrupted");
    assert!(receivers.into_iter().all(|receiver| !is_running(receiver)));
}
