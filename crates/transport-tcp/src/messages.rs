//! Messages between the two ends of a shared connection, in parts as short as control words.

use transport::CONTROL_BYTES_MAX;

use crate::wire::Header;

/// The longest message between two ends of a shared connection, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Calls `push` with each part of a message, which has 1 to [`MESSAGE_BYTES_MAX`] bytes.
pub(crate) fn parts(message: &[u8], mut push: impl FnMut(Header, &[u8])) {
    let mut parts = message.chunks(CONTROL_BYTES_MAX).peekable();
    while let Some(part) = parts.next() {
        push(Header::Message { bytes: part.len(), last: parts.peek().is_none() }, part);
    }
}

/// The parts that have come of a message.
#[derive(Default)]
pub(crate) struct PartialMessage(Vec<u8>);

impl PartialMessage {
    /// Adds a part. Returns the message if this was the last. Errors: it is too long.
    pub(crate) fn add(&mut self, part: &[u8], last: bool) -> Result<Option<Vec<u8>>, String> {
        if self.0.len() + part.len() > MESSAGE_BYTES_MAX {
            return Err(format!("a message of more than {MESSAGE_BYTES_MAX} bytes"));
        }
        self.0.extend_from_slice(part);
        Ok(last.then(|| std::mem::take(&mut self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_whole_and_has_a_limit() {
        for bytes in [1, 63, 64, 65, 128, MESSAGE_BYTES_MAX] {
            let message: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let (mut partial, mut back) = (PartialMessage::default(), Vec::new());
            parts(&message, |header, part| {
                let Header::Message { bytes, last } = header else { panic!("{header:?}") };
                assert_eq!(bytes, part.len());
                back.extend(partial.add(part, last).unwrap());
            });
            assert_eq!(back, [message]);
        }
        let mut partial = PartialMessage::default();
        partial.add(&[0; MESSAGE_BYTES_MAX], false).unwrap();
        assert!(partial.add(&[0], true).unwrap_err().contains("more than 65536"));
    }
}
