//! What a connection carries in clear: greetings, and TLS records as bytes.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::{deadline::Deadline, error::Error, version::PROTOCOL_VERSION};

const MAGIC: [u8; 4] = *b"RDMC";
const GREETING_BYTES: usize = 4 + 2;

/// Of a TLS record (RFC 8446, section 5): type, version, length.
const RECORD_HEAD_BYTES: usize = 5;
/// The type of one that is part of a handshake.
const HANDSHAKE: u8 = 22;
/// More than a greeting and a hello take.
const HELLO_BYTES_MAX: usize = 4 << 10;
/// The longest body of one, with what encryption adds.
const RECORD_BYTES_MAX: usize = (1 << 14) + 256;

/// The bytes of a connection, with deadlines.
pub(crate) struct Line<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) peer: SocketAddr,
}

impl Line<'_> {
    /// Tells other protocols and other versions apart from members with another secret.
    pub(crate) fn greet(&self, deadline: Deadline) -> Result<(), Error> {
        self.write_greeting(deadline)?;
        self.hear_greeting(deadline)
    }

    /// One half of [`Line::greet`].
    pub(crate) fn write_greeting(&self, deadline: Deadline) -> Result<(), Error> {
        let _ = self.stream.set_nodelay(true);
        self.write(&greeting(), deadline)
    }

    /// The other half of [`Line::greet`].
    pub(crate) fn hear_greeting(&self, deadline: Deadline) -> Result<(), Error> {
        let mut greeted = [0; GREETING_BYTES];
        self.read(&mut greeted, deadline, "greeting")?;
        if greeted[..4] != MAGIC {
            return Err(peer_error(self.peer, "does not speak rdmc's protocol".into()));
        }
        let version = u16::from_le_bytes([greeted[4], greeted[5]]);
        if version != PROTOCOL_VERSION {
            let cause = format!(
                "speaks version {version} of the protocol, this is version {PROTOCOL_VERSION}; \
                 install the same rdmc on all hosts"
            );
            return Err(peer_error(self.peer, cause));
        }
        Ok(())
    }

    /// Waits for the next TLS record of the peer, which is to have its `what`.
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
            return Err(peer_error(self.peer, "sent what is not TLS".into()));
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
                    return Err(peer_error(self.peer, cause));
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

/// Greets by a connection that does not block. Whether all of it was taken.
pub(crate) fn greet_at_once(stream: &mut impl Write) -> bool {
    stream.write(&greeting()).is_ok_and(|bytes| bytes == GREETING_BYTES)
}

/// What a peer has sent before its handshake starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// A part of what is expected.
    Part,
    /// What is to be answered: a greeting and a whole hello, or the greeting of another version.
    Hello,
    /// Something else, or the end of the connection.
    Nonsense,
}

/// Judges what has come, of which `peek` takes nothing.
pub(crate) fn said_so_far(peek: impl Fn(&mut [u8]) -> io::Result<usize>) -> Said {
    let mut bytes = [0; HELLO_BYTES_MAX];
    let said = match peek(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Said::Part,
        Ok(count) if count > 0 => &bytes[..count],
        _ => return Said::Nonsense,
    };
    let greeting = greeting();
    let greeted = said.len().min(MAGIC.len());
    if said[..greeted] != greeting[..greeted] {
        return Said::Nonsense;
    }
    let Some((version, record)) = said.split_at_checked(GREETING_BYTES) else { return Said::Part };
    if *version != greeting {
        return Said::Hello;
    }
    match *record {
        [HANDSHAKE, _, _, high, low, ref body @ ..] => {
            let whole = usize::from(u16::from_be_bytes([high, low]));
            // What is longer than any hello is read on a thread of its own.
            let expected = whole.min(HELLO_BYTES_MAX - GREETING_BYTES - RECORD_HEAD_BYTES);
            if body.len() >= expected { Said::Hello } else { Said::Part }
        }
        [] | [HANDSHAKE, ..] => Said::Part,
        _ => Said::Nonsense,
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

pub(crate) fn lost(address: SocketAddr, error: &io::Error) -> Error {
    peer_error(address, format!("the connection was lost: {error}"))
}

pub(crate) fn peer_error(address: SocketAddr, cause: String) -> Error {
    Error::Peer { address, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(said: &[u8]) -> Said {
        said_so_far(|into| {
            let count = said.len().min(into.len());
            into[..count].copy_from_slice(&said[..count]);
            Ok(count)
        })
    }

    #[test]
    fn a_hello_is_told_from_its_parts_and_from_nonsense() {
        let hello = [&greeting()[..], &[HANDSHAKE, 3, 1, 0, 3, 1, 2, 3]].concat();
        assert_eq!(judged(&hello), Said::Hello);
        assert_eq!(judged(&[&hello[..], &[7]].concat()), Said::Hello);
        for length in 1..hello.len() {
            assert_eq!(judged(&hello[..length]), Said::Part, "{length}");
        }
        for place in [0, 3, GREETING_BYTES] {
            let mut other = hello.clone();
            other[place] ^= 1;
            assert_eq!(judged(&other), Said::Nonsense, "{place}");
        }
        assert_eq!(judged(&[]), Said::Nonsense);
    }

    #[test]
    fn other_versions_and_lengths_that_no_hello_has_are_answered() {
        let mut other = greeting();
        other[4] ^= 1;
        assert_eq!(judged(&other), Said::Hello);
        let mut long = [&greeting()[..], &[HANDSHAKE, 3, 1, 255, 255]].concat();
        assert_eq!(judged(&long), Said::Part);
        long.resize(HELLO_BYTES_MAX, 0);
        assert_eq!(judged(&long), Said::Hello);
    }
}
