//! Messages between the two ends of a link over its lifeline, the TCP connection that bootstrap has
//! made: addresses of memory, and the close.

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifeline {
    /// The first message: the address of the control slots. Keys and addresses are those of the
    /// provider.
    Hello { key: u64, address: u64 },
    /// Memory that the peer may write.
    Exposed { name: u32, key: u64, address: u64, bytes: u64 },
    /// A write waits for the address of this memory: it was exposed, or else the link breaks.
    WhereIs { name: u32 },
    /// The number of all control words that were sent; no more follow.
    Bye { words: u64 },
    /// Acknowledges [`Lifeline::Bye`]: all those words were received.
    ByeAck,
}

impl Lifeline {
    /// Encodes the message, in at most 33 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (code, numbers): (u8, Vec<u64>) = match *self {
            Self::Hello { key, address } => (1, vec![key, address]),
            Self::Exposed { name, key, address, bytes } => {
                (2, vec![name.into(), key, address, bytes])
            }
            Self::Bye { words } => (3, vec![words]),
            Self::ByeAck => (4, vec![]),
            Self::WhereIs { name } => (5, vec![name.into()]),
        };
        let mut bytes = vec![code];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes
    }

    /// Decodes a message; `None` for anything that [`Lifeline::encode`] does not make.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&code, rest) = bytes.split_first()?;
        let (chunks, remainder) = rest.as_chunks::<8>();
        if !remainder.is_empty() {
            return None;
        }
        let numbers: Vec<u64> = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        match (code, &numbers[..]) {
            (1, &[key, address]) => Some(Self::Hello { key, address }),
            (2, &[name, key, address, bytes]) => {
                Some(Self::Exposed { name: u32::try_from(name).ok()?, key, address, bytes })
            }
            (3, &[words]) => Some(Self::Bye { words }),
            (4, []) => Some(Self::ByeAck),
            (5, &[name]) => Some(Self::WhereIs { name: u32::try_from(name).ok()? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_others_are_refused() {
        for word in [
            Lifeline::Hello { key: 1, address: u64::MAX },
            Lifeline::Exposed { name: 3, key: 4, address: 5, bytes: 6 },
            Lifeline::Bye { words: 7 },
            Lifeline::ByeAck,
            Lifeline::WhereIs { name: 8 },
        ] {
            let bytes = word.encode();
            assert_eq!(Lifeline::decode(&bytes), Some(word));
            assert_eq!(Lifeline::decode(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(Lifeline::decode(&[9]), None);
        assert_eq!(Lifeline::decode(&[3; 17]), None);
    }
}
