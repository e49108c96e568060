//! A netlink socket of the routing family: requests with a deadline, and notifications.

use std::{
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use netlink_packet_core::{
    NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
        netlink::SocketAddrNetlink, recvfrom, sendto, socket_with, sockopt,
    },
};

use crate::RoutesError;

/// Timeout of a request; a million routes take some seconds.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The kernel fills at most 32 KiB at a time.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// Receive buffer for notifications, as far as the system allows.
const NOTIFICATIONS_BYTES: usize = 1 << 20;
/// Notifications that are drained at once: bounds the loop while they keep arriving.
const NOTIFICATIONS_MAX: usize = 100_000;

/// A socket of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    room: Vec<u8>,
    sequence: u32,
}

/// The kernel's answer to a request, while it is being received.
struct Answer<'a> {
    sequence: u32,
    take: &'a mut dyn FnMut(RouteNetlinkMessage),
    /// The dump was interrupted by changes, and may be incomplete.
    is_interrupted: bool,
    /// The last parse error. The rest is read all the same: a dump has to be read to its end before the next.
    misread: Option<String>,
    /// Set by the last message: 0, or why the kernel refused.
    end: Option<i32>,
}

impl Socket {
    /// Opens a socket that is subscribed to these multicast groups, a bit for each.
    pub fn open(groups: u32) -> Result<Self, RoutesError> {
        let open = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            // No protocol: 0 is the one of routes.
            let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
            if groups != 0 {
                // More than the system's limit takes CAP_NET_ADMIN; less does, too.
                let _ = sockopt::set_socket_recv_buffer_size_force(&socket, NOTIFICATIONS_BYTES);
            }
            bind(&socket, &SocketAddrNetlink::new(0, groups))?;
            Ok(Self { socket, room: vec![0; DATAGRAM_BYTES_MAX], sequence: 0 })
        };
        open().map_err(failed("open a socket"))
    }

    /// Sends a request, and passes all messages of the answer to `take`. Returns whether it is consistent:
    /// `false` if there were changes meanwhile. `deadline` is [`PATIENCE`] from some instant.
    ///
    /// Errors: the kernel refuses, the answer cannot be parsed, or is incomplete at the deadline.
    pub fn request(
        &mut self,
        step: &'static str,
        flags: u16,
        message: RouteNetlinkMessage,
        deadline: Instant,
        take: &mut dyn FnMut(RouteNetlinkMessage),
    ) -> Result<bool, RoutesError> {
        self.send(step, flags, message)?;
        let sequence = self.sequence;
        let mut answer = Answer { sequence, take, is_interrupted: false, misread: None, end: None };
        while answer.end.is_none() {
            let received = self.receive(deadline).map_err(failed(step))?;
            let Some(bytes) = received.filter(|_| Instant::now() < deadline) else {
                return Err(RoutesError::Late { step, timeout_ms: PATIENCE.as_millis() as u64 });
            };
            match self.room.get(..bytes) {
                Some(datagram) => answer.read(datagram),
                None => answer.misread = Some(format!("a datagram of {bytes} bytes is too long")),
            }
        }
        match (answer.end, answer.misread) {
            (Some(code), _) if code != 0 => {
                let source = io::Error::from_raw_os_error(code.wrapping_abs());
                Err(RoutesError::Kernel { step, source })
            }
            (_, Some(why)) => Err(RoutesError::Message { step, why }),
            _ => Ok(!answer.is_interrupted),
        }
    }

    fn send(
        &mut self,
        step: &'static str,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> Result<(), RoutesError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &bytes, SendFlags::DONTWAIT, &kernel).map_err(failed(step))?;
        Ok(())
    }

    /// Waits for notifications, and drains them. Returns whether there were any, or some were lost.
    pub fn notified(&mut self, timeout: Duration) -> Result<bool, RoutesError> {
        let step = "listen for changes";
        // Bounded, since the sum could overflow.
        let mut deadline = Instant::now() + timeout.min(Duration::from_secs(86_400));
        let mut has_come = false;
        for _ in 0..NOTIFICATIONS_MAX {
            match self.receive(deadline) {
                Ok(None) => break,
                Ok(Some(_)) => {}
                // The buffer has overflowed.
                Err(Errno::NOBUFS) => {}
                Err(error) => return Err(failed(step)(error)),
            }
            has_come = true;
            deadline = Instant::now();
        }
        Ok(has_come)
    }

    /// The length of the next datagram from the kernel, which is in `room` as far as it fits; `None` at the
    /// deadline.
    fn receive(&mut self, deadline: Instant) -> Result<Option<usize>, Errno> {
        loop {
            match recvfrom(&self.socket, &mut self.room[..], RecvFlags::TRUNC) {
                Ok((_, bytes, from)) => {
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    if from.is_some_and(|from| from.pid() == 0) {
                        return Ok(Some(bytes));
                    }
                }
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = left.try_into().map_err(|_| Errno::INVAL)?;
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn failed(step: &'static str) -> impl Fn(Errno) -> RoutesError {
    move |error| RoutesError::Kernel { step, source: error.into() }
}

impl Answer<'_> {
    /// Reads a datagram's messages.
    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.end.is_none() {
            let frame = match NetlinkBuffer::new_checked(bytes) {
                Ok(frame) => frame,
                Err(error) => return self.misread = Some(error.to_string()),
            };
            // Messages begin at multiples of four bytes.
            let taken = (frame.length() as usize).next_multiple_of(4).min(bytes.len());
            let (message, rest) = bytes.split_at(taken);
            bytes = rest;
            // Others are left of a request that has timed out.
            if frame.sequence_number() == self.sequence {
                self.is_interrupted |= frame.flags() & NLM_F_DUMP_INTR != 0;
                self.read_one(message);
            }
        }
    }

    fn read_one(&mut self, message: &[u8]) {
        match NetlinkMessage::deserialize(message).map(|message| message.payload) {
            Ok(NetlinkPayload::InnerMessage(message)) => (self.take)(message),
            Ok(NetlinkPayload::Done(done)) => self.end = Some(done.code),
            Ok(NetlinkPayload::Error(error)) => self.end = Some(error.raw_code()),
            Ok(_) => {}
            Err(error) => self.misread = Some(error.to_string()),
        }
    }
}
