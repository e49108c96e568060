//! A stream: what was queued, in order, on a thread.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

/// How long a stream waits for what another has to do first, or while it is held back.
const PATIENCE: Duration = Duration::from_secs(120);

/// Something that is set once.
#[derive(Default)]
pub struct Mark {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Mark {
    pub fn set(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        *lock(&self.is_set)
    }

    /// Returns whether it was set in time.
    pub fn wait(&self) -> bool {
        let waiting = self.changed.wait_timeout_while(lock(&self.is_set), PATIENCE, |set| !*set);
        !waiting.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// What a stream does.
pub enum Task {
    /// Sets the mark of an event.
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
        is_up: bool,
    },
}

/// Whether a stream's copies are held back.
#[derive(Default)]
pub struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub fn close(&self, is_closed: bool) {
        *lock(&self.is_closed) = is_closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let waiting =
            self.changed.wait_timeout_while(lock(&self.is_closed), PATIENCE, |closed| *closed);
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The end of a stream at which tasks are queued. Its thread ends when this is dropped and all is done.
#[derive(Clone)]
pub struct Queue {
    tasks: Sender<Task>,
    /// Tasks that were queued and are not done.
    left: Arc<AtomicU64>,
    pub gate: Arc<Gate>,
    pub device: i32,
}

impl Queue {
    /// Starts the thread, which calls `copy` with target, source, length and whether it goes to the device; and `stuck` after a
    /// wait without end.
    pub fn start(
        device: i32,
        copy: impl Fn(u64, u64, u64, bool) + Send + 'static,
        stuck: impl Fn() + Send + 'static,
    ) -> Self {
        let (sender, tasks) = channel();
        let gate = Arc::new(Gate::default());
        let left = Arc::new(AtomicU64::new(0));
        let (here, count) = (Arc::clone(&gate), Arc::clone(&left));
        thread::spawn(move || run(&tasks, &here, &count, copy, stuck));
        Self { tasks: sender, left, gate, device }
    }

    pub fn is_idle(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    pub fn push(&self, task: Task) {
        self.left.fetch_add(1, Ordering::SeqCst);
        // The thread lives as long as there is a sender.
        let _ = self.tasks.send(task);
    }
}

fn run(
    tasks: &Receiver<Task>,
    gate: &Gate,
    left: &AtomicU64,
    copy: impl Fn(u64, u64, u64, bool),
    stuck: impl Fn(),
) {
    for task in tasks {
        match task {
            Task::Record(mark) => mark.set(),
            Task::Wait(mark) => {
                if !mark.wait() {
                    stuck();
                }
            }
            Task::Copy { to, from, bytes, is_up } => {
                gate.pass();
                copy(to, from, bytes, is_up);
            }
        }
        left.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
