//! Signals that end a command: SIGINT, SIGTERM, SIGHUP.

use std::{
    fs, io, process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use files::PushHandle;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    iterator::Signals,
};

use crate::failure::{Exit, Failure};

/// Signals within this time of another count as the same: some programs signal a process and its group.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Ends a command in an orderly way on SIGINT, SIGTERM and SIGHUP. After a second signal a push stops waiting for hosts and
/// reports what is known; a third signal ends the process at once, as does a second one without a push. Signals that were
/// ignored at the start of the process, as by `nohup`, stay ignored.
pub struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The command has started work that must be ended in an orderly way.
    has_begun: AtomicBool,
    /// The flag that parts of a command poll.
    stop: Arc<AtomicBool>,
    /// The first signal; 0 before.
    signal: AtomicI32,
    push: Mutex<Option<PushHandle>>,
}

impl Interrupt {
    /// Catches signals from now on. Until [`Interrupt::begin`] a signal ends the process at once, with `json` after
    /// printing one object.
    pub fn catch(json: bool) -> Result<Self, Failure> {
        let failed = Failure::while_doing("catching signals");
        let ignored = ignored();
        let caught =
            [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !contains(ignored, signal));
        let mut signals = match Signals::new(caught) {
            Ok(signals) => signals,
            Err(error) => return Err(failed(error)),
        };
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let watch = move || {
            let mut last: Option<Instant> = None;
            let mut count = 0;
            for signal in signals.forever() {
                if !watched.has_begun.load(Ordering::SeqCst) {
                    exit(Failure::Interrupted.report(json));
                }
                if last.is_some_and(|last| last.elapsed() <= SAME_SIGNAL) {
                    continue;
                }
                (last, count) = (Some(Instant::now()), count + 1);
                if !watched.take(signal, count) {
                    exit(Exit::Interrupted);
                }
            }
        };
        match thread::Builder::new().name("rdmc-signals".into()).spawn(watch) {
            Ok(_) => Ok(Self { shared }),
            Err(error) => Err(failed(error)),
        }
    }

    /// From now on signals end the command in an orderly way.
    pub fn begin(self) -> Self {
        self.shared.has_begun.store(true, Ordering::SeqCst);
        self
    }

    /// Sets the push to cancel, replacing any earlier one.
    pub fn watch(&self, push: PushHandle) {
        let mut watched = self.shared.push();
        if self.happened() {
            push.cancel();
        }
        *watched = Some(push);
    }

    /// A flag that the first signal sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.stop)
    }

    /// Whether there was a signal.
    pub fn happened(&self) -> bool {
        self.shared.signal.load(Ordering::SeqCst) != 0
    }

    /// Whether the first signal was SIGTERM, which ends services.
    pub fn is_termination(&self) -> bool {
        self.shared.signal.load(Ordering::SeqCst) == SIGTERM
    }

    /// Errors: [`Failure::Interrupted`] after a signal.
    pub fn check(&self) -> Result<(), Failure> {
        if self.happened() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

impl Shared {
    /// Handles a signal; `count` is 1 for the first. False: the process must end at once.
    fn take(&self, signal: i32, count: u32) -> bool {
        // Keeps the first signal.
        let _ = self.signal.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
        self.stop.store(true, Ordering::SeqCst);
        match &*self.push() {
            Some(push) if count <= 2 => push.cancel(),
            _ => return count == 1,
        }
        true
    }

    fn push(&self) -> std::sync::MutexGuard<'_, Option<PushHandle>> {
        self.push.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes writes beyond the limit on file sizes (`ulimit -f`) fail with an error instead of killing the process.
pub fn survive_file_size_limits() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

fn exit(exit: Exit) -> ! {
    process::exit(i32::from(exit.code()))
}

/// The signals that this process ignores, as a mask: bit 0 is signal 1. 0 if unknown.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    mask(&status).unwrap_or(0)
}

fn mask(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn contains(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        let mask = mask("SigBlk:\t0000000000004000\nSigIgn:\t0000000000001001\n").unwrap();
        assert_eq!([SIGHUP, SIGINT, SIGTERM].map(|it| contains(mask, it)), [true, false, false]);
        assert!(super::mask("Name:\tx\n").is_none() && super::mask("SigIgn: x\n").is_none());
    }
}
