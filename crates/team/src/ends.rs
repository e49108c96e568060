//! How a member learns that a slot of its rings was written.

use transport::Visibility;

/// How a member learns that one of its slots was written. It tells those that write, so that
/// members may differ.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum WriteEnds {
    /// By flags where the transport vouches for what they need and they show earlier than reports
    /// ([`Visibility`]): by the last byte, or short contents by words where bytes may become visible out of order. By reports
    /// elsewhere.
    #[default]
    Auto,
    /// The transport reports every write. Works on every network.
    Reports,
    /// By a flag in the last byte of the slot, whatever the transport vouches for: where bytes of a
    /// write become visible out of order, results are wrong.
    LastByte,
    /// Contents of up to 128 bytes by a flag in every word of eight bytes, whatever the transport
    /// vouches for: where aligned words become visible in parts, results are wrong. Longer ones by
    /// reports, and all of them if slots do not begin at multiples of eight.
    Words,
}

/// What one member looks at in slots that a linked member writes, besides reports.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Marks {
    pub(crate) last_byte: bool,
    pub(crate) words: bool,
}

const LAST_BYTE: u8 = 1;
const WORDS: u8 = 2;

impl Marks {
    /// Returns what to look at by the setting; `is_aligned` if all slots begin at multiples of eight.
    pub(crate) fn new(ends: WriteEnds, vouched: Visibility, is_aligned: bool) -> Self {
        let (last_byte, words) = match ends {
            // One flag takes less time than one in each word.
            WriteEnds::Auto if vouched.in_order => (vouched.early, false),
            WriteEnds::Auto => (false, vouched.early && vouched.whole_words),
            WriteEnds::Reports => (false, false),
            WriteEnds::LastByte => (true, false),
            WriteEnds::Words => (false, true),
        };
        Self { last_byte, words: words && is_aligned }
    }

    /// Returns whether writes may come that are not reported.
    pub(crate) fn any(self) -> bool {
        self.last_byte || self.words
    }

    pub(crate) fn encode(self) -> u8 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.last_byte, LAST_BYTE) | bit(self.words, WORDS)
    }

    /// `None` for anything that [`Marks::encode`] does not return.
    pub(crate) fn decode(encoded: u8) -> Option<Self> {
        let marks = Self { last_byte: encoded & LAST_BYTE != 0, words: encoded & WORDS != 0 };
        (marks.encode() == encoded).then_some(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_used_where_they_are_vouched_for() {
        let vouched = |in_order, whole_words, early| Visibility { in_order, whole_words, early };
        let marks = |ends, vouched, is_aligned| {
            let Marks { last_byte, words } = Marks::new(ends, vouched, is_aligned);
            (last_byte, words)
        };
        assert_eq!(marks(WriteEnds::Auto, vouched(true, true, true), true), (true, false));
        assert_eq!(marks(WriteEnds::Auto, vouched(false, true, true), true), (false, true));
        assert_eq!(marks(WriteEnds::Auto, vouched(true, false, true), true), (true, false));
        assert_eq!(marks(WriteEnds::Auto, vouched(true, true, false), true), (false, false));
        assert_eq!(marks(WriteEnds::Reports, vouched(true, true, true), true), (false, false));
        assert_eq!(marks(WriteEnds::LastByte, Visibility::default(), true), (true, false));
        assert_eq!(marks(WriteEnds::Words, Visibility::default(), true), (false, true));
        assert_eq!(marks(WriteEnds::Words, Visibility::default(), false), (false, false));
        let decoded: Vec<u8> =
            (0..=u8::MAX).filter(|&byte| Marks::decode(byte).is_some()).collect();
        assert_eq!(decoded, [0, 1, 2, 3]);
    }
}
