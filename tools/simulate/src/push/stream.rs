//! Both ends of a stream: the reader at the root, and receivers whose consumers take their time.

use std::{collections::VecDeque, io};

use engine::Event;
use files::machines::{Found, MemberEvent, Start, StreamMessage, StreamPart, ToRoot};
use rdmc::{Failure, FailureKind, Region};

use super::{
    line::{Way, Word},
    process::Note,
    receiver::contents,
    stream_end::{Arriving, StreamGroup},
    world::{Due, World},
};

impl World<'_> {
    /// Lets the root's reader read once more.
    pub(super) fn begin_read(&mut self) {
        let (_, under_way) = &mut self.root.stream_read;
        *under_way += 1;
        if *under_way == 1 {
            self.plan_read();
        }
    }

    fn plan_read(&mut self) {
        let Some(plan) = &self.scenario.stream else {
            return self.facts.violated("the root reads a stream in a push of a file");
        };
        let at_ns = self.now_ns() + self.dice.between(0, plan.read_ns_max);
        self.plan(at_ns, Due::Read(self.root.process));
    }

    pub(super) fn reader_fails(&self) -> bool {
        let plan = self.scenario.stream.as_ref().filter(|_| self.is_first());
        plan.is_some_and(|plan| plan.fails_at.is_some())
    }

    /// The root's reader has read once.
    pub(super) fn read_stream(&mut self, process: usize) {
        let Some(plan) = self.scenario.stream.as_ref().filter(|_| process == self.root.process)
        else {
            return;
        };
        let fails_at = plan.fails_at.filter(|_| self.is_first());
        let (at, under_way) = &mut self.root.stream_read;
        let end =
            (*at + plan.read_bytes).min(self.scenario.bytes).min(fails_at.unwrap_or(u64::MAX));
        *under_way -= 1;
        let goes_on = *under_way > 0;
        let bytes = self.source[*at as usize..end as usize].to_vec();
        let part = match (bytes.is_empty(), fails_at) {
            (true, Some(_)) => Err(io::Error::other("the producer has failed")),
            (true, None) => Ok(StreamPart::End(blake3::hash(&self.source))),
            (false, _) => Ok(StreamPart::Bytes(bytes)),
        };
        *at = end;
        let is_last = !matches!(part, Ok(StreamPart::Bytes(_)));
        self.note(process, Note::Read(part));
        if goes_on && !is_last {
            self.plan_read();
        }
    }

    pub(super) fn begin_stream_group(&mut self, index: usize, start: &Start) {
        let from = start.ranges.within(u64::MAX).iter().next().map(|(start, _)| start);
        if let (Some(receiver), Some(end)) = (&mut self.processes[index].receiver, from) {
            let group =
                StreamGroup { end, messages: VecDeque::new(), ended: None, is_altered: false };
            receiver.stream.groups.insert(start.group.number, group);
        }
    }

    /// Delivers an event of a group, as the library's callbacks do.
    pub(super) fn stream_event(&mut self, index: usize, number: u64, event: Event) {
        let process = &mut self.processes[index];
        let (Some(receiver), Some(engine)) = (&mut process.receiver, &mut process.engine) else {
            return;
        };
        let Some(group) = receiver.stream.groups.get_mut(&number) else { return };
        match event {
            Event::Incoming { message, bytes, .. } => {
                let region = Region::from_vec(vec![0; bytes as usize]);
                // One that has failed reports that itself.
                let _ = engine.accept(number, message, region.clone());
                let at = group.end;
                group.end += bytes;
                if !group.is_altered {
                    group.messages.push_back(Arriving { message, at, region, is_whole: false });
                }
            }
            Event::Received { message, .. } => {
                let mut messages = group.messages.iter_mut();
                if let Some(arriving) = messages.find(|arriving| arriving.message == message) {
                    arriving.is_whole = true;
                }
            }
            Event::Failed { failure, .. } => group.ended = Some(Err(failure)),
            Event::Closed { .. } => group.ended = Some(Ok(())),
            _ => {}
        }
        self.plan_writing(index);
    }

    /// Lets the consumer take the next message, if there is one and it takes none.
    fn plan_writing(&mut self, index: usize) {
        let Some(plan) = &self.scenario.stream else { return };
        let Some(receiver) = &mut self.processes[index].receiver else { return };
        let is_due = receiver.stream.due_group().is_some();
        if is_due && !std::mem::replace(&mut receiver.stream.is_writing, true) {
            let at_ns = self.now_ns() + self.dice.between(0, plan.consumer_ns_max);
            self.plan(at_ns, Due::Written(index));
        }
    }

    /// The consumer has taken a message, or a group has nothing more for it.
    pub(super) fn write_stream(&mut self, index: usize) {
        let Some(receiver) = &mut self.processes[index].receiver else { return };
        receiver.stream.is_writing = false;
        let Some(number) = receiver.stream.due_group() else { return };
        let Some(group) = receiver.stream.groups.get_mut(&number) else { return };
        match group.messages.front().filter(|arriving| arriving.is_whole) {
            Some(arriving) => {
                let (at, bytes) = (arriving.at, contents(&arriving.region));
                if !self.take_message(index, number, at, &bytes) {
                    return;
                }
            }
            // What has not arrived whole never will.
            None => self.end_stream_group(index, number),
        }
        self.plan_writing(index);
    }

    /// As the thread that writes out: what is not as it was announced is not written, and its group is left. False if it has
    /// to wait for the announcement.
    fn take_message(&mut self, index: usize, number: u64, at: u64, bytes: &[u8]) -> bool {
        let Some(receiver) = &mut self.processes[index].receiver else { return false };
        let stream = &mut receiver.stream;
        let Some(group) = stream.groups.get_mut(&number) else { return false };
        let (end, done) = (at + bytes.len() as u64, stream.written.len() as u64);
        let message = match stream.announced.find(at) {
            _ if end <= done => {
                group.messages.pop_front();
                return true;
            }
            Found::NotYet if group.ended.is_none() => return false,
            Found::NotYet => {
                self.end_stream_group(index, number);
                return true;
            }
            Found::Message(message) => Some(message),
            Found::Nothing => None,
        };
        group.messages.pop_front();
        let right = StreamMessage::of(at, bytes);
        if message.is_none_or(|message| message != right) {
            group.messages.clear();
            group.is_altered = true;
            self.note(index, Note::News(MemberEvent::Altered(number, at)));
            return true;
        }
        for digest in &right.digests {
            stream.digest.update(digest);
        }
        stream.written.extend_from_slice(&bytes[(done - at) as usize..]);
        stream.announced.release(end);
        let (line, host) = (receiver.line, receiver.host);
        if !self.source.starts_with(&receiver.stream.written) {
            self.facts.violated(format!("host {host} hands on what the root has not read"));
        }
        self.send_word(line, Way::ToRoot, Word::ToRoot(ToRoot::Progress { bytes: end }));
        true
    }

    fn end_stream_group(&mut self, index: usize, number: u64) {
        let Some(receiver) = &mut self.processes[index].receiver else { return };
        let ended = receiver.stream.groups.remove(&number).and_then(|group| group.ended);
        if let Some(outcome) = ended {
            self.note(index, Note::News(MemberEvent::Ended(number, outcome)));
        }
    }

    /// The session leaves a group, whatever its consumer does.
    pub(super) fn leave_stream_group(&mut self, index: usize, number: u64, reason: &str) {
        let failure = Failure {
            group: number,
            member: None,
            reporter: 0,
            kind: FailureKind::Application,
            detail: reason.to_owned(),
            delivered: 0,
        };
        self.note(index, Note::News(MemberEvent::Ended(number, Err(failure))));
    }

    /// The root has announced a message.
    pub(super) fn announce(&mut self, index: usize, message: StreamMessage) -> Result<(), String> {
        let Some(receiver) = &mut self.processes[index].receiver else { return Ok(()) };
        receiver.stream.announced.add(message)?;
        self.plan_writing(index);
        Ok(())
    }

    /// A receiver publishes what it has written.
    pub(super) fn publish_stream(&mut self, index: usize) {
        let machine = self.processes[index].machine;
        let Some(receiver) = &self.processes[index].receiver else { return };
        let written = receiver.stream.written.clone();
        if written[..] != self.source[..] {
            self.facts.violated(format!("machine {machine} publishes something else"));
        }
        let until_ns = self.processes[index].busy_until_ns;
        let since_ns = until_ns.saturating_sub(self.host_of(index).disk_ns);
        let syncs = self.syncs();
        self.machines[machine].disk.publish(written, since_ns, until_ns, syncs);
        let now_ns = self.push_ns();
        let facts = &mut self.facts.hosts[machine - 1];
        (facts.has_published, facts.published_ns) = (true, Some(now_ns));
    }
}
