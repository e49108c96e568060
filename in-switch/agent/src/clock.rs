//! The time by which leases expire and are renewed, and timers of periodic tasks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::Notify,
    time::{Interval, MissedTickBehavior, interval},
};

use crate::forwarding::lock;

/// The time by which an agent's leases expire and are renewed.
///
/// Deadlines of calls and the interval at which routes are read are always by the machine's clock.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's monotonic clock.
    #[default]
    Machine,
    /// A clock that only its owner advances, as in tests.
    Manual(ManualClock),
}

impl Clock {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Machine => Instant::now(),
            Self::Manual(clock) => lock(&clock.0.state).now,
        }
    }

    pub(crate) fn since(&self, start: Instant) -> Duration {
        self.now().saturating_duration_since(start)
    }

    /// A timer that is due now for the first time, and then a period after each time that it was due.
    ///
    /// Panics: with the machine's clock, this is no thread of a tokio runtime.
    pub(crate) fn timer(&self, period: Duration) -> Timer {
        match self {
            Self::Machine => {
                let mut ticks = interval(period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                Timer::Machine(ticks)
            }
            Self::Manual(clock) => Timer::Manual(clock.timer(period)),
        }
    }
}

/// A clock that stands still until it is advanced. Clones are the same clock, which any number of agents may
/// have.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The clock was advanced.
    advanced: Notify,
    /// A timer was set to a later time, or dropped.
    timer_set: Condvar,
}

#[derive(Debug)]
struct State {
    now: Instant,
    /// By number: when each timer is due. While its task runs that is in the past.
    timers: BTreeMap<u64, Instant>,
    timers_made: u64,
}

impl ManualClock {
    /// It starts with the present time.
    pub fn new() -> Self {
        let state = State { now: Instant::now(), timers: BTreeMap::new(), timers_made: 0 };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            advanced: Notify::new(),
            timer_set: Condvar::new(),
        }))
    }

    /// Advances the clock, and blocks until all periodic tasks that are due by then have ended at all agents
    /// with this clock. A task runs once, however many of its periods have passed.
    ///
    /// Returns false if some have not ended within `timeout`, which is by the machine's clock.
    #[must_use]
    pub fn advance(&self, by: Duration, timeout: Duration) -> bool {
        let mut state = lock(&self.0.state);
        state.now += by;
        let now = state.now;
        self.0.advanced.notify_waiters();
        let is_busy = |state: &mut State| state.timers.values().any(|due| *due <= now);
        let waited = self.0.timer_set.wait_timeout_while(state, timeout, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn timer(&self, period: Duration) -> ManualTimer {
        let mut state = lock(&self.0.state);
        let (number, now) = (state.timers_made, state.now);
        state.timers_made += 1;
        state.timers.insert(number, now);
        ManualTimer { clock: self.clone(), number, period, due_last: None }
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

/// Says when a periodic task is due.
#[derive(Debug)]
pub(crate) enum Timer {
    Machine(Interval),
    Manual(ManualTimer),
}

impl Timer {
    /// Waits until the task is due. The task of the time before has ended.
    pub(crate) async fn due(&mut self) {
        match self {
            Self::Machine(ticks) => _ = ticks.tick().await,
            Self::Manual(timer) => timer.due().await,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ManualTimer {
    clock: ManualClock,
    number: u64,
    period: Duration,
    /// When its task was started the last time.
    due_last: Option<Instant>,
}

impl ManualTimer {
    async fn due(&mut self) {
        let shared = &self.clock.0;
        if let Some(last) = self.due_last.take() {
            lock(&shared.state).timers.insert(self.number, last + self.period);
            shared.timer_set.notify_all();
        }
        loop {
            // Made before the time is read, so that no advance between the two is missed.
            let advanced = shared.advanced.notified();
            {
                let state = lock(&shared.state);
                if state.timers.get(&self.number).is_some_and(|due| *due <= state.now) {
                    self.due_last = Some(state.now);
                    return;
                }
            }
            advanced.await;
        }
    }
}

impl Drop for ManualTimer {
    fn drop(&mut self) {
        lock(&self.clock.0.state).timers.remove(&self.number);
        self.clock.0.timer_set.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{self, JoinHandle};
    use tokio::sync::oneshot;

    const PERIOD: Duration = Duration::from_secs(10);
    const MOMENT: Duration = Duration::from_nanos(1);
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Runs a periodic task on another thread until it is stopped; it notes when it runs.
    fn start(clock: &Clock) -> (Arc<Mutex<Vec<Instant>>>, oneshot::Sender<()>, JoinHandle<()>) {
        let times = Arc::<Mutex<Vec<Instant>>>::default();
        let (mut timer, clock, noted) = (clock.timer(PERIOD), clock.clone(), Arc::clone(&times));
        let task = async move {
            loop {
                timer.due().await;
                lock(&noted).push(clock.now());
            }
        };
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = task => {}
                    _ = stopped => {}
                }
            });
        });
        (times, stop, thread)
    }

    #[test]
    fn an_advance_ends_after_the_tasks_that_are_due() {
        let manual = ManualClock::new();
        let clock = Clock::Manual(manual.clone());
        let begin = clock.now();
        let (times, stop, thread) = start(&clock);
        let mut expected = vec![Duration::ZERO];
        for (by, is_due) in [
            (Duration::ZERO, false),
            (PERIOD - MOMENT, false),
            (MOMENT, true),
            (PERIOD * 5, true),
            (PERIOD - MOMENT, false),
            (MOMENT, true),
        ] {
            assert!(manual.advance(by, TIMEOUT));
            expected.extend(is_due.then(|| clock.since(begin)));
            let found: Vec<Duration> = lock(&times).iter().map(|time| *time - begin).collect();
            assert_eq!(found, expected);
        }
        stop.send(()).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn an_advance_reports_tasks_that_do_not_end_and_ignores_timers_that_have_gone() {
        let clock = ManualClock::new();
        let timer = clock.timer(PERIOD);
        assert!(!clock.advance(Duration::ZERO, Duration::ZERO), "nobody waits for it");
        drop(timer);
        assert!(clock.advance(PERIOD, Duration::ZERO));
    }
}
