//! `--progress` without a terminal.

use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::common::{Outcome, Place, signal};

fn objects(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn json_ends_with_what_was_reached() {
    let place = Place::with(100_000);
    let outcome = place.run_words("push object --local 2 --progress json --json");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.json()["hosts"][1]["state"], "published");
    let all = objects(&outcome.err);
    assert_eq!(all.len(), outcome.err.lines().count(), "nothing else: {outcome:?}");
    let last = all.last().unwrap();
    assert_eq!(last["schema"], 1);
    let fields = ["bytes", "received_bytes", "hosts", "hosts_done", "hosts_failed"];
    let values = fields.map(|name| last[name].as_u64().unwrap());
    assert_eq!(values, [100_000, 100_000, 2, 2, 0], "{last}");
    assert_eq!((&last["phase"], &last["slowest"]), (&"writing to disk".into(), &Value::Null));
}

#[test]
fn quiet_and_none_print_nothing() {
    let place = Place::with(100_000);
    for words in ["--progress none", "--progress json -q"] {
        let outcome = place.run_words(&format!("push object --local 2 {words}"));
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    }
    let unknown = place.run_words("push object --local 1 --progress often");
    unknown.has_failed_with(2, "auto, plain, json, none");
}

#[test]
fn lines_come_while_nothing_happens() {
    let place = Place::with(10);
    // Never connects.
    let launcher = "sh -c 'exec sleep 1000' {host}";
    let arguments = ["push", "object", "--to", "a,b", "--launcher", launcher, "--progress", "json"];
    let mut push = place.rdmc(&arguments).spawn().unwrap();
    let mut printed = BufReader::new(push.stderr.take().unwrap());
    let mut text = String::new();
    while objects(&text).len() < 2 {
        assert!(printed.read_line(&mut text).unwrap() > 0, "it has ended: {text}");
    }
    for object in objects(&text) {
        assert_eq!((&object["phase"], &object["hosts_done"]), (&"starting".into(), &0.into()));
        assert_eq!(object["slowest"]["state"], "waiting", "{object}");
    }
    signal(push.id(), "INT");
    assert_eq!(Outcome::of(push.wait_with_output().unwrap()).code, Some(130));
}
