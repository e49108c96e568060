//! Blocks that arrive by one thread and are sent on by another while they do.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering, fence},
};

use transport::Waker;

/// Who of the threads of a transport has to be woken when bytes have arrived.
pub(crate) struct Arrivals {
    threads: Box<[Follower]>,
}

struct Follower {
    /// It sends blocks which have not arrived as a whole.
    follows: AtomicBool,
    /// It was woken, and has not looked since.
    is_notified: AtomicBool,
    waker: Waker,
}

/// One thread's view.
pub(crate) struct OwnArrivals {
    all: Arc<Arrivals>,
    own: usize,
    /// [`crate::TcpCounters::arrivals`] of this thread when the others were last notified.
    noted: u64,
}

impl Arrivals {
    /// `wakers`: those of all threads, by number.
    pub(crate) fn new(wakers: impl IntoIterator<Item = Waker>) -> Arc<Self> {
        let follower = |waker| Follower {
            follows: AtomicBool::new(false),
            is_notified: AtomicBool::new(false),
            waker,
        };
        Arc::new(Self { threads: wakers.into_iter().map(follower).collect() })
    }

    pub(crate) fn of(self: &Arc<Self>, own: usize) -> OwnArrivals {
        OwnArrivals { all: Arc::clone(self), own, noted: 0 }
    }
}

impl OwnArrivals {
    /// Says whether this thread follows blocks. If so, it has to look how much has arrived afterwards.
    pub(crate) fn announce(&self, follows: bool) {
        let own = &self.all.threads[self.own];
        if follows || own.follows.load(Ordering::Relaxed) {
            own.is_notified.store(false, Ordering::Relaxed);
            own.follows.store(follows, Ordering::Relaxed);
            // Either this thread sees what has arrived, or the one by which it came sees that this one follows.
            fence(Ordering::SeqCst);
        }
    }

    /// Wakes the threads that follow blocks if more has arrived by this one, whose [`crate::TcpCounters::arrivals`] this is.
    pub(crate) fn notify(&mut self, arrivals: u64) {
        if std::mem::replace(&mut self.noted, arrivals) == arrivals {
            return;
        }
        fence(Ordering::SeqCst);
        for (number, other) in self.all.threads.iter().enumerate() {
            if number != self.own
                && other.follows.load(Ordering::Relaxed)
                && !other.is_notified.swap(true, Ordering::Relaxed)
            {
                (other.waker)();
            }
        }
    }
}
