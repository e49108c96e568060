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
        messages::{Hello, Message, Purpose, Request, Response},
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
        8 => decoded::<Purpose>(body).is_some(),
        4 => decoded::<Message>(body).is_some(),
        2 => decoded::<Response>(body).is_some(),
        5 => {
            let theirs = decoded::<Terms>(body);
            let ours = terms();
            theirs
                .inspect(|theirs| drop((ours.difference(theirs), theirs.difference(&ours))))
                .is_some()
        }
        9 => decoded::<RootChoice>(body).inspect(|&choice| check_choice(choice)).is_some(),
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
    use crate::creation::{choice::Question, messages::Asks, terms::Addresses};

    fn seed(kind: u8, message: &impl Serialize) -> Vec<u8> {
        [vec![kind], postcard::to_stdvec(message).unwrap()].concat()
    }

    fn request() -> Request {
        let (terms, offer) = (terms(), vec![9; 8]);
        Request {
            group: 5,
            from: 2,
            to: 1,
            context: 1 << 77,
            attempt: 4,
            terms,
            offer,
            timeout_ms: 1_000,
        }
    }

    fn hello(purpose: Option<Purpose>) -> Hello {
        Hello { id: [7; 16], stream: u8::from(purpose.is_none()), streams: 2, purpose }
    }

    fn choice() -> RootChoice {
        RootChoice::new(Algorithm::Chain, 65_536)
    }

    fn question() -> Question {
        let members = [7, 8].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let addresses = Addresses::new(&members);
        Question { group: 5, from: 1, to: 0, root: 0, addresses, timeout_ms: 1_000 }
    }

    #[test]
    fn the_corpus_of_messages_passes() {
        let messages = [
            ("request", seed(1, &request())),
            ("asks", seed(4, &Message::Asks { channel: 3, asks: Asks::Link(request()) })),
            ("withdraws", seed(4, &Message::Withdraws { channel: 3 })),
            ("first-stream", seed(3, &hello(Some(Purpose::Own(Asks::Link(request())))))),
            ("another-stream", seed(3, &hello(None))),
            ("accepted", seed(2, &(0_u8, vec![9_u8; 8]))),
            ("refused", seed(2, &(1_u8, "no"))),
            ("terms", seed(5, &terms())),
            ("choice", seed(9, &choice())),
            ("own-question", seed(8, &Purpose::Own(Asks::Choice(question())))),
            ("response-chose", seed(2, &Response::Chose(choice()))),
            ("asks-choice", seed(4, &Message::Asks { channel: 3, asks: Asks::Choice(question()) })),
            ("chose", seed(4, &Message::Chose { channel: 3, choice: choice() })),
        ];
        testing::replay("rdmc_messages", &messages, super::messages);
    }

    #[cfg(feature = "switch")]
    #[test]
    fn the_corpus_of_messages_about_switches_passes() {
        let joins = FromReceiver::Joins {
            mac: [2, 0, 0, 0, 0, 7],
            mtu_bytes: 1024,
            room_bytes: 1 << 20,
            qpn: 0x4_0001,
            delegation: vec![9; 70],
        };
        let proposes = FromRoot::Proposes { qpn: 0x4_0002, psn_first: 0xff_ff00, instance: 5 };
        let messages = [
            ("joins-in-switch", seed(6, &joins)),
            ("cannot-in-switch", seed(6, &FromReceiver::Cannot("CAP_NET_RAW".into()))),
            ("proposes-in-switch", seed(7, &proposes)),
            ("stands-in-switch", seed(7, &FromRoot::Stands { mtu_bytes: 1024 })),
            ("refused-in-switch", seed(7, &FromRoot::Refused("a switch is full".into()))),
        ];
        testing::replay("rdmc_messages", &messages, super::messages);
    }
}
