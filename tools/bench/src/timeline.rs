//! The library's events of `rdmc::timeline` at a member, kept in memory or written to a trace.

use std::sync::{Mutex, MutexGuard, PoisonError};

use trace::{Moment, Writer};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

use crate::clock::{ClockId, now_ns};

static MOMENTS: Mutex<Vec<Moment>> = Mutex::new(Vec::new());

/// Records from now on, for the whole process: in memory if `keep`, and to a trace if there is one.
pub fn record(keep: bool, writer: Option<&Writer>) {
    let kept = keep.then(|| {
        trace::layer(|moment| {
            // By the clock that all processes of a host share.
            let at_ns = now_ns(ClockId::Monotonic);
            moments().push(Moment { at_ns, ..moment });
        })
    });
    tracing_subscriber::registry().with(kept).with(writer.map(Writer::layer)).init();
}

/// All that was kept since this was last called.
pub fn take() -> Vec<Moment> {
    std::mem::take(&mut moments())
}

fn moments() -> MutexGuard<'static, Vec<Moment>> {
    MOMENTS.lock().unwrap_or_else(PoisonError::into_inner)
}
