//! Sockets and shared memory as streams of bytes.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
};

use mio::net::TcpStream;
use rustix::{
    io::{Errno, read, readv},
    net::{SendAncillaryBuffer, SendFlags, send, sendmsg},
};
use transport_shm::ShmPipe;

use crate::byte_stream::{ByteStream, Readiness};

/// What the bytes of a stream pass through.
pub(crate) enum Socket {
    Tcp(TcpStream),
    /// Shared memory with a process of this machine, which the connection beside it identifies. Nothing is sent on that.
    Memory(Box<ShmPipe>, TcpStream),
}

impl Socket {
    /// Returns the socket that tells when the stream can move bytes.
    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Memory(pipe, _) => pipe.as_fd(),
        }
    }

    /// Before a wait for events: has the peer cause one when bytes can move. Returns whether they can already.
    pub(crate) fn doze(&mut self, is_full: bool) -> Readiness {
        if let Self::Memory(pipe, _) = self {
            pipe.doze(is_full);
        }
        self.look(is_full)
    }

    /// After a wait for events: the peer need not cause any.
    pub(crate) fn wake(&mut self, is_full: bool) -> Readiness {
        if let Self::Memory(pipe, _) = self {
            pipe.wake();
        }
        self.look(is_full)
    }

    /// Returns what can be known without an event.
    pub(crate) fn look(&mut self, is_full: bool) -> Readiness {
        match self {
            Self::Tcp(_) => Readiness::default(),
            Self::Memory(pipe, _) => Readiness {
                can_read: pipe.can_read(),
                can_write: is_full && pipe.has_space(),
                is_read_closed: false,
            },
        }
    }
}

/// One system call each over TCP, and none through shared memory, unless the peer has to be woken.
impl ByteStream for Socket {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match (self, into) {
            (Self::Memory(pipe, _), into) => pipe.read(into),
            (Self::Tcp(socket), [into]) => read(&*socket, &mut **into),
            (Self::Tcp(socket), into) => readv(&*socket, into),
        }
    }

    /// Not by `writev`: a closed connection must not raise SIGPIPE in a host process that does not ignore it.
    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let flags = SendFlags::NOSIGNAL;
        match (self, from) {
            (Self::Memory(pipe, _), from) => pipe.write(from),
            (Self::Tcp(socket), [from]) => send(&*socket, from, flags),
            (Self::Tcp(socket), from) => {
                sendmsg(&*socket, from, &mut SendAncillaryBuffer::default(), flags)
            }
        }
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn is_watched(&self) -> bool {
        matches!(self, Self::Memory(..))
    }
}

/// The connection.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) | Self::Memory(_, socket) => socket.as_fd(),
        }
    }
}
