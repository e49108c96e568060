//! What is planned in virtual time.

use std::collections::BTreeMap;

/// Events in the order of time; within an instant in that of their keys, then as they were planned.
#[derive(Debug)]
pub(crate) struct Queue<K, E> {
    events: BTreeMap<(u64, K, u64), E>,
    planned: u64,
}

impl<K: Ord, E> Default for Queue<K, E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), planned: 0 }
    }
}

impl<K: Ord, E> Queue<K, E> {
    /// Plans an event.
    pub(crate) fn plan(&mut self, at_ns: u64, key: K, event: E) {
        self.planned += 1;
        self.events.insert((at_ns, key, self.planned), event);
    }

    /// Returns the time of the next event.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at_ns, ..), _)| *at_ns)
    }

    /// Takes the next event, with its time and key.
    pub(crate) fn pop(&mut self) -> Option<(u64, K, E)> {
        self.events.pop_first().map(|((at_ns, key, _), event)| (at_ns, key, event))
    }

    /// Returns the events that are planned up to a time.
    pub(crate) fn until(&self, at_ns: u64) -> impl Iterator<Item = &E> {
        let events = self.events.iter().take_while(move |((at, ..), _)| *at <= at_ns);
        events.map(|(_, event)| event)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
    }
}
