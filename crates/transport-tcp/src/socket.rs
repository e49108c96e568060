//! Sockets as streams of bytes.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
};

use mio::net::TcpStream;
use rustix::{
    io::{Errno, read, readv},
    net::{SendAncillaryBuffer, SendFlags, send, sendmsg},
};

use crate::byte_stream::ByteStream;

/// One system call each.
impl ByteStream for TcpStream {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match into {
            [into] => read(&*self, &mut **into),
            _ => readv(&*self, into),
        }
    }

    /// Not by `writev`: a closed connection must not raise SIGPIPE in a host process that does not ignore it.
    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match from {
            [from] => send(&*self, from, SendFlags::NOSIGNAL),
            _ => sendmsg(&*self, from, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL),
        }
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}
