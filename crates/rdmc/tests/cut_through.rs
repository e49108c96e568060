//! Groups relay blocks that are arriving, over every network that can follow them.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rdmc::{Algorithm, Fabric, Progress, Region};
use tracing::{
    Dispatch, Metadata, Subscriber,
    dispatcher::with_default,
    field::{Field, Visit},
    span,
};

use crate::common::{self, Event, PATIENCE, World, contents, group};

const BLOCK_BYTES: u64 = 1 << 20;
const BLOCKS: usize = 16;

/// A `send` or `received` of the timeline.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Moment {
    what: String,
    member: u64,
    block: u64,
}

/// Keeps the timeline.
#[derive(Clone, Default)]
struct Timeline(Arc<Mutex<Vec<Moment>>>);

impl Visit for Moment {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "member" => self.member = value,
            "block" => self.block = value,
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "what" {
            value.clone_into(&mut self.what);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Timeline {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rdmc::timeline"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut moment = Moment::default();
        event.record(&mut moment);
        self.0.lock().unwrap().push(moment);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Sends a message along a chain of three, and returns how many blocks the middle sent on before it had
/// received all of them.
fn sent_on_early(world: &World) -> usize {
    let groups = world.join(|rank| group(1, Algorithm::Chain, 3, 0)(rank).block_bytes(BLOCK_BYTES));
    // The last block is short.
    let bytes = BLOCKS * BLOCK_BYTES as usize - 100_000;
    let timeline = Timeline::default();
    with_default(&Dispatch::new(timeline.clone()), || {
        groups[0].0.try_send(Region::from_vec(contents(0, bytes))).unwrap();
        groups.iter().for_each(|(group, _)| group.start_close().unwrap());
        let (mut ended, until) = ([false; 3], Instant::now() + PATIENCE);
        while ended.contains(&false) {
            assert!(Instant::now() < until, "{ended:?}");
            for (member, context) in world.contexts.iter().enumerate() {
                context.progress(Duration::from_millis(1)).unwrap();
                for event in groups[member].1.try_iter() {
                    match event {
                        Event::Complete(0, data) => assert!(data == contents(0, bytes)),
                        Event::Failed(failure, _) => panic!("{failure}"),
                        Event::Closed => ended[member] = true,
                        _ => {}
                    }
                }
            }
        }
    });
    let moments = timeline.0.lock().unwrap();
    let place = |what: &str, block: usize| {
        let wanted = Moment { what: what.into(), member: 1, block: block as u64 };
        let at = moments.iter().position(|moment| *moment == wanted);
        at.unwrap_or_else(|| panic!("no {wanted:?}"))
    };
    (0..BLOCKS).filter(|&block| place("send", block) < place("received", block)).count()
}

#[test]
fn blocks_that_are_arriving_are_sent_on() {
    for name in ["tcp", "ofi-tcp"] {
        let fabric: Fabric = name.parse().unwrap();
        let mut settings = common::context_settings(&rdmc::Secret::random().unwrap());
        settings.fabric = fabric.clone();
        match rdmc::Context::start(settings) {
            Ok(context) => context.close(PATIENCE).unwrap(),
            Err(error) => {
                eprintln!("SKIPPED: over {name}, which needs libfabric: {error}");
                continue;
            }
        }
        let world = World::start_with(3, |settings| {
            settings.fabric = fabric.clone();
            settings.progress = Progress::Caller;
        });
        let early = sent_on_early(&world);
        // Over TCP a block that has waited in a socket may be read at once.
        let least = if name == "tcp" { 1 } else { BLOCKS / 2 };
        assert!(early >= least, "over {name} only {early} of {BLOCKS} blocks");
        world.close();
    }
}
