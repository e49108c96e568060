//! Entry point of a fuzzer (`./dev fuzz`): messages of roots and receivers in measurements.

use files::GroupTerms;
use serde::{Serialize, de::DeserializeOwned};

use crate::messages::{Answer, Request, decode, encode};

/// Decodes an answer if the first byte is 0, else a request, with the checks that precede any join. True if it is valid.
pub fn messages(bytes: &[u8]) -> bool {
    let Some((&kind, body)) = bytes.split_first() else { return false };
    if kind == 0 {
        return decoded::<Answer>(body).is_some();
    }
    let Some(request) = decoded::<Request>(body) else { return false };
    match &request {
        Request::Measure(measure) => {
            group(&measure.group);
            measure.echo.iter().for_each(group);
        }
        Request::Collective(request) => {
            drop(request.plan.check());
            drop(request.team_settings());
        }
        Request::Reach(reach) => {
            drop(reach.check());
            reach.timeout_of_all();
        }
        Request::Leave { .. } => {}
    }
    true
}

/// Valid terms must make a group whose neighbours are members.
fn group(terms: &GroupTerms) {
    if let Ok(settings) = terms.settings() {
        let schedule = settings.make_schedule().expect("it was made before");
        let members = schedule.members();
        assert_eq!(members as usize, terms.addresses.len());
        assert!(schedule.neighbours(settings.rank).all(|neighbour| neighbour < members));
    }
}

/// Decoding, encoding and decoding again must give the same message.
fn decoded<M: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    let message: M = decode(bytes).ok()?;
    let encoded = encode(&message).expect("it was decoded");
    let again: M = decode(&encoded).expect("it was encoded here");
    assert_eq!(encode(&again).expect("it was decoded"), encoded);
    Some(message)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{
        Collective, CollectivePlan,
        messages::{Measure, MeasureCollective},
        reach::Reach,
    };

    fn seed(kind: u8, message: &impl Serialize) -> Vec<u8> {
        [vec![kind], encode(message).unwrap()].concat()
    }

    #[test]
    fn the_corpus_of_messages_passes() {
        let addresses = vec![SocketAddr::from(([10, 0, 0, 1], 7)); 3];
        let group = |number, algorithm| GroupTerms {
            number,
            rank: 1,
            addresses: addresses.clone(),
            racks: vec![0; 3],
            algorithm,
            block_bytes: 65_536,
            window_receives: 2,
            window_sends: 2,
            messages_in_flight: 1,
            offload: false,
        };
        let measure = Measure { group: group(1, 3), bytes: 1_000, echo: Some(group(2, 0)) };
        let (operation, sizes) = (Collective::AllReduce, vec![4, 1 << 20]);
        let collective = MeasureCollective {
            number: 1,
            rank: 1,
            addresses: addresses.clone(),
            plan: CollectivePlan { operation, sizes, repeats: None, degree: Some(3) },
        };
        let reach = Reach { number: 1, rank: 1, addresses: addresses.clone(), timeout_ms: 4_000 };
        let unreachable = vec![(2, "no answer".to_owned())];
        let failed = Answer::Failed { number: 1, detail: "no memory".to_owned() };
        let seeds = [
            ("joined", seed(0, &Answer::Joined { number: 1 })),
            ("received", seed(0, &Answer::Received { number: 1 << 40 })),
            ("failed", seed(0, &failed)),
            ("measure", seed(1, &Request::Measure(measure))),
            ("leave", seed(1, &Request::Leave { number: 7 })),
            ("reach", seed(1, &Request::Reach(reach))),
            ("reached", seed(0, &Answer::Reached { number: 1, unreachable })),
            ("collective", seed(1, &Request::Collective(collective))),
        ];
        testing::replay("measure_messages", &seeds, messages);
    }
}
