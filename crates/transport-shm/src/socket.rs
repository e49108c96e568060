//! The Unix socket of a link: it passes memory, wakes the other end, and tells when that has ended.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

/// The length of every message.
const MESSAGE_BYTES: usize = 16;
/// Of the segments' layout, too.
const VERSION: u32 = 1;

/// A message. With [`Message::Hello`] and [`Message::Exposed`] comes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// The first one, with this end's segment.
    Hello { ring_bytes: u64 },
    /// Memory that the peer may write.
    Exposed { key: u32, bytes: u64 },
    /// There is news for a peer that sleeps.
    Wake,
}

/// What was received.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message, Result<OwnedFd, Missing>),
    /// Anything that [`send`] does not send.
    Invalid,
    /// Nothing for now.
    Nothing,
    /// The other end is closed.
    Ended,
}

/// Why no file has come with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// The peer has passed none.
    NotSent,
    /// The system has dropped it: this process has no file descriptors left.
    NotTaken,
}

impl Message {
    fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (code, number, bytes): (u32, u32, u64) = match self {
            Self::Hello { ring_bytes } => (1, VERSION, ring_bytes),
            Self::Exposed { key, bytes } => (2, key, bytes),
            Self::Wake => (3, 0, 0),
        };
        let mut encoded = [0; MESSAGE_BYTES];
        encoded[..4].copy_from_slice(&code.to_le_bytes());
        encoded[4..8].copy_from_slice(&number.to_le_bytes());
        encoded[8..].copy_from_slice(&bytes.to_le_bytes());
        encoded
    }

    fn decode(encoded: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let (words, _) = encoded.as_chunks::<8>();
        let [first, bytes] = words else { return None };
        let [first, bytes] = [first, bytes].map(|word| u64::from_le_bytes(*word));
        let key = (first >> 32) as u32;
        match first as u32 {
            1 if key == VERSION => Some(Self::Hello { ring_bytes: bytes }),
            2 => Some(Self::Exposed { key, bytes }),
            3 => Some(Self::Wake),
            _ => None,
        }
    }
}

/// Sends a message, without waiting.
///
/// Errors: `EAGAIN`, many are unread; the other end is closed; too many files are in flight.
pub(crate) fn send(
    socket: &OwnedFd,
    message: Message,
    file: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() {
        // The space is that of one file.
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
    }
    let encoded = message.encode();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket.as_fd(), &[IoSlice::new(&encoded)], &mut ancillary, flags).map(drop)
}

/// Receives a message, without waiting. Files beyond the first are closed.
pub(crate) fn receive(socket: &OwnedFd) -> Received {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut encoded = [0; MESSAGE_BYTES];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let into = &mut [IoSliceMut::new(&mut encoded)];
    let mut received = recvmsg(socket.as_fd(), into, &mut ancillary, flags);
    if matches!(received, Err(Errno::CONNRESET)) {
        // The other end has closed without reading all; said once, and before what it has sent.
        received = recvmsg(socket.as_fd(), into, &mut ancillary, flags);
    }
    let received = match received {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::Ended,
    };
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    let mut file = Err(if is_cut { Missing::NotTaken } else { Missing::NotSent });
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            for other in files {
                file = file.or(Ok(other));
            }
        }
    }
    match received.bytes {
        0 => Received::Ended,
        MESSAGE_BYTES => match Message::decode(&encoded) {
            Some(message) => Received::Message(message, file),
            None => Received::Invalid,
        },
        _ => Received::Invalid,
    }
}
