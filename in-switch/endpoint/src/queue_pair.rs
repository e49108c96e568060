//! One queue pair: the state machines of both directions, and their messages' bytes.

use std::{collections::VecDeque, net::IpAddr};

use roce::{
    Aeth, Bth, Headers, IpHeader, Mac, Opcode, Serial,
    rc::{Place, Request, Requester, Responder},
};

use crate::{Event, Peer};

/// A message's bytes, wherever they are.
type Bytes = Box<dyn AsRef<[u8]> + Send + Sync>;

pub(crate) struct QueuePair {
    pub(crate) number: u32,
    pub(crate) peer: Peer,
    /// The next hop's Ethernet address, once it is resolved.
    pub(crate) mac: Option<Mac>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// Messages that have not completed, in the order in which they were posted and complete: `id`, bytes.
    messages: VecDeque<(u64, Bytes)>,
    /// Posted receives: internal number, which counts up; the caller's `id`; memory.
    receives: VecDeque<(u64, u64, Vec<u8>)>,
    next_receive: u64,
}

impl QueuePair {
    pub(crate) fn new(number: u32, peer: Peer, requester: Requester, responder: Responder) -> Self {
        Self {
            number,
            peer,
            mac: None,
            requester,
            responder,
            messages: VecDeque::new(),
            receives: VecDeque::new(),
            next_receive: 0,
        }
    }

    pub(crate) fn keep_message(&mut self, id: u64, bytes: Bytes) {
        self.messages.push_back((id, bytes));
    }

    pub(crate) fn post_receive(&mut self, id: u64, memory: Vec<u8>) {
        let number = self.next_receive;
        self.next_receive += 1;
        self.responder.post_receive(number, memory.len() as u32);
        self.receives.push_back((number, id, memory));
    }

    /// The headers and payload of a request; `None` if its message has completed.
    pub(crate) fn request(&self, own: IpAddr, request: &Request) -> Option<(Headers, &[u8])> {
        // Those in flight are at the front.
        let (_, bytes) = self.messages.iter().find(|(id, _)| *id == request.id)?;
        let payload =
            (**bytes).as_ref().get(request.offset as usize..)?.get(..request.bytes as usize)?;
        let mut headers = self.headers(own, request.opcode, request.psn)?;
        headers.bth.ack_requested = request.ack_requested;
        (headers.reth, headers.immediate) = (request.reth, request.immediate);
        Some((headers, payload))
    }

    /// An answer; `None` makes a CNP.
    pub(crate) fn answer(&self, own: IpAddr, answer: Option<(Serial, Aeth)>) -> Option<Headers> {
        let Some((psn, aeth)) = answer else {
            return self.headers(own, Opcode::Cnp, Serial::new(0));
        };
        let mut headers = self.headers(own, Opcode::Acknowledge, psn)?;
        headers.aeth = Some(aeth);
        Some(headers)
    }

    fn headers(&self, own: IpAddr, opcode: Opcode, psn: Serial) -> Option<Headers> {
        let mut ip = IpHeader::new(own, self.peer.address).ok()?;
        // A source port for each queue pair, by which ECMP keeps it on one path.
        ip.source_port = 0xc000 | (self.number & 0x3fff) as u16;
        Some(Headers::new(ip, Bth::new(opcode, self.peer.qpn, psn)))
    }

    /// Takes a request with its payload. Returns its answer and its completion, if any.
    pub(crate) fn receive(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        memory: impl FnOnce(u64, &[u8]),
    ) -> (Option<(Serial, Aeth)>, Option<Event>) {
        let reaction = self.responder.receive(headers, payload.len() as u32);
        match reaction.place {
            Some(Place::Memory { address }) => memory(address, payload),
            Some(Place::Receive { id, offset }) => {
                let place = self.receives.iter_mut().find(|(number, ..)| *number == id);
                let room = place.and_then(|(.., memory)| memory.get_mut(offset as usize..));
                if let Some(room) = room.and_then(|room| room.get_mut(..payload.len())) {
                    room.copy_from_slice(payload);
                }
            }
            None => {}
        }
        let event = reaction.arrival.map(|mut arrival| {
            let taken = arrival.receive.and_then(|_| self.receives.pop_front());
            let (id, memory) = match taken {
                Some((_, id, memory)) => (Some(id), memory),
                None => (None, Vec::new()),
            };
            arrival.receive = id;
            Event::Arrived { qpn: self.number, arrival, memory }
        });
        (reaction.answer, event)
    }

    /// Moves completions of sent messages to `events`.
    pub(crate) fn sent(&mut self, events: &mut VecDeque<Event>) {
        while let Some(completion) = self.requester.completed() {
            self.messages.pop_front();
            let (qpn, id, status) = (self.number, completion.id, completion.status);
            events.push_back(Event::Sent { qpn, id, status });
        }
    }
}
