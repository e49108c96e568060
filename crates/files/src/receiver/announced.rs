//! The messages of a stream that the root has announced and that are not written out.

use std::collections::VecDeque;

use crate::{stream_message::StreamMessage, watched::Watched};

/// The most messages that a root may announce ahead: the memory of a receiver whose consumer waits. A root has far fewer
/// under way.
const MESSAGES_MAX: usize = 256;
/// Shared by the session, which adds messages, and the threads that write out.
#[derive(Default)]
pub(super) struct Announced(Watched<Announcements>);

/// Messages that follow on each other.
#[derive(Default)]
pub struct Announcements {
    messages: VecDeque<StreamMessage>,
    /// Where the next one begins.
    end: u64,
}

/// What was announced at a place in the stream.
#[derive(PartialEq, Eq, Debug)]
pub enum Found {
    /// This message.
    Message(StreamMessage),
    /// No message begins there.
    Nothing,
    /// It is not announced yet; the wait has ended first.
    NotYet,
}

impl Announcements {
    /// Errors: it does not follow on the one before; too many are waiting.
    pub fn add(&mut self, message: StreamMessage) -> Result<(), String> {
        message.check()?;
        if message.at != self.end {
            return Err(format!("a message at {}, not at {}", message.at, self.end));
        }
        if self.messages.len() >= MESSAGES_MAX {
            return Err(format!("more than {MESSAGES_MAX} messages that were not sent"));
        }
        self.end = message.end();
        self.messages.push_back(message);
        Ok(())
    }

    /// What begins at this place.
    pub fn find(&self, at: u64) -> Found {
        if at >= self.end {
            return Found::NotYet;
        }
        let found = self.messages.iter().find(|message| message.at == at);
        found.cloned().map_or(Found::Nothing, Found::Message)
    }

    /// Forgets what is written out.
    pub fn release(&mut self, written: u64) {
        while self.messages.front().is_some_and(|message| message.end() <= written) {
            self.messages.pop_front();
        }
    }
}

impl Announced {
    /// Errors: as [`Announcements::add`].
    pub(super) fn add(&self, message: StreamMessage) -> Result<(), String> {
        self.0.change(|messages| messages.add(message))
    }

    /// What begins at this place. Waits until the root has announced something there, or `has_ended`, which is called
    /// several times a second.
    pub(super) fn wait(&self, at: u64, has_ended: impl Fn() -> bool) -> Found {
        let found = self.0.wait(
            |messages| Some(messages.find(at)).filter(|found| *found != Found::NotYet),
            has_ended,
        );
        found.unwrap_or(Found::NotYet)
    }

    /// Forgets what is written out.
    pub(super) fn release(&self, written: u64) {
        self.0.change(|messages| messages.release(written));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_where_they_begin_until_they_are_written() {
        let announced = Announced::default();
        let (one, two) = (StreamMessage::of(0, b"one"), StreamMessage::of(3, b"more"));
        announced.add(one.clone()).unwrap();
        announced.add(two.clone()).unwrap();
        let find = |at| announced.wait(at, || true);
        assert_eq!((find(0), find(3)), (Found::Message(one), Found::Message(two)));
        assert_eq!((find(1), find(7)), (Found::Nothing, Found::NotYet));
        announced.release(3);
        assert_eq!(find(0), Found::Nothing);
    }

    #[test]
    fn what_a_root_cannot_mean_is_refused() {
        let announced = Announced::default();
        assert!(announced.add(StreamMessage::of(1, b"one")).unwrap_err().contains("not at 0"));
        assert!(announced.add(StreamMessage::of(0, b"")).is_err());
        let longer = StreamMessage { bytes: 4, ..StreamMessage::of(0, b"one") };
        announced.add(longer).unwrap();
        let endless = StreamMessage { bytes: u64::MAX, ..StreamMessage::of(4, b"one") };
        assert!(announced.add(endless).is_err());
        let mut at = 4;
        let more = std::iter::from_fn(|| {
            at += 1;
            Some(announced.add(StreamMessage::of(at - 1, b"x")))
        });
        let refused = more.take(MESSAGES_MAX).find_map(Result::err).unwrap();
        assert!(refused.contains("more than 256"), "{refused}");
    }
}
