//! Fuzz targets (`./dev fuzz`): what the other end of a link sends and writes.

use crate::native::{
    lifeline::Lifeline,
    offer::Terms,
    ring::{Note, Receives, Ring, SLOT_BYTES},
};

/// Decodes an offer, a word on the lifeline, or the slots of a ring, as selected by the first byte.
/// Returns whether it is valid.
pub fn messages(bytes: &[u8]) -> bool {
    let Some((&kind, body)) = bytes.split_first() else { return false };
    match kind {
        0 => Terms::read(body, "tcp", 1).is_ok(),
        1 => Lifeline::decode(body).inspect(|word| assert_eq!(word.encode(), body)).is_some(),
        2 => slots(body),
        _ => false,
    }
}

/// Lets a peer write these slots, while this end has words of its own to write. The first invalid
/// slot ends the link.
fn slots(bytes: &[u8]) -> bool {
    let mut ring = Ring::default();
    let (slots, _) = bytes.as_chunks::<SLOT_BYTES>();
    let mut read = false;
    for (slot, index) in slots.iter().zip(0..) {
        assert!(ring.push(Note::Wants { index, bytes: 1 }), "not many wait");
        while ring.next(Receives::default()).is_some() {
            ring.wrote();
        }
        match ring.read(ring.next_slot(), slot) {
            Ok(_) => read = true,
            Err(_) => return false,
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_passes() {
        let mut peer = Ring::default();
        let receives = || Receives { first: 7, lengths: vec![1, u32::MAX] };
        let notes = [Note::Word(vec![1, 2]), Note::Wants { index: 1, bytes: 2 }, Note::Written(7)];
        let mut slots = vec![2];
        for note in notes {
            assert!(peer.push(note));
            slots.extend(peer.next(receives()).unwrap().1);
            peer.wrote();
        }
        let words = [
            ("hello", Lifeline::Hello { key: 1, address: u64::MAX }),
            ("exposed", Lifeline::Exposed { name: 3, key: 4, address: 5, bytes: 6 }),
            ("bye", Lifeline::Bye { words: 7 }),
            ("bye-ack", Lifeline::ByeAck),
            ("where-is", Lifeline::WhereIs { name: 8 }),
        ];
        let mut seeds: Vec<_> =
            words.map(|(name, word)| (name, [vec![1], word.encode()].concat())).into();
        // Version, provider, cookie, number, process, addresses.
        let offer = (4_u8, "tcp", [9_u8; 16], 5_u32, 6_u32, vec![vec![2_u8, 0, 1, 2]]);
        seeds.push(("offer", [vec![0], postcard::to_stdvec(&offer).unwrap()].concat()));
        seeds.push(("slots", slots));
        testing::replay("fabric_messages", &seeds, messages);
    }
}
