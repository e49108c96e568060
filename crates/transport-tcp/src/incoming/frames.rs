//! What the frames of a stream mean.

use transport::{Cause, Completion};

use super::{Incoming, Into, News, Segment};
use crate::wire::{
    ADDRESS_BYTES, HEADER_BYTES, Header, INTRODUCTION_BYTES, Introduction, PLACE_BYTES, Place,
    WireError,
};

impl Incoming {
    /// Parses whole frames and returns their length; the rest is the beginning of a frame.
    pub(super) fn parse_frames(
        &mut self,
        frames: &[u8],
        completed: &mut Vec<Completion>,
    ) -> Result<usize, Cause> {
        let mut at = 0;
        while !self.received_bye() {
            at += self.end_segment(&frames[at..], completed)?;
            if self.segment.is_some() {
                break;
            }
            let Some((header, body)) = frames[at..].split_first_chunk::<HEADER_BYTES>() else {
                break;
            };
            let header = Header::decode(header).map_err(wrong)?;
            let Some(body) = body.get(..header.whole_body_bytes()) else { break };
            self.check_channel(header)?;
            self.take_frame(header, body, completed)?;
            at += HEADER_BYTES + body.len();
        }
        self.report(completed);
        Ok(at)
    }

    /// Reports what has arrived of the block that is arriving.
    fn report(&mut self, completed: &mut Vec<Completion>) {
        if let Some(receive) = self.current.receives.front_mut() {
            receive.report(self.current.endpoint, completed);
        }
    }

    /// Checks that a frame is one that may come now on this connection and its channel.
    fn check_channel(&self, header: Header) -> Result<(), Cause> {
        let why = match (header, self.is_shared) {
            (Header::Heartbeat | Header::Corrupt, _) => return Ok(()),
            (Header::Channel { .. } | Header::Message { .. }, true) => return Ok(()),
            (Header::Channel { .. } | Header::Message { .. }, false) => {
                "a frame of shared connections on one that is not"
            }
            (_, true) if self.number == 0 => "a frame for no channel",
            (_, true) if self.current.received_bye => "a frame behind the bye of its channel",
            _ => return Ok(()),
        };
        Err(Cause::Protocol(why.into()))
    }

    fn take_frame(
        &mut self,
        header: Header,
        body: &[u8],
        completed: &mut Vec<Completion>,
    ) -> Result<(), Cause> {
        let taken = match header {
            Header::Data { bytes, last, immediate, block } => {
                self.begin_segment(bytes, last, immediate, block)
            }
            Header::Control { .. } => {
                let (endpoint, word) = (self.current.endpoint, body.to_vec());
                if !self.current.has_ended {
                    completed.push(Completion::Control { endpoint, word });
                }
                Ok(())
            }
            Header::Write { bytes, immediate, key } => {
                let place = body.first_chunk::<PLACE_BYTES>().ok_or(WireError::StrayValue);
                let place = Place::decode(place.map_err(wrong)?, bytes).map_err(wrong)?;
                self.begin_write(bytes, place, immediate, key)
            }
            Header::Introduction => {
                let said = body.first_chunk::<INTRODUCTION_BYTES>().ok_or(WireError::StrayValue);
                let introduction = Introduction::decode(said.map_err(wrong)?);
                News::add(&mut self.news.of_memory, self.number);
                self.current.references.introduce(introduction)
            }
            Header::Readable => {
                News::add(&mut self.news.of_memory, self.number);
                self.current.references.set_readable();
                Ok(())
            }
            Header::Reference { bytes, immediate, block } => {
                let address = body.first_chunk::<ADDRESS_BYTES>().ok_or(WireError::StrayValue);
                let address = u64::from_le_bytes(*address.map_err(wrong)?);
                News::add(&mut self.news.copying, self.number);
                self.current.begin_copy(bytes, immediate, block, address)
            }
            Header::Copied { block } => {
                News::add(&mut self.news.of_memory, self.number);
                self.current.references.acknowledge(block);
                Ok(())
            }
            Header::Heartbeat => Ok(()),
            Header::Bye => {
                self.current.received_bye = true;
                if self.is_shared {
                    self.news.byes.push(self.number);
                }
                Ok(())
            }
            Header::Corrupt => return Err(Cause::Corrupt("as the peer reports".into())),
            Header::Channel { number } => {
                self.report(completed);
                return self.select(number);
            }
            Header::Message { last, .. } => {
                let message = self.message.add(body, last).map_err(Cause::Protocol)?;
                self.news.messages.extend(message);
                Ok(())
            }
        };
        taken.or_else(|why| self.refuse(header, why, completed))
    }

    /// Ends a channel whose peer broke the protocol, and reads over the payload of the frame; the only channel ends with
    /// its connection.
    fn refuse(
        &mut self,
        header: Header,
        why: String,
        completed: &mut Vec<Completion>,
    ) -> Result<(), Cause> {
        if !self.is_shared {
            return Err(Cause::Protocol(why));
        }
        if let Header::Data { bytes, .. } | Header::Write { bytes, .. } = header {
            self.segment = Some(Segment { rest_bytes: bytes, into: Into::Discard });
        }
        self.discard(self.number, completed);
        self.news.refused.push((self.number, Cause::Protocol(why)));
        Ok(())
    }

    pub(super) fn begin_segment(
        &mut self,
        bytes: usize,
        last: bool,
        immediate: u32,
        block: u32,
    ) -> Result<(), String> {
        let mut into = Into::Discard;
        if !self.current.discarding {
            let receive = self
                .current
                .receives
                .front_mut()
                .ok_or("a block for which no memory was posted")?;
            receive.check(bytes, immediate, block)?;
            into = Into::Receive { last };
        }
        if !last {
            self.usual_bytes = bytes;
        }
        self.segment = Some(Segment { rest_bytes: bytes, into });
        Ok(())
    }

    fn begin_write(
        &mut self,
        bytes: usize,
        place: Place,
        immediate: Option<u32>,
        key: u32,
    ) -> Result<(), String> {
        if self.current.discarding {
            self.segment = Some(Segment { rest_bytes: bytes, into: Into::Discard });
            return Ok(());
        }
        let exposed = self.current.exposed.get(&key);
        let memory =
            exposed.ok_or_else(|| format!("a write to key {key}, which is not exposed"))?;
        let Place { offset, rest_bytes } = place;
        if offset.checked_add(rest_bytes).is_none_or(|end| end > memory.len() as u64) {
            return Err(format!(
                "a write of {rest_bytes} bytes at {offset} of the {} bytes of key {key}",
                memory.len()
            ));
        }
        let ends = immediate.filter(|_| bytes as u64 == rest_bytes);
        let into = Into::Exposed { memory: memory.clone(), at: offset as usize, ends };
        self.segment = Some(Segment { rest_bytes: bytes, into });
        Ok(())
    }
}

fn wrong(error: WireError) -> Cause {
    Cause::Protocol(error.to_string())
}
