//! Traces of `rdmc`, as they are written.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use schedule::{Algorithm, Schedule};
use serde_json::Value;

use crate::common::{Place, RDMC};

/// The events of a trace.
fn events(place: &Place, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn number(event: &Value, name: &str) -> f64 {
    event[name].as_f64().unwrap_or_else(|| panic!("no {name} in {event}"))
}

fn of_category<'a>(events: &'a [Value], category: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["ph"] == "X" && event["cat"] == category)
}

/// What the format (Trace Event Format) asks of an event of each phase, and nothing beside that.
fn check_schema(event: &Value) {
    let phase = event["ph"].as_str().unwrap_or_else(|| panic!("no phase: {event}"));
    let fields: &[&str] = match phase {
        "X" => &["ph", "pid", "tid", "name", "cat", "ts", "dur", "args"],
        "i" => &["ph", "pid", "tid", "name", "cat", "ts", "s", "args"],
        "s" => &["ph", "pid", "tid", "name", "cat", "ts", "id"],
        "f" => &["ph", "pid", "tid", "name", "cat", "ts", "id", "bp"],
        "M" => &["ph", "pid", "tid", "name", "args"],
        _ => panic!("a phase that nobody knows: {event}"),
    };
    let object = event.as_object().unwrap();
    let names: BTreeSet<&str> = object.keys().map(String::as_str).collect();
    assert_eq!(names, fields.iter().copied().collect(), "{event}");
    for (name, value) in object {
        let count = value.as_u64();
        let is_right = match name.as_str() {
            // Readers keep these in 32 bits.
            "pid" | "tid" => count.is_some_and(|number| (1..1 << 31).contains(&number)),
            "id" => count.is_some_and(|number| number < 1 << 53),
            "ts" | "dur" => value.as_f64().is_some_and(|time| (0.0..1e15).contains(&time)),
            "s" => value == "t",
            "bp" => value == "e",
            "args" if phase == "M" => is_label(&event["name"], value),
            "args" => value
                .as_object()
                .is_some_and(|facts| facts.iter().all(|(name, value)| is_fact(name, value))),
            _ => value.as_str().is_some_and(|text| !text.is_empty()),
        };
        assert!(is_right, "{name} is wrong: {event}");
    }
}

fn is_label(name: &Value, args: &Value) -> bool {
    let is_alone = args.as_object().is_some_and(|args| args.len() == 1);
    is_alone
        && match name.as_str() {
            Some("process_name" | "thread_name") => args["name"].is_string(),
            Some("process_sort_index" | "thread_sort_index") => args["sort_index"].is_u64(),
            _ => false,
        }
}

fn is_fact(name: &String, value: &Value) -> bool {
    if name == "unfinished" { value.is_boolean() } else { value.is_u64() }
}

/// What all traces promise: no time runs backwards, nothing on one track overlaps, every track and
/// process has a name, and arrows have two ends, each in a slice.
fn check(events: &[Value]) {
    let mut tracks: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    let (mut used, mut named) = (BTreeSet::new(), BTreeSet::new());
    let mut arrows: BTreeMap<u64, Vec<(&str, f64)>> = BTreeMap::new();
    let mut ends_of_arrows = Vec::new();
    for event in events {
        check_schema(event);
        let (track, process) = (event["tid"].as_u64().unwrap(), event["pid"].as_u64().unwrap());
        let phase = event["ph"].as_str().unwrap();
        if phase == "M" {
            let what = event["name"].as_str().unwrap();
            named.insert((what, if what.starts_with("process") { process } else { track }));
            continue;
        }
        used.extend([("process_name", process), ("thread_name", track)]);
        match phase {
            "X" => {
                let (start, length) = (number(event, "ts"), number(event, "dur"));
                assert!(start >= 0.0 && length >= 0.0, "{event}");
                tracks.entry(track).or_default().push((start, start + length));
            }
            "s" | "f" => {
                let arrow = arrows.entry(event["id"].as_u64().unwrap()).or_default();
                arrow.push((phase, number(event, "ts")));
                ends_of_arrows.push((track, number(event, "ts")));
            }
            "i" => {}
            other => panic!("{other} is not known"),
        }
    }
    for (track, at) in ends_of_arrows {
        let has_slice = tracks[&track].iter().any(|&(start, end)| start <= at && at <= end);
        assert!(has_slice, "an arrow ends on track {track} at {at}, where nothing is");
    }
    assert!(used.is_subset(&named), "{:?}", used.difference(&named));
    for (track, mut slices) in tracks {
        slices.sort_by(|a, b| a.partial_cmp(b).unwrap());
        // Half a nanosecond for what adding in floating point loses.
        let apart = slices.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 0.0005);
        assert!(apart, "slices overlap on track {track}: {slices:?}");
    }
    for (id, mut ends) in arrows {
        ends.sort_by_key(|&(phase, _)| phase == "f");
        let [("s", start), ("f", end)] = ends[..] else { panic!("arrow {id} has {ends:?}") };
        assert!(start <= end, "arrow {id} points to the past");
    }
}

/// (step, source, target, block) of all transfers of message 0.
fn transfers(members: u32, blocks: u32) -> BTreeSet<[u64; 4]> {
    let schedule = Schedule::new(Algorithm::BinomialPipeline, members, 0).unwrap();
    let mut all = BTreeSet::new();
    for rank in 1..members {
        let mut step = 0;
        while let Some(transfer) = schedule.next_receive(rank, step, blocks) {
            step = transfer.step + 1;
            let ends = [transfer.source, transfer.target, transfer.block].map(u64::from);
            all.insert([transfer.step, ends[0], ends[1], ends[2]]);
        }
    }
    all
}

/// The same as slices of a category show them.
fn shown(events: &[Value], category: &str) -> BTreeSet<[u64; 4]> {
    let of_contents = |slice: &&Value| slice["args"]["message"] == 0;
    of_category(events, category)
        .filter(of_contents)
        .map(|slice| {
            let argument = |name: &str| slice["args"][name].as_u64().unwrap();
            let (own, peer) = (argument("member"), argument("peer"));
            let (source, target) = if category == "send" { (own, peer) } else { (peer, own) };
            [argument("step"), source, target, argument("block")]
        })
        .collect()
}

#[test]
fn a_push_shows_every_transfer_of_the_schedule() {
    let place = Place::with(100_000);
    let outcome = place.run_words(
        "push object --local 4 --algorithm binomial-pipeline --block-size 8192 --trace trace.json",
    );
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    let events = events(&place, "trace.json");
    check(&events);
    let expected = transfers(5, 13);
    assert_eq!(shown(&events, "send"), expected);
    assert_eq!(shown(&events, "receive"), expected);
    assert_eq!(of_category(&events, "copy").count(), 4, "only first blocks are copied");
    for slice in of_category(&events, "send").filter(|slice| slice["args"]["message"] == 0) {
        let last = slice["args"]["block"] == 12;
        assert_eq!(slice["args"]["bytes"], if last { 100_000 - 12 * 8192 } else { 8192 });
    }
    let names: Vec<&Value> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| &event["args"]["name"])
        .collect();
    assert_eq!(names, ["root", "local-1", "local-2", "local-3", "local-4"]);
    assert_eq!(of_category(&events, "message").count(), 5);
    assert_eq!(fs::read_dir(place.directory.path()).unwrap().count(), 3, "parts are left behind");
}

#[test]
fn launched_receivers_send_their_parts_by_any_launcher() {
    let place = Place::with(50_000);
    // Some shells greet on standard output.
    let launcher = "sh -c 'echo \"welcome to $0 {\"; exec \"$@\"' {host}";
    let dest = place.path("copy-{host}");
    let dest = dest.to_str().unwrap();
    let address = ["--advertise", "127.0.0.1", "--remote-rdmc", RDMC, "--launcher", launcher];
    let push = ["push", "object", "--to", "a,b", "--dest", dest, "--trace", "trace.json"];
    let outcome = place.run(&[&push[..], &address].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let events = events(&place, "trace.json");
    check(&events);
    assert_eq!(shown(&events, "receive"), transfers(3, 1));
}

#[test]
fn demonstrations_and_measurements_are_traced() {
    let place = Place::with(10);
    for command in [
        "demo --receivers 2 --size 1MiB --dir . --trace trace.json",
        "bench --local 2 --size 1MiB --repeats 1 --round-trips 1 --trace trace.json",
    ] {
        let outcome = place.run_words(command);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let events = events(&place, "trace.json");
        check(&events);
        assert!(of_category(&events, "receive").count() > 8, "{command}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_refused_at_once() {
    let place = Place::with(10);
    let outcome = place.run_words("push object --local 1 --trace missing/trace.json");
    outcome.has_failed_with(1, "--trace missing/trace.json: No such file");
    assert!(!place.path("rdmc-local").exists());
    place
        .run_words("receive --session --trace trace.json")
        .has_failed_with(2, "cannot be used with");
}
