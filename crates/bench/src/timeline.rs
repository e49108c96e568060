//! What happens when at a member: the library's events of `rdmc::timeline`, kept in memory.

use std::{
    fmt::Debug,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    layer::{Context, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::member::now_ns;

/// One thing that a member did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// By `CLOCK_MONOTONIC`, which all processes of a host share.
    pub at_ns: u64,
    /// `grant`, `send`, `received`, `copy` or `copied`.
    pub step: String,
    pub peer: u64,
    pub block: u64,
}

static MOMENTS: Mutex<Vec<Moment>> = Mutex::new(Vec::new());

/// Records from now on, for the whole process.
pub fn record() {
    let only = Targets::new().with_target("rdmc::timeline", Level::TRACE);
    tracing_subscriber::registry().with(Recorder.with_filter(only)).init();
}

/// All that was recorded since this was last called.
pub fn take() -> Vec<Moment> {
    std::mem::take(&mut moments())
}

fn moments() -> MutexGuard<'static, Vec<Moment>> {
    MOMENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Recorder;

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut moment = Moment { at_ns: now_ns(ClockId::Monotonic), ..Default::default() };
        event.record(&mut moment);
        moments().push(moment);
    }
}

impl Visit for Moment {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "peer" => self.peer = value,
            "block" => self.block = value,
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "step" {
            self.step = value.to_owned();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
