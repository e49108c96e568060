//! The unencrypted layer of a connection: greetings, and TLS records as bytes.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::{
    deadline::Deadline,
    error::{Error, PeerErrorKind},
    version::PROTOCOL_VERSION,
};

const MAGIC: [u8; 4] = *b"RDMC";
const GREETING_BYTES: usize = 4 + 2;

/// The head of a TLS record (RFC 8446, section 5): type, version, length.
const RECORD_HEAD_BYTES: usize = 5;
/// The type of a record that is part of a handshake.
const HANDSHAKE: u8 = 22;
/// An upper bound on a greeting and a hello together.
const HELLO_BYTES_MAX: usize = 4 << 10;
/// The longest body of a record, including what encryption adds.
const RECORD_BYTES_MAX: usize = (1 << 14) + 256;

/// Reads and writes the bytes of a connection, with deadlines.
pub(crate) struct Line<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) peer: SocketAddr,
}

impl Line<'_> {
    /// Exchanges greetings, so that another protocol or version has its own error, apart from that
    /// of another secret.
    pub(crate) fn greet(&self, deadline: Deadline) -> Result<(), Error> {
        self.write_greeting(deadline)?;
        self.read_greeting(deadline)
    }

    /// Does the first half of [`Line::greet`].
    pub(crate) fn write_greeting(&self, deadline: Deadline) -> Result<(), Error> {
        let _ = self.stream.set_nodelay(true);
        self.write(&greeting(), deadline)
    }

    /// Does the second half of [`Line::greet`].
    pub(crate) fn read_greeting(&self, deadline: Deadline) -> Result<(), Error> {
        let mut greeted = [0; GREETING_BYTES];
        self.read(&mut greeted, deadline, "greeting")?;
        if greeted[..4] != MAGIC {
            return Err(peer_error(self.peer, "does not use rdmc's protocol".into()));
        }
        let version = u16::from_le_bytes([greeted[4], greeted[5]]);
        if version != PROTOCOL_VERSION {
            let cause = format!(
                "uses version {version} of the protocol, this is version {PROTOCOL_VERSION}; \
                 install the same rdmc on all hosts"
            );
            return Err(peer_error(self.peer, cause));
        }
        Ok(())
    }

    /// Waits for the peer's next TLS record; `what` names its expected contents in errors.
    pub(crate) fn read_record(
        &self,
        record: &mut Vec<u8>,
        deadline: Deadline,
        what: &str,
    ) -> Result<(), Error> {
        record.clear();
        record.resize(RECORD_HEAD_BYTES, 0);
        self.read(record, deadline, what)?;
        let body_bytes = usize::from(u16::from_be_bytes([record[3], record[4]]));
        if body_bytes > RECORD_BYTES_MAX {
            return Err(peer_error(self.peer, "sent something that is not TLS".into()));
        }
        record.resize(RECORD_HEAD_BYTES + body_bytes, 0);
        self.read(&mut record[RECORD_HEAD_BYTES..], deadline, what)
    }

    pub(crate) fn write(&self, mut bytes: &[u8], deadline: Deadline) -> Result<(), Error> {
        let mut stream = self.stream;
        while !bytes.is_empty() {
            let left = self.time_left(deadline, || "to take a message".into())?;
            let written = stream.set_write_timeout(Some(left)).and_then(|()| stream.write(bytes));
            match written {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(lost(self.peer, &error)),
            }
        }
        Ok(())
    }

    fn read(&self, mut into: &mut [u8], deadline: Deadline, what: &str) -> Result<(), Error> {
        let mut stream = self.stream;
        while !into.is_empty() {
            let left = self.time_left(deadline, || format!("for its {what}"))?;
            let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(into));
            match read {
                Ok(0) => {
                    let cause = format!("closed the connection instead of sending its {what}");
                    return Err(peer_error_of(PeerErrorKind::Closed, self.peer, cause));
                }
                Ok(count) => into = &mut into[count..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(lost(self.peer, &error)),
            }
        }
        Ok(())
    }

    fn time_left(&self, deadline: Deadline, what: impl Fn() -> String) -> Result<Duration, Error> {
        let left = deadline.left();
        if left.is_zero() {
            return Err(deadline.missed(format!("waiting for {} {}", self.peer, what())));
        }
        Ok(left)
    }
}

fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[..4].copy_from_slice(&MAGIC);
    greeting[4..].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    greeting
}

/// Writes the greeting to a connection that does not block. Returns whether all of it was written.
pub(crate) fn greet_at_once(stream: &mut impl Write) -> bool {
    stream.write(&greeting()).is_ok_and(|bytes| bytes == GREETING_BYTES)
}

/// Classifies what a peer has sent before its handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// A valid prefix of what is expected.
    Part,
    /// Enough to be answered: a greeting and a whole hello, or the greeting of another version.
    Hello,
    /// Anything else, or the end of the connection.
    Invalid,
}

/// What the peers of a listener begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    /// rdmc's greeting, then a TLS hello. The listener sends a greeting, too.
    Greeting,
    /// A TLS hello.
    Tls,
}

/// Classifies the bytes received so far, without consuming them (`peek`).
pub(crate) fn sent_so_far(opening: Opening, peek: impl Fn(&mut [u8]) -> io::Result<usize>) -> Sent {
    let mut bytes = [0; HELLO_BYTES_MAX];
    let sent = match peek(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Part,
        Ok(count) if count > 0 => &bytes[..count],
        _ => return Sent::Invalid,
    };
    match opening {
        Opening::Greeting => greeted_so_far(sent),
        Opening::Tls => hello_so_far(sent),
    }
}

fn greeted_so_far(sent: &[u8]) -> Sent {
    let greeting = greeting();
    let greeted = sent.len().min(MAGIC.len());
    if sent[..greeted] != greeting[..greeted] {
        return Sent::Invalid;
    }
    let Some((version, record)) = sent.split_at_checked(GREETING_BYTES) else { return Sent::Part };
    if *version != greeting {
        return Sent::Hello;
    }
    hello_so_far(record)
}

fn hello_so_far(record: &[u8]) -> Sent {
    match *record {
        [HANDSHAKE, _, _, high, low, ref body @ ..] => {
            let whole = usize::from(u16::from_be_bytes([high, low]));
            // Anything longer than a hello is read on the connection's own thread.
            let expected = whole.min(HELLO_BYTES_MAX - GREETING_BYTES - RECORD_HEAD_BYTES);
            if body.len() >= expected { Sent::Hello } else { Sent::Part }
        }
        [] | [HANDSHAKE, ..] => Sent::Part,
        _ => Sent::Invalid,
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

pub(crate) fn lost(address: SocketAddr, error: &io::Error) -> Error {
    let cause = format!("the connection was lost: {error}");
    peer_error_of(PeerErrorKind::Closed, address, cause)
}

/// An error that another attempt does not change.
pub(crate) fn peer_error(address: SocketAddr, cause: String) -> Error {
    peer_error_of(PeerErrorKind::Refused, address, cause)
}

pub(crate) fn peer_error_of(kind: PeerErrorKind, address: SocketAddr, cause: String) -> Error {
    Error::Peer { address, cause, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(sent: &[u8]) -> Sent {
        judged_as(Opening::Greeting, sent)
    }

    fn judged_as(opening: Opening, sent: &[u8]) -> Sent {
        sent_so_far(opening, |into| {
            let count = sent.len().min(into.len());
            into[..count].copy_from_slice(&sent[..count]);
            Ok(count)
        })
    }

    #[test]
    fn a_hello_is_distinguished_from_its_parts_and_from_invalid_bytes() {
        let hello = [&greeting()[..], &[HANDSHAKE, 3, 1, 0, 3, 1, 2, 3]].concat();
        assert_eq!(judged(&hello), Sent::Hello);
        assert_eq!(judged(&[&hello[..], &[7]].concat()), Sent::Hello);
        for length in 1..hello.len() {
            assert_eq!(judged(&hello[..length]), Sent::Part, "{length}");
        }
        for place in [0, 3, GREETING_BYTES] {
            let mut other = hello.clone();
            other[place] ^= 1;
            assert_eq!(judged(&other), Sent::Invalid, "{place}");
        }
        assert_eq!(judged(&[]), Sent::Invalid);
    }

    #[test]
    fn servers_of_other_protocols_expect_a_hello_alone() {
        let hello = [HANDSHAKE, 3, 1, 0, 3, 1, 2, 3];
        assert_eq!(judged_as(Opening::Tls, &hello), Sent::Hello);
        for length in 1..hello.len() {
            assert_eq!(judged_as(Opening::Tls, &hello[..length]), Sent::Part, "{length}");
        }
        assert_eq!(judged_as(Opening::Tls, &greeting()), Sent::Invalid);
        assert_eq!(judged_as(Opening::Tls, &[]), Sent::Invalid);
    }

    #[test]
    fn other_versions_and_lengths_that_no_hello_has_are_answered() {
        let mut other = greeting();
        other[4] ^= 1;
        assert_eq!(judged(&other), Sent::Hello);
        let mut long = [&greeting()[..], &[HANDSHAKE, 3, 1, 255, 255]].concat();
        assert_eq!(judged(&long), Sent::Part);
        long.resize(HELLO_BYTES_MAX, 0);
        assert_eq!(judged(&long), Sent::Hello);
    }
}
