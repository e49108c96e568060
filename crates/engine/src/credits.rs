//! Coalescing of credits: when the receives that are posted for a neighbour are granted to it.
//!
//! A word for every receive would wake a neighbour as often as blocks do. A grant is therefore held
//! back while the neighbour has more credits left than the grant contains. The neighbour never
//! waits for a grant that is held back, since it still has credits, and one word grants half a
//! window.

use std::collections::BTreeMap;

/// The accounts of all neighbours, by rank.
#[derive(Debug, Default)]
pub(crate) struct Credits(BTreeMap<u32, Account>);

#[derive(Debug, Default)]
struct Account {
    /// Receives that were granted, and whose blocks have not arrived.
    left: u32,
    /// Receives that were not granted yet.
    held: u32,
}

impl Credits {
    /// Notes that a receive has been posted.
    pub(crate) fn posted(&mut self, rank: u32) {
        self.0.entry(rank).or_default().held += 1;
    }

    /// Notes that a block has arrived.
    pub(crate) fn used(&mut self, rank: u32) {
        if let Some(account) = self.0.get_mut(&rank) {
            account.left = account.left.saturating_sub(1);
        }
    }

    /// Returns a neighbour to which a grant is due, and the number of receives to grant, which
    /// count as granted from then on.
    pub(crate) fn due(&mut self) -> Option<(u32, u32)> {
        let (&rank, account) = self
            .0
            .iter_mut()
            .find(|(_, account)| account.held > 0 && account.held >= account.left)?;
        account.left += account.held;
        Some((rank, std::mem::take(&mut account.held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_receives_are_granted_at_once() {
        let mut credits = Credits::default();
        assert_eq!(credits.due(), None);
        (0..16).for_each(|_| credits.posted(3));
        credits.posted(1);
        assert_eq!(
            [credits.due(), credits.due(), credits.due()],
            [Some((1, 1)), Some((3, 16)), None]
        );
    }

    #[test]
    fn half_a_window_comes_by_one_word() {
        let mut credits = Credits::default();
        (0..16).for_each(|_| credits.posted(3));
        let mut words = vec![credits.due()];
        for _ in 0..16 {
            credits.used(3);
            credits.posted(3);
            words.extend(credits.due().map(Some));
        }
        assert_eq!(words, [Some((3, 16)), Some((3, 8)), Some((3, 8))]);
    }

    #[test]
    fn a_neighbour_is_never_left_without_while_receives_are_posted() {
        for window in 1..=20 {
            let mut credits = Credits::default();
            let mut left = 0;
            (0..window).for_each(|_| credits.posted(0));
            for _ in 0..100 {
                left += credits.due().map_or(0, |(_, count)| count);
                assert!(left > 0, "window {window}");
                left -= 1;
                credits.used(0);
                credits.posted(0);
            }
        }
    }
}
