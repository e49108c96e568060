//! Ctrl-C and its kin.

use std::{
    io, process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use files::PushHandle;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::failure::{Failure, INTERRUPTED};

/// Signals within this time are one, which some programs send to a process and to its group.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends a running push in an orderly way on SIGINT, SIGTERM and SIGHUP. After a second signal the push
/// waits for nobody any more and only says what is known; a third ends the process at once, and so does a
/// second without a push.
pub struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    interrupted: AtomicBool,
    push: Mutex<Option<PushHandle>>,
}

impl Interrupt {
    /// Catches signals from now on.
    pub fn catch() -> Result<Self, Failure> {
        let failed = Failure::while_doing("catching signals");
        let mut signals = match Signals::new([SIGINT, SIGTERM, SIGHUP]) {
            Ok(signals) => signals,
            Err(error) => return Err(failed(error)),
        };
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let watch = move || {
            let mut last: Option<Instant> = None;
            let mut count = 0;
            for _ in signals.forever() {
                if last.is_some_and(|last| last.elapsed() <= PATIENCE) {
                    continue;
                }
                (last, count) = (Some(Instant::now()), count + 1);
                watched.interrupted.store(true, Ordering::SeqCst);
                match &*watched.push() {
                    Some(push) if count <= 2 => push.cancel(),
                    _ if count > 1 => process::exit(i32::from(INTERRUPTED)),
                    _ => {}
                }
            }
        };
        match thread::Builder::new().name("rdmc-signals".into()).spawn(watch) {
            Ok(_) => Ok(Self { shared }),
            Err(error) => Err(failed(error)),
        }
    }

    /// The push to cancel from now on, instead of any before.
    pub fn watch(&self, push: PushHandle) {
        if self.happened() {
            push.cancel();
        }
        *self.shared.push() = Some(push);
    }

    /// Whether a signal has come.
    pub fn happened(&self) -> bool {
        self.shared.interrupted.load(Ordering::SeqCst)
    }

    /// [`Failure::Interrupted`] if a signal has come.
    pub fn check(&self) -> Result<(), Failure> {
        if self.happened() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

impl Shared {
    fn push(&self) -> std::sync::MutexGuard<'_, Option<PushHandle>> {
        self.push.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flag that is set by the same signals, for commands that look at it themselves.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}
