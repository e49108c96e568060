//! Events of `rdmc::timeline` in, a file out.

use std::{
    fs::{self, File},
    io::BufReader,
    path::PathBuf,
};

use serde_json::Value;
use trace::{Lasting, Part, Reason, Shown, Slice, Summary, Trace, Writer};
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
fn a_block_that_overtakes_its_announcement_is_of_the_message_of_its_copy() {
    let place = Place::new();
    place.record("part", &Part::alone(None), || {
        happens!("grant", peer = 1_u32, post = 8_u64);
        happens!("received", peer = 1_u32, block = 3_u32, post = 8_u64);
        happens!("copy", message = 5_u64, post = 8_u64);
        happens!("copied", message = 5_u64, post = 8_u64);
        // The group ends before it is announced.
        happens!("grant", peer = 1_u32, post = 9_u64);
        happens!("received", peer = 1_u32, block = 0_u32, post = 9_u64);
    });
    let events = place.events("part");
    let receives: Vec<_> = slices(&events)
        .iter()
        .filter(|slice| slice["cat"] == "receive")
        .map(|slice| (slice["name"].as_str().unwrap(), slice["args"]["message"].as_u64()))
        .collect();
    assert_eq!(receives, [("block 3", Some(5)), ("block 0", None)]);
}

#[test]
fn parts_of_several_processes_make_one_file() {
    let place = Place::new();
    let mut trace = Trace::begin(File::create(place.path("trace")).unwrap()).unwrap();
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
fn invalid_events_are_left_out() {
    let place = Place::new();
    let mut trace = Trace::begin(File::create(place.path("trace")).unwrap()).unwrap();
    trace.add(&b"[\n{\"ph\":\"i\"},\n{\"ph\":\"cut off"[..]).unwrap();
    trace.add(&b"hello {\n{}}\n[]\n\xff\n{\"ph\":\"X\"}\n]\n"[..]).unwrap();
    let long = format!("{{\"name\":\"{}\"}}\n{{\"ph\":\"M\"}}\n", "x".repeat(1 << 20));
    trace.add(long.as_bytes()).unwrap();
    trace.add(&b""[..]).unwrap();
    trace.finish().unwrap();
    let phases: Vec<Value> =
        place.events("trace").iter().map(|event| event["ph"].clone()).collect();
    assert_eq!(phases, ["i", "X", "M"]);
    Trace::begin(File::create(place.path("empty")).unwrap()).unwrap().finish().unwrap();
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

#[test]
fn what_was_written_is_read_again() {
    let place = Place::new();
    place.record("part", &Part::alone(None), || {
        happens!("send", peer = 3_u32, message = 1_u64, block = 4_u32, step = 5_u64, post = 1_u64);
        happens!("waits_for_block", peer = 2_u32, message = 1_u64, block = 6_u32);
        happens!("granted", peer = 1_u32);
        happens!("waits_for_memory", message = 1_u64);
        happens!("waits_no_more");
    });
    let shown = |name: &str| -> Vec<Slice> {
        trace::read(BufReader::new(File::open(place.path(name)).unwrap()))
            .map(|shown| match shown.unwrap() {
                Shown::Slice(slice) => slice,
                Shown::Lost(lost) => panic!("{lost} events were lost"),
            })
            .collect()
    };
    let slices = shown("part");
    let what: Vec<Lasting> = slices.iter().map(|slice| slice.what).collect();
    let expected = [Lasting::Wait(Reason::Block), Lasting::Wait(Reason::Memory), Lasting::Send];
    assert_eq!(what, expected);
    assert_eq!(slices[0].peer, Some(2));
    let send = &slices[2];
    let facts = (send.group, send.member, send.peer, send.message, send.step, send.block);
    assert_eq!(facts, (7, 0, Some(3), Some(1), Some(5), Some(4)));
    assert!(send.unfinished && send.start_ns <= slices[0].start_ns);
    assert_eq!(slices[0].end_ns, slices[1].start_ns, "one wait follows the other");
    // The process was stopped while it ran.
    let text = fs::read_to_string(place.path("part")).unwrap();
    fs::write(place.path("cut"), text.strip_suffix("\n]\n").unwrap()).unwrap();
    assert_eq!(shown("cut"), slices);
}

#[test]
fn an_invalid_trace_is_refused_with_the_line() {
    let slice = |rest: &str| format!("[\n{{\"ph\":\"M\"}},\n{{\"ph\":\"X\",{rest}}}\n]\n");
    let facts = r#""args":{"group":1,"member":2}"#;
    for (rest, ok) in [
        (format!(r#""name":"block 1","cat":"send","ts":1.5,"dur":2,{facts}"#), true),
        (format!(r#""name":"block 1","cat":"send","ts":-1,"dur":2,{facts}"#), false),
        (format!(r#""name":"block 1","cat":"send","ts":1e300,"dur":2,{facts}"#), false),
        (format!(r#""name":"block 1","cat":"blob","ts":1,"dur":2,{facts}"#), false),
        (r#""name":"block 1","cat":"send","ts":1,"dur":2,"args":{}"#.to_owned(), false),
        ("]".to_owned(), false),
    ] {
        let read: Result<Vec<Shown>, _> = trace::read(slice(&rest).as_bytes()).collect();
        match read {
            Ok(shown) => assert!(ok && shown.len() == 1, "{rest}"),
            Err(error) => assert!(!ok && error.to_string().starts_with("line 3 "), "{error}"),
        }
    }
    let lost = br#"{"ph":"i","name":"17 events were lost"}"#;
    assert_eq!(trace::read(&lost[..]).next().unwrap().unwrap(), Shown::Lost(17));
}
