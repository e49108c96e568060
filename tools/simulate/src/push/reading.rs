//! Receivers that read shares of a source at a URL: what the library's thread does is done step by step, a subtree at a time.

use std::collections::VecDeque;

use files::machines::{
    ByteRange, MemberEvent, Ranges, SubtreeDigest, SubtreeHasher, Subtrees, pieces,
};
use rdmc::{LeaseError, Region};

use super::{
    process::{Note, Process},
    url_reader::Job,
    world::{Due, SECOND_NS, World},
};

/// The delay before a range that is in use is tried again.
const AGAIN_NS: u64 = SECOND_NS / 1_000;

impl World<'_> {
    /// Reads these ranges for a group, after those of earlier ones.
    pub(super) fn read_ranges(&mut self, index: usize, group: u64, ranges: &Ranges) {
        let Some(receiver) = &mut self.processes[index].receiver else { return };
        let pieces: VecDeque<ByteRange> = pieces(ranges).into();
        let until = pieces.front().map_or(0, |piece| piece.0);
        receiver.url_reader.jobs.push_back(Job { group, pieces, until });
        self.plan_reading(index, 0);
    }

    fn plan_reading(&mut self, index: usize, delay_ns: u64) {
        let read_ns = self.host_of(index).url_ns_per_subtree;
        let Some(receiver) = &mut self.processes[index].receiver else { return };
        let reading = &mut receiver.url_reader;
        if !reading.jobs.is_empty() && !std::mem::replace(&mut reading.is_reading, true) {
            self.plan(self.now_ns() + read_ns + delay_ns, Due::ReadUrl(index));
        }
    }

    /// Processes the end of reading a subtree.
    pub(super) fn read_url(&mut self, index: usize) {
        let fails_at = self.host_of(index).faults.url_fails_at.filter(|_| self.is_first());
        let process = &mut self.processes[index];
        let is_over = process.is_over;
        let Some(receiver) = process.receiver.as_mut().filter(|_| !is_over) else { return };
        receiver.url_reader.is_reading = false;
        let Some(job) = receiver.url_reader.jobs.front() else { return };
        if !process.standing.contains(&job.group) {
            receiver.url_reader.jobs.pop_front();
            return self.plan_reading(index, 0);
        }
        if fails_at.is_some_and(|at| receiver.url_reader.bytes >= at) {
            return self.note(index, Note::UrlFailed);
        }
        let outcome = self.take_read(index);
        match outcome {
            Ok(notes) => {
                notes.into_iter().for_each(|note| self.note(index, note));
                self.take_news(index);
                self.plan_reading(index, 0);
                self.look(index);
            }
            // Another group still writes there, or sends it.
            Err(_) => self.plan_reading(index, AGAIN_NS),
        }
    }

    /// Puts the next subtree into the copy, and sends a piece that is whole. Errors: its place is in use.
    fn take_read(&mut self, index: usize) -> Result<Vec<Note>, LeaseError> {
        let (subtrees, source) = (self.scenario.subtrees(), std::sync::Arc::clone(&self.source));
        let Process { receiver: Some(receiver), engine: Some(engine), .. } =
            &mut self.processes[index]
        else {
            return Ok(Vec::new());
        };
        let (Some(region), Some(copy), Some(job)) =
            (&receiver.region, &receiver.copy, receiver.url_reader.jobs.front_mut())
        else {
            return Ok(Vec::new());
        };
        let Some(&piece) = job.pieces.front() else { return Ok(Vec::new()) };
        let (start, end) = subtrees.at(job.until);
        let bytes = &source[start as usize..end as usize];
        write(region, start as usize, bytes)?;
        let mut notes = Vec::new();
        if copy.add((start, end)) {
            notes.push(Note::News(MemberEvent::Complete));
        }
        notes.push(Note::ReadUrl(vec![(start, digest(&subtrees, start, bytes))]));
        receiver.url_reader.bytes += end - start;
        job.until = end;
        if end >= piece.1 {
            let part = region.slice(piece.0 as usize..piece.1 as usize)?;
            // A group that has ended reports that itself.
            let _ = engine.send(job.group, part);
            job.pieces.pop_front();
            match job.pieces.front() {
                Some(next) => job.until = next.0,
                None => {
                    let _ = engine.close(job.group);
                    receiver.url_reader.jobs.pop_front();
                }
            }
        }
        Ok(notes)
    }
}

fn digest(subtrees: &Subtrees, start: u64, bytes: &[u8]) -> SubtreeDigest {
    let mut hasher = SubtreeHasher::new(subtrees, start);
    hasher.update(bytes);
    hasher.finish()
}

/// Errors: it is in use.
fn write(region: &Region, start: usize, bytes: &[u8]) -> Result<(), LeaseError> {
    let range = start..start + bytes.len();
    match region.is_stored() {
        true => region.write_stored(range)?.copy_from(bytes).expect("it has that length"),
        false => region.write(range)?.copy_from_slice(bytes),
    }
    Ok(())
}
