//! Writing a copy to disk steadily while it is received, so that little is left for the end.

use std::fs::File;

use crate::{
    disk,
    ranges::{ByteRange, Ranges},
};

/// Bytes of which writing is started at once.
const STEP_BYTES: u64 = 8 << 20;

/// How far the writing of one file was started, in order.
pub(crate) struct Writeback<'a> {
    /// Bytes of the object that this session does not write.
    kept: &'a Ranges,
    /// Where in the object the file is.
    holds: ByteRange,
    started: u64,
}

impl<'a> Writeback<'a> {
    /// For the file that is the part `holds` of an object.
    pub(crate) fn new(kept: &'a Ranges, holds: ByteRange) -> Self {
        Self { kept, holds, started: holds.0 }
    }

    /// The first `final_bytes` bytes of the file will not change any more. Starts to write those to disk that make up
    /// whole steps; at the end, all. May wait for the disk's queue.
    pub(crate) fn advance(&mut self, file: &File, final_bytes: u64) {
        let position = self.holds.0 + final_bytes;
        while self.started < position {
            let end = position.min(self.started + STEP_BYTES);
            if end - self.started < STEP_BYTES && end < self.holds.1 {
                return;
            }
            for (start, end) in self.kept.gaps((self.started, end)) {
                disk::start_writeback(file, (start - self.holds.0, end - self.holds.0));
            }
            self.started = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::advice::{Advised, take};

    const MIB: u64 = 1 << 20;

    fn started(
        kept: &[ByteRange],
        holds: ByteRange,
        steps: impl IntoIterator<Item = u64>,
    ) -> Vec<ByteRange> {
        let (kept, file) = (kept.iter().copied().collect(), tempfile::tempfile().unwrap());
        let mut writeback = Writeback::new(&kept, holds);
        take();
        for step in steps {
            writeback.advance(&file, step);
        }
        let range = |advised| match advised {
            Advised::Writeback(range) => range,
            Advised::ReadAhead(range) => panic!("reads {range:?}"),
        };
        take().into_iter().map(range).collect()
    }

    #[test]
    fn whole_steps_are_written_as_soon_as_they_are_final_and_the_rest_at_the_end() {
        let holds = (100, 100 + 20 * MIB + 3);
        let all = [(0, 8 * MIB), (8 * MIB, 16 * MIB), (16 * MIB, 20 * MIB + 3)];
        let steps = (0..=20).map(|mib| mib * MIB);
        assert_eq!(started(&[], holds, steps.clone()), all[..2]);
        assert_eq!(started(&[], holds, steps.chain([20 * MIB + 3])), all);
        assert_eq!(started(&[], holds, [20 * MIB + 3]), all);
        assert_eq!(started(&[], (7, 7), [0]), []);
    }

    #[test]
    fn what_was_there_before_is_left_alone() {
        let kept = [(0, 10 * MIB), (11 * MIB, 13 * MIB), (19 * MIB, 99 * MIB)];
        let holds = (MIB, 31 * MIB);
        let expected = [(9 * MIB, 10 * MIB), (12 * MIB, 16 * MIB), (16 * MIB, 18 * MIB)];
        assert_eq!(started(&kept, holds, [30 * MIB]), expected);
        assert_eq!(started(&[(0, 31 * MIB)], holds, [30 * MIB]), []);
    }
}
