//! Connections of which not all streams are there yet.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use session::{Deadline, Threads};
use transport_tcp::STREAMS_MAX;

use super::{
    busiest::busiest,
    messages::{Hello, Purpose},
};

/// How many connections may be incomplete at the same time.
const FORMING_MAX: usize = 1024;

/// The streams of a connection, by their number, until all are there.
struct Forming<C> {
    channels: Vec<Option<C>>,
    purpose: Option<Purpose>,
    /// The other end of its first stream.
    from: IpAddr,
    /// Of an older connection, a smaller one.
    number: u64,
    until: Deadline,
}

/// Assembles connections from their streams. Incomplete ones end by a deadline, on a thread that there is as long as any are incomplete: no
/// other stream has to come for that, and none can once the process has no descriptor left.
pub(super) struct Assembly<C> {
    shared: Arc<Shared<C>>,
    threads: Threads,
    timeout: Duration,
}

struct Shared<C> {
    incomplete: Mutex<Incomplete<C>>,
    closed: Condvar,
}

struct Incomplete<C> {
    /// By their identity.
    connections: HashMap<[u8; 16], Forming<C>>,
    /// How many streams have come.
    added: u64,
    /// Whether a thread waits for their deadlines.
    is_watched: bool,
    is_closed: bool,
}

impl<C: Send + 'static> Assembly<C> {
    /// `timeout`: how long all streams of a connection may take.
    pub(super) fn new(timeout: Duration) -> Self {
        let connections = HashMap::new();
        let incomplete = Incomplete { connections, added: 0, is_watched: false, is_closed: false };
        let shared = Shared { incomplete: Mutex::new(incomplete), closed: Condvar::new() };
        Self { shared: Arc::new(shared), threads: Threads::default(), timeout }
    }

    /// Adds a stream from this address to its connection. Returns all streams, and what they are for, once they are there.
    ///
    /// Errors: the system cannot start a thread.
    pub(super) fn add(
        &self,
        hello: Hello,
        from: IpAddr,
        channel: C,
    ) -> io::Result<Option<(Vec<C>, Purpose)>> {
        let mut incomplete = self.shared.lock();
        if incomplete.is_closed {
            return Ok(None);
        }
        let complete = incomplete.add(hello, from, channel, Deadline::after(self.timeout));
        if !incomplete.is_watched && !incomplete.connections.is_empty() {
            let shared = Arc::clone(&self.shared);
            let what = "the thread that ends incomplete connections".into();
            let watched = self.threads.spawn("rdmc-incomplete", what, move || shared.watch());
            // Without the thread, none may stay: it would have no end.
            watched.inspect_err(|_| incomplete.connections.clear())?;
            incomplete.is_watched = true;
        }
        Ok(complete)
    }

    /// Drops incomplete connections, and all streams that come from now on.
    pub(super) fn close(&self, deadline: Deadline) -> Vec<String> {
        let mut incomplete = self.shared.lock();
        incomplete.is_closed = true;
        incomplete.connections.clear();
        drop(incomplete);
        self.shared.closed.notify_all();
        self.threads.join(deadline)
    }
}

impl<C> Shared<C> {
    /// Ends connections at their deadlines, until none is incomplete.
    fn watch(&self) {
        let mut incomplete = self.lock();
        while let Some(left) = incomplete.time_left() {
            let woken = self.closed.wait_timeout(incomplete, left);
            incomplete = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            incomplete.connections.retain(|_, one| !one.until.left().is_zero());
        }
        incomplete.is_watched = false;
    }

    fn lock(&self) -> MutexGuard<'_, Incomplete<C>> {
        self.incomplete.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<C> Incomplete<C> {
    fn add(
        &mut self,
        hello: Hello,
        from: IpAddr,
        channel: C,
        until: Deadline,
    ) -> Option<(Vec<C>, Purpose)> {
        let Hello { id, stream, streams, purpose } = hello;
        if stream >= streams || usize::from(streams) > STREAMS_MAX {
            return None;
        }
        if self.connections.len() >= FORMING_MAX && !self.connections.contains_key(&id) {
            self.drop_one_of_most(from);
        }
        self.added += 1;
        let number = self.added;
        let channels = || (0..streams).map(|_| None).collect();
        let none = || Forming { channels: channels(), purpose: None, from, number, until };
        let one = self.connections.entry(id).or_insert_with(none);
        one.purpose = one.purpose.take().or(purpose);
        *one.channels.get_mut(usize::from(stream))? = Some(channel);
        if one.channels.iter().any(Option::is_none) {
            return None;
        }
        let Forming { channels, purpose, .. } = self.connections.remove(&id)?;
        Some((channels.into_iter().flatten().collect(), purpose?))
    }

    /// Drops the oldest connection of the address from which most have come. A member's streams come within milliseconds, so
    /// that an old one is hardly a connection that others complete.
    fn drop_one_of_most(&mut self, newcomer: IpAddr) {
        let most = busiest(self.connections.values().map(|one| one.from), newcomer);
        let of_most = self.connections.iter().filter(|(_, one)| Some(one.from) == most);
        let oldest = of_most.min_by_key(|(_, one)| one.number).map(|(&id, _)| id);
        if let Some(id) = oldest {
            self.connections.remove(&id);
        }
    }

    /// Returns the time until the first of them has to end.
    fn time_left(&self) -> Option<Duration> {
        self.connections.values().map(|one| one.until.left()).min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};

    use super::{
        super::{choice::Question, messages::Asks, terms::Addresses},
        *,
    };

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A stand-in for a stream, and what notices that it is dropped.
    fn stream() -> (Sender<()>, Receiver<()>) {
        channel()
    }

    fn hello(id: usize, stream: u8, streams: u8) -> Hello {
        let (addresses, timeout_ms) = (Addresses::new(&[]), 1);
        let question = Question { group: 1, from: 1, to: 0, root: 0, addresses, timeout_ms };
        let purpose = (stream == 0).then_some(Purpose::Own(Asks::Choice(question)));
        Hello { id: (id as u128).to_le_bytes(), stream, streams, purpose }
    }

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn an_incomplete_connection_ends_although_no_other_stream_comes() {
        let assembly = Assembly::new(Duration::from_millis(1));
        // The second time, the thread of the first one has ended, or is about to.
        for id in 0..2 {
            let (one, dropped) = stream();
            assert!(assembly.add(hello(id, 0, 8), address(1), one).unwrap().is_none());
            assert_eq!(dropped.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        }
        assert!(assembly.close(Deadline::after(PATIENCE)).is_empty());
    }

    #[test]
    fn closing_ends_incomplete_connections_and_takes_no_more() {
        let assembly = Assembly::new(Duration::MAX);
        let (ones, dropped): (Vec<_>, Vec<_>) = (0..2).map(|_| stream()).unzip();
        for (id, one) in ones.into_iter().enumerate() {
            assert!(assembly.add(hello(id, 0, 2), address(1), one).unwrap().is_none());
            assert_eq!(
                dropped[id].try_recv(),
                [Err(TryRecvError::Empty), Err(TryRecvError::Disconnected)][id]
            );
            if id == 0 {
                assert!(assembly.close(Deadline::after(PATIENCE)).is_empty());
                assert_eq!(dropped[id].try_recv(), Err(TryRecvError::Disconnected));
            }
        }
    }

    #[test]
    fn streams_make_a_connection_in_any_order_and_wrong_numbers_none() {
        let assembly = Assembly::new(Duration::MAX);
        let add = |stream, streams| assembly.add(hello(1, stream, streams), address(1), stream);
        assert!(add(0, 0).unwrap().is_none());
        assert!(add(2, 2).unwrap().is_none());
        assert!(add(0, STREAMS_MAX as u8 + 1).unwrap().is_none());
        assert!(assembly.shared.lock().connections.is_empty());
        assert!(add(1, 2).unwrap().is_none());
        assert_eq!(add(0, 2).unwrap().map(|(streams, _)| streams), Some(vec![0, 1]));
        assert!(assembly.close(Deadline::after(PATIENCE)).is_empty());
    }

    #[test]
    fn an_address_with_many_incomplete_connections_keeps_out_no_other() {
        let assembly = Assembly::new(PATIENCE * 60);
        let add = |id, stream, from| assembly.add(hello(id, stream, 2), address(from), ()).unwrap();
        let is_there =
            |id| assembly.shared.lock().connections.contains_key(&(id as u128).to_le_bytes());
        assert!(add(0, 0, 2).is_none());
        for id in 1..FORMING_MAX {
            assert!(add(id, 0, 1).is_none());
        }
        assert!(add(FORMING_MAX, 0, 3).is_none());
        assert_eq!([0, 1, 2, FORMING_MAX].map(is_there), [true, false, true, true]);
        // Its own oldest makes way for one more of the address with the most.
        assert!(add(FORMING_MAX + 1, 0, 1).is_none());
        assert_eq!([0, 2, 3, FORMING_MAX + 1].map(is_there), [true, false, true, true]);
        for id in [0, FORMING_MAX, FORMING_MAX + 1] {
            assert!(add(id, 1, 1).is_some(), "the other stream replaces none");
        }
        assert_eq!(assembly.shared.lock().connections.len(), FORMING_MAX - 3);
        assert!(assembly.close(Deadline::after(PATIENCE)).is_empty());
    }
}
