//! What the system at the other end of a TCP connection has acknowledged (`TCP_INFO`, `tcp(7)`). It does so
//! also while the process there does not run.

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

/// The sending side of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// Whether something that was sent is not acknowledged. Bytes for which a peer that does not read has no room
    /// are not sent.
    pub is_waiting: bool,
    /// Time since the last acknowledgement.
    pub ago: Duration,
}

impl Heard {
    /// Errors: of the system; it is no TCP connection, for example.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a structure of numbers, of which all zeros is a value.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the descriptor is open, the pointers are to a structure and its length, and the kernel writes no
        // more than that.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut bytes,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let ago = Duration::from_millis(info.tcpi_last_ack_recv.into());
        Ok(Self { is_waiting: info.tcpi_unacked > 0, ago })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, net::TcpListener, os::fd::AsFd, thread, time::Instant};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The peer never reads; its kernel acknowledges what there is room for, and then only says that there is none.
    #[test]
    fn a_peer_that_does_not_read_acknowledges() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _peer = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let settled = |socket: &std::net::TcpStream| {
            let deadline = Instant::now() + PATIENCE;
            while Heard::of(socket.as_fd()).unwrap().is_waiting {
                assert!(Instant::now() < deadline, "not all is acknowledged");
                thread::sleep(Duration::from_millis(1));
            }
        };
        socket.write_all(&[1; 100]).unwrap();
        settled(&socket);
        // More than fits: what there is no room for stays here.
        let full = socket.write_all(&vec![1; 64 << 20]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        settled(&socket);
        let none = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(Heard::of(none.as_fd()).is_err());
    }
}
