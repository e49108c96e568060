//! The channels of one direction of a stream, of which one is selected.

use rustc_hash::FxHashMap;

/// The parts of channels, by number. One of them is available without a lookup: the only one, or, on a shared
/// connection, that whose frames come or go now.
pub(crate) struct Selected<T> {
    pub(crate) current: T,
    pub(crate) number: u32,
    others: FxHashMap<u32, T>,
}

impl<T> Selected<T> {
    /// Begins with channel 0 selected: the only one, or, on a shared connection, one that no group has.
    pub(crate) fn new(first: T) -> Self {
        Self { current: first, number: 0, others: FxHashMap::default() }
    }

    /// Adds a channel of a shared connection.
    pub(crate) fn add(&mut self, number: u32, channel: T) {
        self.others.insert(number, channel);
    }

    /// Returns a channel; `None` if it was removed.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        if number == self.number { Some(&self.current) } else { self.others.get(&number) }
    }

    /// As [`Selected::get`].
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        if number == self.number { Some(&mut self.current) } else { self.others.get_mut(&number) }
    }

    /// Selects a channel. Returns false if there is none of this number.
    pub(crate) fn select(&mut self, number: u32) -> bool {
        if number == self.number {
            return true;
        }
        let Some(next) = self.others.remove(&number) else { return false };
        let last = std::mem::replace(&mut self.current, next);
        self.others.insert(std::mem::replace(&mut self.number, number), last);
        true
    }

    /// Removes a channel of a shared connection; in place of the selected one 0 is selected.
    pub(crate) fn remove(&mut self, number: u32) {
        if number == self.number {
            self.select(0);
        }
        self.others.remove(&number);
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.current).chain(self.others.values_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_channel_is_found_like_the_others() {
        let mut channels = Selected::new("none");
        channels.add(3, "three");
        channels.add(5, "five");
        for number in [3, 3, 5, 0, 5] {
            assert!(channels.select(number));
            assert_eq!(channels.number, number);
            let all = [0, 3, 5, 4].map(|number| channels.get(number).copied());
            assert_eq!(all, [Some("none"), Some("three"), Some("five"), None]);
            assert_eq!(channels.get_mut(number).copied(), Some(channels.current));
            assert_eq!(channels.iter_mut().count(), 3);
        }
        assert!(!channels.select(4));
        assert_eq!((channels.number, channels.current), (5, "five"));
        channels.remove(5);
        assert_eq!((channels.number, channels.current), (0, "none"));
        channels.remove(3);
        assert!(channels.get(5).is_none() && channels.get(3).is_none());
    }
}
