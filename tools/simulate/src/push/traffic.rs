//! What control connections carry.

use serde::Serialize;

use super::line::Word;

/// Messages between the root and all receivers, and their bytes as they are sent, without those of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Traffic {
    /// To receivers.
    pub sent: u64,
    /// See `sent`.
    pub sent_bytes: u64,
    /// From receivers.
    pub received: u64,
    /// See `received`.
    pub received_bytes: u64,
    /// The longest message of all.
    pub longest_bytes: u64,
}

/// A message's length is sent before it.
const LENGTH_BYTES: usize = 4;

impl Traffic {
    pub(super) fn add(&mut self, word: &Word) {
        let encoded = match word {
            Word::ToReceiver(message) => postcard::to_stdvec(message),
            Word::ToRoot(message) => postcard::to_stdvec(message),
            Word::End(_) => return,
        };
        let bytes = (encoded.expect("messages can be encoded").len() + LENGTH_BYTES) as u64;
        let (messages, all) = match word {
            Word::ToReceiver(_) => (&mut self.sent, &mut self.sent_bytes),
            _ => (&mut self.received, &mut self.received_bytes),
        };
        *messages += 1;
        *all += bytes;
        self.longest_bytes = self.longest_bytes.max(bytes);
    }
}
