//! Ctrl-C and its kin.

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

/// Signals within this time are one, which some programs send to a process and to its group.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends a command in an orderly way on SIGINT, SIGTERM and SIGHUP. After a second signal a push waits for
/// no host any more and only says what is known; a third ends the process at once, and so does a second
/// without a push. Those that were ignored when the process was started, as `nohup` and shells do it,
/// stay ignored.
pub struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Something was begun that has to be ended in order.
    has_begun: AtomicBool,
    /// The flag that parts of a command look at themselves.
    stop: Arc<AtomicBool>,
    /// The first signal; 0 before.
    signal: AtomicI32,
    push: Mutex<Option<PushHandle>>,
}

impl Interrupt {
    /// Catches signals from now on. Until [`Interrupt::begin`] they end the process, whatever it waits
    /// for, since nothing was begun; with `json` after telling so in one object.
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
                if last.is_some_and(|last| last.elapsed() <= PATIENCE) {
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

    /// From now on signals end the command in order.
    pub fn begin(self) -> Self {
        self.shared.has_begun.store(true, Ordering::SeqCst);
        self
    }

    /// The push to cancel from now on, instead of any before.
    pub fn watch(&self, push: PushHandle) {
        let mut watched = self.shared.push();
        if self.happened() {
            push.cancel();
        }
        *watched = Some(push);
    }

    /// Set by the first signal, for what looks at it now and then.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.stop)
    }

    /// Whether a signal has come.
    pub fn happened(&self) -> bool {
        self.shared.signal.load(Ordering::SeqCst) != 0
    }

    /// Whether it was the one by which services are ended.
    pub fn is_termination(&self) -> bool {
        self.shared.signal.load(Ordering::SeqCst) == SIGTERM
    }

    /// [`Failure::Interrupted`] if a signal has come.
    pub fn check(&self) -> Result<(), Failure> {
        if self.happened() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

impl Shared {
    /// Takes note of a signal; `count` is 1 for the first. False: the process is to end at once.
    fn take(&self, signal: i32, count: u32) -> bool {
        // The first is the one that is told.
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

/// Lets writing beyond a limit on file sizes (`ulimit -f`) fail, which can be reported, instead of ending the process.
pub fn survive_file_size_limits() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

fn exit(exit: Exit) -> ! {
    process::exit(i32::from(exit.code()))
}

/// The signals that this process ignores, as a mask: bit 0 is signal 1. None where the kernel does
/// not tell.
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
    fn ignored_signals_are_known() {
        let mask = mask("SigBlk:\t0000000000004000\nSigIgn:\t0000000000001001\n").unwrap();
        assert_eq!([SIGHUP, SIGINT, SIGTERM].map(|it| contains(mask, it)), [true, false, false]);
        assert!(super::mask("Name:\tx\n").is_none() && super::mask("SigIgn: x\n").is_none());
    }
}
