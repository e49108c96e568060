//! Sends: those that wait for the peer's receives, and those posted.

use std::collections::{BTreeMap, VecDeque};

use transport::{ReadLease, Token};

use crate::native::{
    link::{
        ops::Op,
        paths::device_of,
        posting::{DATA_TAG, Posting, Trouble},
    },
    registration,
    ring::{Note, Receives},
    sys,
};

/// The most sends of one rail that the provider has at a time: the next is ready when one
/// completes, while control words can overtake the queued ones and a close can cancel them.
const SENDS_POSTED_MAX: usize = 4;
/// The most receives of the peer that one link stores.
const PEER_LENGTHS_MAX: usize = 4096;

struct Send {
    from: ReadLease,
    immediate: u32,
    token: Token,
}

/// The sends of one link.
#[derive(Default)]
pub struct SendQueue {
    waiting: VecDeque<Send>,
    /// How many the provider has.
    open: usize,
    /// How many were posted in all.
    started: u64,
    /// Lengths of the receives that the peer has announced, by index.
    peer_lengths: BTreeMap<u64, u32>,
    asked_for: Option<u64>,
}

impl SendQueue {
    pub fn push(&mut self, from: ReadLease, immediate: u32, token: Token) {
        self.waiting.push_back(Send { from, immediate, token });
    }

    /// Stores the receives that the peer has announced.
    pub fn learn(&mut self, receives: Receives) {
        for (index, length) in (receives.first..).zip(receives.lengths) {
            if index >= self.started && self.peer_lengths.len() < PEER_LENGTHS_MAX {
                self.peer_lengths.insert(index, length);
            }
        }
    }

    /// Posts as many as the provider accepts and the peer has receives for.
    pub fn post(&mut self, with: &mut Posting<'_>) -> Result<(), Trouble> {
        let rails = with.paths.rails();
        while self.open < SENDS_POSTED_MAX * rails {
            let Some(bytes) = self.waiting.front().map(|send| send.from.bytes() as u64) else {
                return Ok(());
            };
            let index = self.started;
            let posted_bytes = self.peer_lengths.get(&index).copied().map(u64::from);
            if posted_bytes.is_none_or(|posted_bytes| posted_bytes < bytes) {
                // The engine has a credit for the receive, by a control word whose slot also
                // announced the receive here. If it did not, the peer is asked to announce it, or
                // to end the link.
                if self.asked_for != Some(index) {
                    self.asked_for = Some(index);
                    with.ring.push(Note::Wants { index, bytes });
                }
                return Ok(());
            }
            let Some(Send { from, immediate, token }) = self.waiting.pop_front() else {
                return Ok(());
            };
            let path = 1 + (self.started % rails as u64) as usize;
            let Some(endpoint) = with.paths.endpoint(path) else { return Ok(()) };
            let (start, bytes) = (from.as_ptr().cast_mut(), from.bytes());
            let registrar = &with.devices[device_of(path)].registrar;
            let registration = match registrar.cover_to_read(&from) {
                Ok(registration) => registration,
                Err(error) => {
                    self.waiting.push_front(Send { from, immediate, token });
                    return Err(Trouble::Memory(error));
                }
            };
            let way = with.paths.way(path, DATA_TAG, false);
            let context = with.ops.add(Op::Send(from, token, registration.clone()));
            let span = registration::span(start, bytes, registration.as_deref());
            // SAFETY: the op holds the read lease until the send completes, or its endpoint is
            // closed (`Ops::clear`).
            if let Err(error) = unsafe { sys::post_send(&endpoint, way, span, immediate, context) }
            {
                if let Some(Op::Send(from, token, _)) = with.ops.take(context) {
                    self.waiting.push_front(Send { from, immediate, token });
                }
                return Err(Trouble::Refused(error));
            }
            self.peer_lengths.remove(&index);
            self.open += 1;
            self.started += 1;
        }
        Ok(())
    }

    /// Records that a send has completed or failed.
    pub fn completed(&mut self) {
        self.open -= 1;
    }

    /// Removes the sends that the provider does not have.
    pub fn cancel(&mut self) -> impl Iterator<Item = Token> + '_ {
        self.waiting.drain(..).map(|send| send.token)
    }
}
