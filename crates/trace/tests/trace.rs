//! Events of `rdmc::timeline` in, a file out.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use serde_json::Value;
use trace::{Part, Summary, Trace, Writer};
use tracing_subscriber::layer::SubscriberExt;

/// An event as the library makes them.
macro_rules! happens {
    ($what:literal $(, $field:ident = $value:expr)*) => {
        tracing::trace!(
            target: "rdmc::timeline",
            what = $what, group = 7_u64, member = 0_u32, $($field = $value),*
        )
    };
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes what happens meanwhile.
    fn record(&self, name: &str, part: &Part, happen: impl FnOnce()) -> Summary {
        let writer = Writer::start(File::create(self.path(name)).unwrap(), part).unwrap();
        let subscriber = tracing_subscriber::registry().with(writer.layer());
        tracing::subscriber::with_default(subscriber, happen);
        writer.close().unwrap()
    }

    fn events(&self, name: &str) -> Vec<Value> {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }
}

fn slices(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["ph"] == "X").collect()
}

#[test]
fn beginnings_and_ends_are_matched() {
    let place = Place::new();
    let summary = place.record("part", &Part::alone(None), || {
        tracing::trace!("not for a trace");
        for post in [1_u64, 2] {
            happens!(
                "send",
                peer = 3_u32,
                message = 0_u64,
                block = 4_u32,
                step = 5_u64,
                post = post
            );
        }
        happens!("sent", peer = 3_u32, post = 2_u64);
        happens!("send", peer = 3_u32, message = 0_u64, block = 9_u32, post = 3_u64);
        happens!("sent", peer = 3_u32, post = 1_u64);
        happens!("waits_for_credit", peer = 3_u32, message = 0_u64, block = 6_u32);
        happens!("waits_no_more");
        happens!("grant", peer = 1_u32, post = 8_u64);
        happens!("something new");
    });
    assert_eq!(summary, Summary { events: 8, lost: 0 });
    let events = place.events("part");
    let shown: Vec<(&str, &str, Option<bool>)> = slices(&events)
        .iter()
        .map(|slice| {
            let text = |name: &str| slice[name].as_str().unwrap();
            (text("cat"), text("name"), slice["args"]["unfinished"].as_bool())
        })
        .collect();
    let expected = [
        ("send", "block 4", None),
        ("send", "block 4", None),
        ("wait", "waits for credit of member 3 for block 6", None),
        ("send", "block 9", Some(true)),
    ];
    assert_eq!(shown, expected, "the receive of a message that never came is not shown");
    let first = slices(&events)[0];
    assert_eq!(first["args"]["step"], 5);
    assert_eq!((&first["pid"], &first["args"]["group"]), (&1.into(), &7.into()));
    let tracks: Vec<&Value> = slices(&events).iter().map(|slice| &slice["tid"]).collect();
    assert_ne!(tracks[0], tracks[1], "they overlap");
    assert_eq!(tracks[0], tracks[3], "the track was free again");
}

#[test]
fn parts_of_several_processes_make_one_file() {
    let place = Place::new();
    let mut trace = Trace::create(&place.path("trace")).unwrap();
    let send = || {
        happens!("send", peer = 3_u32, message = 0_u64, block = 4_u32, post = 1_u64);
        happens!("sent", peer = 3_u32, post = 1_u64);
    };
    for number in [0, 1] {
        place.record("part", &trace.part(number, format!("host {number}")), send);
        trace.add(File::open(place.path("part")).unwrap()).unwrap();
    }
    trace.finish().unwrap();
    let events = place.events("trace");
    let processes: Vec<&Value> = slices(&events).iter().map(|slice| &slice["pid"]).collect();
    assert_eq!(processes, [1, 2]);
    let arrows: Vec<&Value> =
        events.iter().filter(|event| event["ph"] == "s").map(|event| &event["id"]).collect();
    assert_eq!(arrows[0], arrows[1], "the same block of the same members is the same arrow");
}

#[test]
fn what_is_no_event_is_left_out() {
    let place = Place::new();
    let mut trace = Trace::create(&place.path("trace")).unwrap();
    trace.add(&b"[\n{\"ph\":\"i\"},\n{\"ph\":\"cut off"[..]).unwrap();
    trace.add(&b"hello {\n{}}\n[]\n\xff\n{\"ph\":\"X\"}\n]\n"[..]).unwrap();
    let long = format!("{{\"name\":\"{}\"}}\n{{\"ph\":\"M\"}}\n", "x".repeat(1 << 20));
    trace.add(long.as_bytes()).unwrap();
    trace.add(&b""[..]).unwrap();
    trace.finish().unwrap();
    let phases: Vec<Value> =
        place.events("trace").iter().map(|event| event["ph"].clone()).collect();
    assert_eq!(phases, ["i", "X", "M"]);
    Trace::create(&place.path("empty")).unwrap().finish().unwrap();
    assert!(place.events("empty").is_empty());
}

#[test]
fn nothing_is_written_once_it_is_closed() {
    let place = Place::new();
    let out = File::create(place.path("part")).unwrap();
    let writer = Writer::start(out, &Part::alone(None)).unwrap();
    let subscriber = tracing_subscriber::registry().with(writer.layer());
    assert_eq!(writer.close().unwrap().events, 0);
    tracing::subscriber::with_default(subscriber, || happens!("granted", peer = 1_u32));
    assert!(place.events("part").is_empty());
}
