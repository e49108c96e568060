//! The fuzzers' entry points (`./dev fuzz`): the messages by which members create a group.

use std::net::SocketAddr;

use engine::GroupSettings;
use schedule::{Algorithm, Schedule};
use serde::{Serialize, de::DeserializeOwned};

#[cfg(feature = "switch")]
use crate::creation::in_switch::{FromReceiver, FromRoot};
use crate::{
    Offload,
    creation::{
        choice::RootChoice,
        messages::{Hello, Message, Request, Response},
        terms::{GroupTerms, Terms},
    },
    group_settings::BLOCK_BYTES_UNASKED_MAX,
};

/// Decodes a message whose first byte is its kind; the remaining kinds are defined in other crates.
/// Returns whether the bytes are a message.
pub fn messages(bytes: &[u8]) -> bool {
    let Some((&kind, body)) = bytes.split_first() else { return false };
    match kind {
        1 => decoded::<Request>(body).is_some(),
        3 => decoded::<Hello>(body).is_some(),
        4 => decoded::<Message>(body).is_some(),
        2 => decoded::<Response>(body).is_some(),
        5 => {
            let theirs = decoded::<Terms>(body);
            let ours = terms();
            theirs
                .inspect(|theirs| drop((ours.difference(theirs), theirs.difference(&ours))))
                .is_some()
        }
        8 => decoded::<RootChoice>(body).inspect(|&choice| check_choice(choice)).is_some(),
        #[cfg(feature = "switch")]
        6 => decoded::<FromReceiver>(body).is_some(),
        #[cfg(feature = "switch")]
        7 => decoded::<FromRoot>(body).is_some(),
        _ => false,
    }
}

/// Decodes a message and checks that encoding and decoding it again preserves it.
fn decoded<M: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    let message: M = postcard::from_bytes(bytes).ok()?;
    let encoded = postcard::to_stdvec(&message).expect("it was decoded");
    let again: M = postcard::from_bytes(&encoded).expect("it was encoded here");
    assert_eq!(postcard::to_stdvec(&again).expect("it was decoded"), encoded);
    Some(message)
}

/// What a member takes of any choice makes a group within the limits.
fn check_choice(choice: RootChoice) {
    let members = [7, 8, 9].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
    let settings = crate::GroupSettings::new(1, members.to_vec(), 1);
    if let Ok(taken) = choice.apply(settings) {
        let made = GroupSettings::try_from(&taken).expect("it was taken");
        assert!(made.block_bytes <= BLOCK_BYTES_UNASKED_MAX);
    }
}

fn terms() -> Terms {
    let schedule = Schedule::new(Algorithm::BinomialPipeline, 3, 0).expect("a small group");
    let addresses = [7, 8, 9].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
    Terms::Group(GroupTerms::new(
        &GroupSettings::new(1, 0, schedule),
        &addresses,
        1,
        "tcp",
        Offload::NotAsked,
        crate::Protection::default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::creation::choice::{Decision, Question};

    fn seed(kind: u8, message: &impl Serialize) -> Vec<u8> {
        [vec![kind], postcard::to_stdvec(message).unwrap()].concat()
    }

    fn settings() -> crate::GroupSettings {
        let members = [7, 8].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let settings = crate::GroupSettings::new(5, members.to_vec(), 1);
        settings.schedule(Algorithm::Chain).block_bytes(65_536)
    }

    fn choice() -> RootChoice {
        RootChoice::of(&GroupSettings::try_from(&settings()).unwrap())
    }

    fn question() -> Question {
        Decision::new(&settings()).question(0, 1_000)
    }

    #[test]
    fn the_corpus_of_messages_passes() {
        let messages = [
            // The fields in their order: group, from, to, stream, terms, offer, time.
            ("request", seed(1, &(5_u64, 2_u32, 1_u32, 0_u8, terms(), vec![9_u8; 8], 1_000_u64))),
            ("accepted", seed(2, &(0_u8, vec![9_u8; 8]))),
            ("refused", seed(2, &(1_u8, "no"))),
            ("terms", seed(5, &terms())),
            ("choice", seed(8, &choice())),
            ("hello-choice", seed(3, &Hello::Choice(question()))),
            ("response-chose", seed(2, &Response::Chose(choice()))),
            ("asks-choice", seed(4, &Message::AsksChoice { channel: 3, question: question() })),
            ("chose", seed(4, &Message::Chose { channel: 3, choice: choice() })),
        ];
        testing::replay("rdmc_messages", &messages, super::messages);
    }

    #[cfg(feature = "switch")]
    #[test]
    fn the_corpus_of_messages_about_switches_passes() {
        let messages = [
            (
                "joins-in-switch",
                seed(6, &(0_u8, [2_u8, 0, 0, 0, 0, 7], 1024_u32, 1_u32 << 20, 0x4_0001_u32)),
            ),
            ("cannot-in-switch", seed(6, &(1_u8, "CAP_NET_RAW"))),
            ("stands-in-switch", seed(7, &(0_u8, 0x4_0002_u32, 0xff_ff00_u32, 1024_u32))),
            ("refused-in-switch", seed(7, &(1_u8, "a switch is full"))),
        ];
        testing::replay("rdmc_messages", &messages, super::messages);
    }
}
