//! A stream of bytes in records: what is written is encrypted, and what is read was verified.
//!
//! Long slices are encrypted from where they are, and long contents are decrypted to where they belong; short ones are copied. The
//! kind of a content is decrypted behind it. So a record is decrypted in place if its slice has no space behind
//! it, and the last bytes of a long slice are sent with what follows: the record before them finds its space.

use std::{
    io::{IoSlice, IoSliceMut},
    ops::Range,
    os::fd::BorrowedFd,
};

use rustix::io::Errno;

use crate::{
    byte_stream::ByteStream,
    record::{
        self, BadRecord, CONTENT_BYTES_MAX, END_BYTES, HEAD_BYTES, Opener, Sealer, sealed_bytes_max,
    },
};

/// Up to this many bytes are copied, which costs less than a record of their own.
const SHORT_BYTES_MAX: usize = 4 << 10;

/// How many bytes of a long slice are left for the next record.
const LEFT_BYTES: usize = 16;

/// Records are made up to this length before they are written: they stay in the processor's cache.
const BATCH_BYTES: usize = 64 << 10;

/// The length of the buffer of received records while they are short, and otherwise.
const RECEIVED_BYTES_MIN: usize = 1 << 10;
const RECEIVED_BYTES: usize = 128 << 10;

/// A part of a record shows that the peer is alive if it grows by this much: by more than the heartbeats of a whole
/// [`crate::TcpSettings::silence_timeout`], which a record that was made longer on the way would swallow.
const PROGRESS_BYTES: usize = 1 << 10;

/// One read takes about this many bytes at most besides those that it returns, however short records are.
const OVERHEAD_BYTES_MAX: usize = 128 << 10;

/// Reading fails with this if a record is not what the other end has sent; the kernel's TLS has the same error.
pub(crate) const CORRUPT: Errno = Errno::BADMSG;
/// Reading fails with this if the other end has refused a record.
pub(crate) const REFUSED: Errno = Errno::REMOTEIO;

/// What the bytes of a stream pass through.
pub(crate) enum Bytes<S> {
    Plain(S),
    Protected(Box<ProtectedStream<S>>),
}

/// A stream of bytes in records.
pub(crate) struct ProtectedStream<S> {
    stream: S,
    opener: Opener,
    /// Records that were read.
    received: Vec<u8>,
    /// Those in `received` that are not opened.
    sealed: Range<usize>,
    /// What was decrypted in `received` and is not read.
    opened: Range<usize>,
    /// How many bytes have come since the last whole record, or since they were last taken for progress.
    part_bytes: usize,
    /// How many bytes besides data were in the records that were opened since they were last counted.
    overhead_bytes: usize,
    /// How many bytes of records were written since they were last counted.
    written_records_bytes: usize,
    /// The last read has ended before the slices were full, and though there may be more.
    has_more: bool,
    /// Why reading fails once all before it was read: `PIPE` if the other end has closed its direction.
    failed: Option<Errno>,
    sealer: Sealer,
    /// Records to write, of which those in `unwritten` are not written.
    made: Vec<u8>,
    unwritten: Range<usize>,
    /// Contents of the next record.
    short: Vec<u8>,
    /// How many bytes were accepted, and how many of these had been when all records were last written.
    accepted_bytes: u64,
    written_bytes: u64,
}

impl<S> Bytes<S> {
    pub(crate) fn protected(stream: S, opener: Opener, sealer: Sealer) -> Self {
        Self::Protected(Box::new(ProtectedStream {
            stream,
            opener,
            received: vec![0; RECEIVED_BYTES_MIN],
            sealed: 0..0,
            opened: 0..0,
            part_bytes: 0,
            overhead_bytes: 0,
            written_records_bytes: 0,
            has_more: false,
            failed: None,
            sealer,
            made: Vec::new(),
            unwritten: 0..0,
            short: Vec::new(),
            accepted_bytes: 0,
            written_bytes: 0,
        }))
    }

    /// Returns the stream below.
    pub(crate) fn into_stream(self) -> S {
        match self {
            Self::Plain(stream) => stream,
            Self::Protected(protected) => protected.stream,
        }
    }

    pub(crate) fn stream(&self) -> &S {
        match self {
            Self::Plain(stream) => stream,
            Self::Protected(protected) => &protected.stream,
        }
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        match self {
            Self::Plain(stream) => stream,
            Self::Protected(protected) => &mut protected.stream,
        }
    }

    /// Returns whether bytes were accepted that the stream below was not: the next [`ByteStream::write`], also of nothing, goes on
    /// with them.
    pub(crate) fn has_unwritten(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Protected(protected) => !protected.unwritten.is_empty(),
        }
    }

    /// Returns how many bytes were accepted so far.
    pub(crate) fn accepted_bytes(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Protected(protected) => protected.accepted_bytes,
        }
    }

    /// Returns how many of the accepted bytes the stream below has accepted, or fewer.
    pub(crate) fn written_bytes(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Protected(protected) => protected.written_bytes,
        }
    }

    /// Returns whether a long part of a record has come since the last whole one, or the last call that returned this.
    pub(crate) fn take_progress(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Protected(protected) => {
                let is_long = protected.part_bytes >= PROGRESS_BYTES;
                if is_long {
                    protected.part_bytes = 0;
                }
                is_long
            }
        }
    }

    /// Returns whether there is something to read although the last call has returned fewer bytes than fit: more, or a failure.
    pub(crate) fn has_more(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Protected(protected) => protected.has_more || protected.failed.is_some(),
        }
    }

    /// Returns how many bytes came on the stream below for the `bytes` that were read since the last call.
    pub(crate) fn take_read_bytes(&mut self, bytes: usize) -> usize {
        match self {
            Self::Plain(_) => bytes,
            Self::Protected(protected) => bytes + std::mem::take(&mut protected.overhead_bytes),
        }
    }

    /// Returns how many bytes the stream below has accepted since the last call, where `bytes` were accepted here.
    pub(crate) fn take_written_bytes(&mut self, bytes: usize) -> usize {
        match self {
            Self::Plain(_) => bytes,
            Self::Protected(protected) => std::mem::take(&mut protected.written_records_bytes),
        }
    }
}

impl<S: ByteStream> ByteStream for Bytes<S> {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Protected(protected) => protected.read(into),
        }
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match self {
            Self::Plain(stream) => stream.write(from),
            Self::Protected(protected) => protected.write(from),
        }
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream().socket()
    }

    fn is_watched(&self) -> bool {
        self.stream().is_watched()
    }
}

impl<S: ByteStream> ProtectedStream<S> {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let mut into = Unfilled { slices: into, first: 0, at: 0, filled_bytes: 0 };
        let mut may_read = true;
        self.has_more = false;
        loop {
            self.opened.start += into.fill(&self.received[self.opened.clone()]);
            if into.is_full() {
                return Ok(into.filled_bytes);
            }
            if self.overhead_bytes > OVERHEAD_BYTES_MAX && into.filled_bytes > 0 {
                self.has_more = true;
                return Ok(into.filled_bytes);
            }
            match self.advance(&mut into, &mut may_read) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if into.filled_bytes == 0 => return Err(Errno::AGAIN),
                Err(Errno::AGAIN) => return Ok(into.filled_bytes),
                Err(error) if into.filled_bytes == 0 && error != Errno::PIPE => return Err(error),
                Err(_) => return Ok(into.filled_bytes),
            }
        }
    }

    /// Opens the next record, or else reads once if there may be more. Errors: `AGAIN`, `INTR`; all others are final.
    fn advance(&mut self, into: &mut Unfilled<'_, '_>, may_read: &mut bool) -> Result<(), Errno> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let advanced = match self.open_next(into) {
            Ok(true) => Ok(()),
            // A part of a record is nothing, and the end of the stream may follow it.
            Ok(false) if *may_read || into.filled_bytes == 0 => {
                self.receive().map(|is_more| *may_read = is_more)
            }
            Ok(false) => Err(Errno::AGAIN),
            Err(bad) => Err(self.refuse(bad)),
        };
        self.failed = advanced.err().filter(|&error| error != Errno::AGAIN && error != Errno::INTR);
        advanced
    }

    /// Opens the next record, if it was received as a whole.
    fn open_next(&mut self, into: &mut Unfilled<'_, '_>) -> Result<bool, BadRecord> {
        let Some(head) = self.received[self.sealed.clone()].first_chunk() else {
            return Ok(false);
        };
        let content_bytes = record::content_bytes(head)?;
        let whole_bytes = HEAD_BYTES + content_bytes + END_BYTES;
        if whole_bytes > self.sealed.len() {
            self.make_space(whole_bytes);
            return Ok(false);
        }
        let start = self.sealed.start;
        self.sealed.start += whole_bytes;
        self.part_bytes = 0;
        let record = &mut self.received[start..][..whole_bytes];
        // A part of a record is never seen, and what it overwrites has not come.
        if content_bytes > SHORT_BYTES_MAX
            && let Some(place) = into.place(content_bytes + 1)
        {
            let data_bytes = self.opener.open(record, place)?;
            self.overhead_bytes += whole_bytes - data_bytes;
            into.skip(data_bytes);
        } else {
            let data_bytes = self.opener.open_in_place(record)?;
            self.overhead_bytes += whole_bytes - data_bytes;
            self.opened = start + HEAD_BYTES..start + HEAD_BYTES + data_bytes;
        }
        Ok(true)
    }

    /// Reads once. Returns whether there may be more. Errors: also `PIPE` if the other end has closed its direction.
    fn receive(&mut self) -> Result<bool, Errno> {
        if self.sealed.is_empty() {
            self.sealed = 0..0;
        }
        if self.sealed.end == self.received.len() {
            self.make_space(self.sealed.len() + 1);
        }
        let free = &mut self.received[self.sealed.end..];
        let free_bytes = free.len();
        let bytes = self.stream.read(&mut [IoSliceMut::new(free)])?;
        if bytes == 0 {
            return Err(Errno::PIPE);
        }
        self.sealed.end += bytes;
        self.part_bytes += bytes;
        Ok(bytes == free_bytes)
    }

    /// Makes space for the rest of a record of this length.
    fn make_space(&mut self, whole_bytes: usize) {
        if self.sealed.start + whole_bytes > self.received.len() {
            self.received.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
        if whole_bytes > self.received.len() {
            self.received.resize(RECEIVED_BYTES, 0);
        }
    }

    /// Tells the peer of a bad record, so that it reports that cause and not a lost connection; not if the stream below accepts
    /// nothing.
    fn refuse(&mut self, bad: BadRecord) -> Errno {
        let errno = match bad {
            BadRecord::Refused => return REFUSED,
            BadRecord::Corrupt => CORRUPT,
        };
        let end = self.unwritten.end;
        self.make_room(record::ALERT_RECORD_BYTES);
        if let Ok(bytes) = self.sealer.seal_alert(&mut self.made[end..]) {
            self.unwritten.end += bytes;
            let _ = self.flush();
        }
        errno
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if self.failed == Some(CORRUPT) {
            // Nothing may follow the alert (RFC 8446, section 6.2).
            return Err(Errno::PIPE);
        }
        self.flush()?;
        let (mut from, mut accepted_bytes) = (Unwritten { slices: from, at: 0 }, 0);
        loop {
            let bytes = self.seal_batch(&mut from)?;
            accepted_bytes += bytes;
            self.accepted_bytes += bytes as u64;
            match self.flush() {
                Ok(()) if bytes > 0 => {}
                Ok(()) | Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(accepted_bytes),
                // The system may report it once only.
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes records of the next bytes, and returns how many these are.
    fn seal_batch(&mut self, from: &mut Unwritten<'_, '_>) -> Result<usize, Errno> {
        let mut taken_bytes = 0;
        while self.unwritten.len() < BATCH_BYTES
            && let Some(rest) = from.rest()
        {
            let fits = self.short.len() + rest.len() <= CONTENT_BYTES_MAX;
            let bytes = if rest.len() <= SHORT_BYTES_MAX && fits {
                self.short.extend_from_slice(rest);
                rest.len()
            } else if !self.short.is_empty() {
                self.seal_short()?;
                continue;
            } else {
                let bytes = CONTENT_BYTES_MAX.min(rest.len() - LEFT_BYTES);
                self.seal(&rest[..bytes])?;
                bytes
            };
            from.take(bytes);
            taken_bytes += bytes;
        }
        self.seal_short()?;
        Ok(taken_bytes)
    }

    fn seal_short(&mut self) -> Result<(), Errno> {
        if self.short.is_empty() {
            return Ok(());
        }
        let short = std::mem::take(&mut self.short);
        let sealed = self.seal(&short);
        self.short = short;
        self.short.clear();
        sealed
    }

    fn seal(&mut self, content: &[u8]) -> Result<(), Errno> {
        let end = self.unwritten.end;
        self.make_room(sealed_bytes_max(content.len()));
        self.unwritten.end += self.sealer.seal(content, &mut self.made[end..])?;
        Ok(())
    }

    /// Makes room for so many bytes behind the records to write.
    fn make_room(&mut self, bytes: usize) {
        let end = self.unwritten.end + bytes;
        if end > self.made.len() {
            self.made.resize(end, 0);
        }
    }

    /// Writes the records that were made.
    fn flush(&mut self) -> Result<(), Errno> {
        while !self.unwritten.is_empty() {
            let rest = &self.made[self.unwritten.clone()];
            match self.stream.write(&[IoSlice::new(rest)]) {
                Ok(bytes) => {
                    let is_full = bytes < rest.len();
                    self.unwritten.start += bytes;
                    self.written_records_bytes += bytes;
                    if is_full {
                        return Err(Errno::AGAIN);
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.unwritten = 0..0;
        self.written_bytes = self.accepted_bytes;
        Ok(())
    }
}

/// Slices to fill in order.
struct Unfilled<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    /// The first one that is not full, and how much of it is filled.
    first: usize,
    at: usize,
    filled_bytes: usize,
}

impl Unfilled<'_, '_> {
    /// Goes on to a slice with space. Returns false if there is none.
    fn settle(&mut self) -> bool {
        while self.slices.get(self.first).is_some_and(|slice| slice.len() == self.at) {
            (self.first, self.at) = (self.first + 1, 0);
        }
        self.first < self.slices.len()
    }

    fn is_full(&mut self) -> bool {
        !self.settle()
    }

    /// Copies as much as fits, and returns how much that is.
    fn fill(&mut self, mut from: &[u8]) -> usize {
        let mut bytes = 0;
        while !from.is_empty() && self.settle() {
            let free = &mut self.slices[self.first][self.at..];
            let part = from.len().min(free.len());
            free[..part].copy_from_slice(&from[..part]);
            from = &from[part..];
            self.skip(part);
            bytes += part;
        }
        bytes
    }

    /// Returns the next `bytes` bytes, if they are in one slice.
    fn place(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.settle();
        self.slices.get_mut(self.first)?[self.at..].get_mut(..bytes)
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
        self.filled_bytes += bytes;
    }
}

/// Slices to take in order.
struct Unwritten<'a, 'b> {
    slices: &'a [IoSlice<'b>],
    /// How much of the first one was taken.
    at: usize,
}

impl<'a> Unwritten<'a, '_> {
    /// Returns the rest of the next slice that has some.
    fn rest(&mut self) -> Option<&'a [u8]> {
        while self.slices.first().is_some_and(|slice| slice.len() == self.at) {
            (self.slices, self.at) = (&self.slices[1..], 0);
        }
        Some(&self.slices.first()?[self.at..])
    }

    fn take(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, rc::Rc};

    use proptest::prelude::*;

    use super::*;

    /// One direction: what was written and not read, and whether its writer has closed.
    #[derive(Default)]
    struct Line {
        bytes: VecDeque<u8>,
        is_closed: bool,
    }

    /// One end of two lines, which accepts and returns as many bytes per call as its plan says, in turn; 0 is `AGAIN` or `INTR`.
    struct End {
        reads: Rc<RefCell<Line>>,
        writes: Rc<RefCell<Line>>,
        plan: Vec<usize>,
        turn: usize,
    }

    impl End {
        fn next(&mut self) -> Result<usize, Errno> {
            self.turn += 1;
            match self.plan[self.turn % self.plan.len()] {
                0 if self.turn.is_multiple_of(2) => Err(Errno::AGAIN),
                0 => Err(Errno::INTR),
                bytes => Ok(bytes),
            }
        }
    }

    impl ByteStream for End {
        fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
            let bytes_max = self.next()?;
            let line = &mut *self.reads.borrow_mut();
            if line.bytes.is_empty() {
                return if line.is_closed { Ok(0) } else { Err(Errno::AGAIN) };
            }
            let bytes = bytes_max.min(line.bytes.len()).min(into[0].len());
            into[0].iter_mut().zip(line.bytes.drain(..bytes)).for_each(|(to, from)| *to = from);
            Ok(bytes)
        }

        fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
            let bytes = self.next()?.min(from[0].len());
            self.writes.borrow_mut().bytes.extend(&from[0][..bytes]);
            Ok(bytes)
        }

        fn socket(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    fn pair(plan: &[usize]) -> (Bytes<End>, Bytes<End>) {
        let lines = [Rc::<RefCell<Line>>::default(), Rc::default()];
        let end = |own: usize| {
            let [reads, writes] = [&lines[1 - own], &lines[own]].map(Rc::clone);
            let secret = |of: usize| [of as u8; record::SECRET_BYTES].into();
            let end = End { reads, writes, plan: plan.to_vec(), turn: 0 };
            Bytes::protected(end, Opener::new(secret(1 - own)), Sealer::new(secret(own)))
        };
        (end(0), end(1))
    }

    /// Writes all of `sent` in slices of these lengths, and reads it in others, until no call moves a byte. Returns what came,
    /// and how reading went last.
    fn carried(
        writer: &mut Bytes<End>,
        reader: &mut Bytes<End>,
        mut sent: &[u8],
        lengths: &[usize],
    ) -> (Vec<u8>, Result<usize, Errno>) {
        let (mut came, mut idle) = (Vec::new(), 0);
        let mut at = 0;
        loop {
            let mut cut = |sent: &mut &[u8]| {
                at += 1;
                sent.split_off(..lengths[at % lengths.len()].min(sent.len())).unwrap().to_vec()
            };
            let mut rest = sent;
            let parts: Vec<Vec<u8>> = (0..5).map(|_| cut(&mut rest)).collect();
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let written = writer.write(&slices).unwrap_or(0);
            sent = &sent[written..];
            let mut parts: Vec<Vec<u8>> =
                lengths.iter().rev().take(4).map(|&length| vec![0; length]).collect();
            let wanted: usize = parts.iter().map(Vec::len).sum();
            let read = reader
                .read(&mut parts.iter_mut().map(|part| IoSliceMut::new(part)).collect::<Vec<_>>());
            came.extend(&parts.concat()[..read.unwrap_or(0).min(wanted)]);
            let is_idle = written == 0 && read.is_ok_and(|bytes| bytes == 0)
                || read.is_err_and(|error| error != Errno::AGAIN);
            let is_quiet = written == 0 && read == Err(Errno::AGAIN);
            idle = if is_quiet && !writer.has_unwritten() { idle + 1 } else { 0 };
            if is_idle || idle > 50 {
                return (came, read);
            }
        }
    }

    fn contents(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..Default::default() })]

        /// However the stream below hesitates, and however slices are cut.
        #[test]
        fn what_is_written_is_read(
            bytes in 0_usize..300_000,
            lengths in proptest::collection::vec(
                prop_oneof![0_usize..40, 4000_usize..4200, 16_000_usize..17_000, 60_000_usize..70_000], 4..9,
            ),
            plan in proptest::collection::vec(
                prop_oneof![Just(0_usize), 1_usize..50, 1000_usize..20_000, Just(1 << 20)], 1..9,
            ),
        ) {
            prop_assume!(plan.iter().any(|&bytes| bytes >= 1000) && lengths.iter().any(|&bytes| bytes > 40));
            prop_assume!(lengths.iter().rev().take(4).any(|&bytes| bytes > 40));
            let (mut writer, mut reader) = pair(&plan);
            let sent = contents(bytes);
            let (came, _) = carried(&mut writer, &mut reader, &sent, &lengths);
            prop_assert!(came == sent, "{} of {} bytes", came.len(), sent.len());
            prop_assert_eq!(writer.written_bytes(), bytes as u64);
            let Bytes::Protected(below) = &writer else { unreachable!() };
            below.stream.writes.borrow_mut().is_closed = true;
            let mut more = [0];
            let ended = (0..99).map(|_| reader.read(&mut [IoSliceMut::new(&mut more)])).find(|read| *read != Err(Errno::AGAIN));
            prop_assert_eq!(ended, Some(Ok(0)));
        }
    }

    #[test]
    fn what_precedes_a_changed_record_is_read_and_both_ends_know() {
        let (mut writer, mut reader) = pair(&[1 << 20]);
        let sent = contents(100_000);
        assert_eq!(writer.write(&[IoSlice::new(&sent)]), Ok(sent.len()));
        let Bytes::Protected(below) = &writer else { unreachable!() };
        below.stream.writes.borrow_mut().bytes[50_000] ^= 1;
        let mut came = vec![0; sent.len()];
        // Three whole records, and the error afterwards.
        assert_eq!(reader.read(&mut [IoSliceMut::new(&mut came)]), Ok(3 * CONTENT_BYTES_MAX));
        assert!(reader.has_more());
        assert_eq!(came[..3 * CONTENT_BYTES_MAX], sent[..3 * CONTENT_BYTES_MAX]);
        for _ in 0..2 {
            assert_eq!(reader.read(&mut [IoSliceMut::new(&mut came)]), Err(CORRUPT));
        }
        assert_eq!(writer.read(&mut [IoSliceMut::new(&mut came)]), Err(REFUSED));
    }

    /// Calls with few bytes cost the peer a record each, and are bounded here.
    #[test]
    fn one_read_takes_a_bounded_number_of_short_records() {
        let (mut writer, mut reader) = pair(&[1 << 20]);
        let sent = contents(40_000);
        for byte in &sent {
            assert_eq!(writer.write(&[IoSlice::new(std::slice::from_ref(byte))]), Ok(1));
        }
        assert_eq!(writer.take_written_bytes(sent.len()), 23 * sent.len());
        let (mut came, mut into, mut reads) = (Vec::new(), vec![0; 64 << 10], 0);
        while came.len() < sent.len() {
            let bytes = reader.read(&mut [IoSliceMut::new(&mut into)]).unwrap();
            assert_eq!(reader.take_read_bytes(bytes), 23 * bytes);
            assert!(23 * bytes <= 2 * OVERHEAD_BYTES_MAX);
            assert!(reader.has_more() || came.len() + bytes == sent.len());
            came.extend_from_slice(&into[..bytes]);
            reads += 1;
        }
        assert_eq!(came, sent);
        assert!(reads > 3, "{reads}");
    }

    #[test]
    fn nothing_follows_an_alert() {
        let (mut writer, mut reader) = pair(&[1 << 20]);
        let sent = contents(40_000);
        assert_eq!(writer.write(&[IoSlice::new(&sent)]), Ok(sent.len()));
        let Bytes::Protected(below) = &writer else { unreachable!() };
        below.stream.writes.borrow_mut().bytes[30_000] ^= 1;
        let mut came = vec![0; sent.len()];
        assert_eq!(reader.read(&mut [IoSliceMut::new(&mut came)]), Ok(CONTENT_BYTES_MAX));
        assert_eq!(reader.write(&[IoSlice::new(&sent)]), Err(Errno::PIPE));
        assert_eq!(reader.read(&mut [IoSliceMut::new(&mut came)]), Err(CORRUPT));
    }

    #[test]
    fn long_slices_are_decrypted_to_where_they_belong() {
        let (mut writer, mut reader) = pair(&[1 << 20]);
        let (head, sent) = ([9; 16], contents(64 << 10));
        let slices = [IoSlice::new(&head), IoSlice::new(&sent), IoSlice::new(&head)];
        assert_eq!(writer.write(&slices), Ok(sent.len() + 32));
        let (mut first, mut came, mut last) = ([0; 16], vec![0; sent.len()], [0; 16]);
        let mut slices = [&mut first[..], &mut came, &mut last].map(IoSliceMut::new);
        assert_eq!(reader.read(&mut slices), Ok(sent.len() + 32));
        assert_eq!((first, &came, last), (head, &sent, head));
        // Only the heads, and what was left of the slice for the next record, were decrypted in their place.
        let Bytes::Protected(reader) = &reader else { unreachable!() };
        let shown =
            |bytes: &[u8]| reader.received.windows(bytes.len()).any(|window| window == bytes);
        assert!(shown(&head) && !shown(&sent[1000..1100]) && !shown(&sent[50_000..50_100]));
        assert!(shown(&[&sent[sent.len() - LEFT_BYTES..], &head].concat()));
    }
}
