//! What has arrived of one block, by the messages that have completed.

use crate::native::link::segments::{SEGMENTS_MAX, Segments};

/// The messages of one block that have arrived. Only counts; the queue of receives has the memory.
#[derive(Debug)]
pub struct Arrival {
    segments: Segments,
    /// The length of each message that has completed.
    lengths: [Option<usize>; SEGMENTS_MAX],
    /// The number of messages, from the first one, that have completed,
    messages: usize,
    /// and the number of bytes that they have brought.
    bytes: usize,
    /// One of them did not fill its place, so the block is over.
    is_over: bool,
    immediate: Option<u32>,
}

impl Arrival {
    pub fn new(segments: Segments) -> Self {
        Self {
            segments,
            lengths: [None; SEGMENTS_MAX],
            messages: 0,
            bytes: 0,
            is_over: false,
            immediate: None,
        }
    }

    pub fn segments(&self) -> Segments {
        self.segments
    }

    /// Records a message. Returns how many more bytes there are now from the first one on: a message
    /// counts once all before it have arrived.
    ///
    /// Errors: how the peer broke the protocol, as text.
    pub fn add(&mut self, index: usize, bytes: usize, immediate: u32) -> Result<usize, String> {
        if *self.immediate.get_or_insert(immediate) != immediate {
            return Err("changed the immediate inside a block".into());
        }
        self.lengths[index] = Some(bytes);
        let before = self.bytes;
        while let Some(bytes) = self.lengths.get(self.messages).copied().flatten() {
            let place_bytes = self.segments.place(self.messages).len();
            if bytes > place_bytes || (self.is_over && bytes > 0) {
                return Err("sent a block whose segments have other lengths than agreed".into());
            }
            self.is_over |= bytes < place_bytes;
            self.bytes += bytes;
            self.messages += 1;
        }
        Ok(self.bytes - before)
    }

    /// Returns whether all messages have arrived.
    pub fn is_complete(&self) -> bool {
        self.messages == self.segments.count()
    }

    /// Returns how many bytes have arrived from the first one on.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the immediate of the first message that has arrived.
    pub fn immediate(&self) -> u32 {
        self.immediate.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: usize = 1 << 10;

    fn of_512_kib() -> Arrival {
        Arrival::new(Segments::cut(512 * KIB))
    }

    #[test]
    fn what_the_peer_may_not_do() {
        let mut arrival = of_512_kib();
        assert_eq!(arrival.add(0, 64 * KIB, 7), Ok(64 * KIB));
        assert!(arrival.add(1, 64 * KIB, 8).unwrap_err().contains("immediate"));
        let mut arrival = of_512_kib();
        arrival.add(0, 10, 7).unwrap();
        assert!(arrival.add(1, 1, 7).unwrap_err().contains("lengths"), "a gap in the block");
        let mut arrival = of_512_kib();
        assert_eq!(arrival.add(1, 1, 7), Ok(0));
        assert!(arrival.add(0, 10, 7).unwrap_err().contains("lengths"));
        assert!(of_512_kib().add(0, 65 * KIB, 7).unwrap_err().contains("lengths"));
    }

    proptest! {
        /// Messages in any order make the block, and never more than its first bytes count.
        #[test]
        fn bytes_count_in_order(
            memory in 1..3_000_000_usize,
            share in 0..=100_usize,
            order in Just((0..SEGMENTS_MAX).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let segments = Segments::cut(memory);
            let block = memory * share / 100;
            let mut arrival = Arrival::new(segments);
            let mut arrived = [false; SEGMENTS_MAX];
            let mut bytes = 0;
            for index in order.into_iter().filter(|&index| index < segments.count()) {
                prop_assert!(!arrival.is_complete());
                let part = segments.range(index, block);
                bytes += arrival.add(index, part.len(), 5).unwrap();
                arrived[index] = true;
                let first = arrived.iter().take_while(|it| **it).count();
                prop_assert_eq!(bytes, segments.range(first, block).start);
                prop_assert_eq!(bytes, arrival.bytes());
            }
            prop_assert!(arrival.is_complete());
            prop_assert_eq!((bytes, arrival.immediate()), (block, 5));
        }
    }
}
