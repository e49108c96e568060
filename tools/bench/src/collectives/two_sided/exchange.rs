//! Two-sided operations of one member over any transport: eager messages into receives that are posted beforehand, and
//! rendezvous for long ones.

use std::collections::VecDeque;

use collective::{Op, Type, fold};
use transport::{Completion, EndpointId, Region, Token, Transport};

use super::steps::{Step, steps};
use crate::{collectives::cell::Cell, outcome::Outcome};

/// An eager message is cut into pieces of this length, as MVICH does.
const PIECE_BYTES: usize = 1024;
/// What a piece carries before its contents, as a message of MPI has an envelope: the operation's number, the length of
/// the message, and the piece's place in it.
const ENVELOPE_BYTES: usize = 24;
/// A receive for a piece.
const RECEIVE_BYTES: usize = ENVELOPE_BYTES + PIECE_BYTES;
/// Messages beyond this go by rendezvous: MVICH's switch point.
const EAGER_BYTES_MAX: usize = 5_000;
/// Receives that each end of a link posts ahead.
const RECEIVES: usize = 16;
/// Pieces that may be on their way to all neighbours.
const STAGED: usize = 64;

/// Control words: this many more receives are posted for pieces.
const CREDITS: u8 = 1;
/// One receive is posted for a long message.
const READY: u8 = 2;

/// A neighbour in the tree: an endpoint for pieces, and one for long messages.
struct Peer {
    rank: u32,
    eager: EndpointId,
    long: EndpointId,
    /// Where pieces are received, by slot.
    receives: Region,
    /// Filled receives that were not used, in order: slot and length.
    arrived: VecDeque<(usize, usize)>,
    /// Pieces that may be sent.
    credits: usize,
    /// Receives that were posted again and not reported yet.
    reposted: usize,
    /// Long messages that may be sent.
    ready: usize,
    /// Long messages that have come and were not used.
    long_arrived: usize,
}

/// One member; the memory that operations work on belongs to it.
pub struct Exchange<T: Transport> {
    transport: T,
    rank: u32,
    members: u32,
    peers: Vec<Peer>,
    memory: Region,
    /// Long contributions of others.
    scratch: Region,
    staging: Region,
    free: Vec<usize>,
    /// Counts operations.
    operation: u64,
    steps: VecDeque<Step>,
    bytes: usize,
    /// Bytes of the first step that are done.
    done: usize,
    /// Whether the long message of the first step is posted.
    is_posted: bool,
    /// Long messages on their way out.
    open_sends: usize,
    completions: Vec<Completion>,
}

impl<T: Transport> Exchange<T> {
    /// A member with two links to each neighbour in the tree.
    ///
    /// Errors: those of the transport.
    pub fn new(
        mut transport: T,
        rank: u32,
        members: u32,
        links: Vec<(u32, [T::Link; 2])>,
        bytes_max: usize,
    ) -> Outcome<Self> {
        let mut peers = Vec::new();
        for (rank, [eager, long]) in links {
            let (eager, long) = (transport.open(eager)?, transport.open(long)?);
            let receives = Region::zeroed(RECEIVES * RECEIVE_BYTES);
            for slot in 0..RECEIVES {
                let into = receives.write(place(slot))?;
                transport.post_receive(eager, into, Token(slot as u64))?;
            }
            transport.write_control(eager, &[CREDITS, RECEIVES as u8])?;
            peers.push(Peer {
                rank,
                eager,
                long,
                receives,
                arrived: VecDeque::new(),
                credits: 0,
                reposted: 0,
                ready: 0,
                long_arrived: 0,
            });
        }
        Ok(Self {
            transport,
            rank,
            members,
            peers,
            memory: Region::zeroed(bytes_max),
            scratch: Region::zeroed(bytes_max),
            staging: Region::zeroed(STAGED * RECEIVE_BYTES),
            free: (0..STAGED).collect(),
            operation: 0,
            steps: VecDeque::new(),
            bytes: 0,
            done: 0,
            is_posted: false,
            open_sends: 0,
            completions: Vec::new(),
        })
    }

    pub fn memory(&self) -> &Region {
        &self.memory
    }

    /// Begins an operation on the first bytes of the memory. The one before is complete.
    pub fn start(&mut self, cell: Cell) -> Outcome<()> {
        self.steps = steps(cell.operation, self.rank, self.members).into();
        self.operation += 1;
        self.bytes = cell.bytes as usize;
        (self.done, self.is_posted) = (0, false);
        self.advance()?;
        self.transport.flush();
        Ok(())
    }

    pub fn is_complete(&self) -> bool {
        self.steps.is_empty() && self.open_sends == 0
    }

    /// Moves bytes, waiting up to `wait` for something to do.
    ///
    /// Errors: a neighbour is gone, or breaks the protocol.
    pub fn progress(&mut self, wait: std::time::Duration) -> Outcome<()> {
        let mut completions = std::mem::take(&mut self.completions);
        self.transport.poll(&mut completions, wait);
        for completion in completions.drain(..) {
            self.handle(completion)?;
        }
        self.completions = completions;
        self.advance()?;
        // What is sent last must not wait for the next operation.
        self.transport.flush();
        Ok(())
    }

    fn handle(&mut self, completion: Completion) -> Outcome<()> {
        let endpoint = completion.endpoint();
        let of = |peer: &&mut Peer| peer.eager == endpoint || peer.long == endpoint;
        let peer = self.peers.iter_mut().find(of).ok_or("an unknown endpoint")?;
        match completion {
            Completion::Received { token, bytes, .. } if endpoint == peer.eager => {
                peer.arrived.push_back((token.0 as usize, bytes as usize));
            }
            Completion::Received { .. } => peer.long_arrived += 1,
            Completion::Sent { token, .. } if endpoint == peer.eager => {
                self.free.push(token.0 as usize);
            }
            Completion::Sent { .. } => self.open_sends -= 1,
            Completion::Control { word, .. } => match word[..] {
                [CREDITS, count] => peer.credits += usize::from(count),
                [READY] => peer.ready += 1,
                _ => return Err(format!("an invalid word of member {}", peer.rank).into()),
            },
            other => return Err(format!("member {} is gone: {other:?}", peer.rank).into()),
        }
        Ok(())
    }

    /// Does the steps in order, as far as possible now.
    fn advance(&mut self) -> Outcome<()> {
        while let Some(&step) = self.steps.front() {
            let is_done = match (step, self.bytes > EAGER_BYTES_MAX) {
                (Step::Receive { from, adds }, false) => self.receive_pieces(from, adds)?,
                (Step::Receive { from, adds }, true) => self.receive_long(from, adds)?,
                (Step::Send { to }, false) => self.send_pieces(to)?,
                (Step::Send { to }, true) => self.send_long(to)?,
            };
            if !is_done {
                return Ok(());
            }
            self.steps.pop_front();
            (self.done, self.is_posted) = (0, false);
        }
        Ok(())
    }

    fn peer(&mut self, rank: u32) -> Outcome<&mut Peer> {
        let found = self.peers.iter_mut().find(|peer| peer.rank == rank);
        found.ok_or_else(|| format!("no link to member {rank}").into())
    }

    fn receive_pieces(&mut self, from: u32, adds: bool) -> Outcome<bool> {
        while self.done < self.bytes {
            let (done, rest) = (self.done, self.bytes - self.done);
            let memory = self.memory.clone();
            let expected = envelope(self.operation, self.bytes, done);
            let peer = self.peer(from)?;
            let Some((slot, bytes)) = peer.arrived.pop_front() else { return Ok(false) };
            let start = slot * RECEIVE_BYTES;
            let piece = peer.receives.read(start..start + bytes)?;
            let contents = match piece.split_first_chunk::<ENVELOPE_BYTES>() {
                Some((head, contents)) if *head == expected && contents.len() <= rest => contents,
                _ => return Err(format!("member {from} sends something else").into()),
            };
            let bytes = contents.len();
            put(&mut memory.write(done..done + bytes)?, contents, adds)?;
            drop(piece);
            let into = peer.receives.write(place(slot))?;
            peer.reposted += 1;
            let (eager, reposted) = (peer.eager, peer.reposted);
            if reposted >= RECEIVES / 2 {
                peer.reposted = 0;
            }
            self.transport.post_receive(eager, into, Token(slot as u64))?;
            if reposted >= RECEIVES / 2 {
                self.transport.write_control(eager, &[CREDITS, reposted as u8])?;
            }
            self.done += bytes;
        }
        Ok(true)
    }

    fn receive_long(&mut self, from: u32, adds: bool) -> Outcome<bool> {
        let bytes = self.bytes;
        let target = if adds { self.scratch.clone() } else { self.memory.clone() };
        if !self.is_posted {
            let long = self.peer(from)?.long;
            self.transport.post_receive(long, target.write(0..bytes)?, Token(0))?;
            self.transport.write_control(long, &[READY])?;
            self.is_posted = true;
        }
        let peer = self.peer(from)?;
        if peer.long_arrived == 0 {
            return Ok(false);
        }
        peer.long_arrived -= 1;
        if adds {
            put(&mut self.memory.write(0..bytes)?, &self.scratch.read(0..bytes)?, true)?;
        }
        Ok(true)
    }

    fn send_pieces(&mut self, to: u32) -> Outcome<bool> {
        while self.done < self.bytes {
            let length = PIECE_BYTES.min(self.bytes - self.done);
            let done = self.done;
            let peer = self.peer(to)?;
            if peer.credits == 0 {
                return Ok(false);
            }
            let eager = peer.eager;
            let Some(slot) = self.free.pop() else { return Ok(false) };
            self.peer(to)?.credits -= 1;
            let range = slot * RECEIVE_BYTES..slot * RECEIVE_BYTES + ENVELOPE_BYTES + length;
            let piece = self.memory.read(done..done + length)?;
            let mut staged = self.staging.write(range.clone())?;
            staged[..ENVELOPE_BYTES].copy_from_slice(&envelope(self.operation, self.bytes, done));
            staged[ENVELOPE_BYTES..].copy_from_slice(&piece);
            drop((piece, staged));
            self.transport.post_send(eager, self.staging.read(range)?, 0, Token(slot as u64))?;
            self.done += length;
        }
        Ok(true)
    }

    /// Until the message has left: MPI's blocking send.
    fn send_long(&mut self, to: u32) -> Outcome<bool> {
        if self.is_posted {
            return Ok(self.open_sends == 0);
        }
        let bytes = self.bytes;
        let peer = self.peer(to)?;
        if peer.ready == 0 {
            return Ok(false);
        }
        peer.ready -= 1;
        let long = peer.long;
        self.transport.post_send(long, self.memory.read(0..bytes)?, 0, Token(0))?;
        self.open_sends += 1;
        self.is_posted = true;
        Ok(false)
    }
}

fn place(slot: usize) -> std::ops::Range<usize> {
    slot * RECEIVE_BYTES..(slot + 1) * RECEIVE_BYTES
}

/// The envelope of a piece.
fn envelope(operation: u64, bytes: usize, at: usize) -> [u8; ENVELOPE_BYTES] {
    let mut envelope = [0; ENVELOPE_BYTES];
    for (part, value) in envelope.chunks_exact_mut(8).zip([operation, bytes as u64, at as u64]) {
        part.copy_from_slice(&value.to_le_bytes());
    }
    envelope
}

fn put(memory: &mut [u8], piece: &[u8], adds: bool) -> Outcome<()> {
    if adds {
        fold(Type::F32, Op::Sum, memory, piece)?;
    } else {
        memory.copy_from_slice(piece);
    }
    Ok(())
}
