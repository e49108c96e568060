//! What a member answers to questions for the root's choice.

use std::{collections::BTreeMap, net::SocketAddr};

use transport_tcp::ConnectionId;

use super::{
    attempt::Place,
    choice::{Question, RootChoice, parent},
    joining::Joining,
    terms::{Addresses, different, not_member},
};
use crate::Error;

/// What a member answers to questions about a group or a team, from the time at which it begins to create it until it has ended.
#[derive(Debug)]
pub(crate) struct Decision {
    rank: u32,
    members: u32,
    /// `None` for a team.
    root: Option<u32>,
    addresses: Addresses,
    choice: Option<RootChoice>,
    /// Members that were answered, and where.
    told: BTreeMap<u32, Place>,
    is_ending: bool,
    /// A member has asked about another group of this number.
    problem: Option<Error>,
}

impl Decision {
    pub(crate) fn new(joining: &Joining) -> Self {
        Self {
            rank: joining.rank,
            members: u32::try_from(joining.addresses.len()).unwrap_or(u32::MAX),
            root: joining.root,
            addresses: Addresses::new(&joining.addresses),
            choice: None,
            told: BTreeMap::new(),
            is_ending: false,
            problem: None,
        }
    }

    /// Sets what is answered, the first time.
    pub(crate) fn decide(&mut self, choice: RootChoice) {
        self.choice.get_or_insert(choice);
    }

    /// The group has begun to end: members that have received the choice, and those that differ, ask about the next one of this
    /// number.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Takes why the group cannot be created, of what other members have asked.
    pub(crate) fn take_problem(&mut self) -> Option<Error> {
        self.problem.take()
    }

    /// A connection was lost, perhaps with an answer.
    pub(crate) fn lose(&mut self, lost: ConnectionId) {
        self.told
            .retain(|_, at| !matches!(at, Place::Channel((connection, _)) if *connection == lost));
    }

    /// Answers a question of the context at this address; `None` until the choice is known.
    pub(crate) fn answer(
        &mut self,
        question: &Question,
        peer: SocketAddr,
        at: Place,
    ) -> Option<Result<RootChoice, String>> {
        let difference = self.difference(question);
        if self.is_ending && (difference.is_some() || self.told.contains_key(&question.from)) {
            return None;
        }
        if let Some(cause) = difference {
            let (member, address) = (question.from, peer);
            self.problem = Some(Error::Member { member, address, cause: cause.clone() });
            return Some(Err(cause));
        }
        let choice = self.choice?;
        self.told.insert(question.from, at);
        Some(Ok(choice))
    }

    fn difference(&self, question: &Question) -> Option<String> {
        let Question { group, from, to, root, addresses, .. } = question;
        if !addresses.is_bounded() {
            return Some("the question is malformed".into());
        }
        let difference = match (self.root, self.addresses.difference(addresses)) {
            (None, _) => Some("it is a team here, a group there".to_owned()),
            (Some(own), None) if own != *root => Some(format!("root: {own} here, {root} there")),
            (Some(_), found) => found,
        };
        if let Some(difference) = difference {
            return Some(different(self.rank, *from, *group, &difference));
        }
        if *to != self.rank {
            return Some(not_member(self.rank, *to));
        }
        // The members that were answered are remembered.
        let asked = parent(*from, *root, self.members);
        (asked != Some(*to)).then(|| format!("member {from} has no question for member {to}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use schedule::Algorithm;

    use super::{
        super::{joining::Wants, messages::Asks},
        *,
    };
    use crate::GroupSettings;

    fn settings(members: u16, rank: u32) -> GroupSettings {
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        GroupSettings::new(7, (0..members).map(address).collect(), rank)
    }

    const PEER: ([u8; 4], u16) = ([10, 0, 0, 1], 9);
    const HERE: Place = Place::Channel((ConnectionId(3), 1));

    fn joining(settings: &GroupSettings) -> Joining {
        Joining {
            number: settings.number,
            rank: settings.rank,
            root: Some(settings.root),
            addresses: settings.members.clone(),
            timeout: Duration::from_secs(1),
            wants: Wants::Choice(0),
            is_shared: true,
        }
    }

    fn question(of: &GroupSettings, to: u32) -> Question {
        let Asks::Choice(question) = joining(of).asks(to, 0, 0, 1_000) else { unreachable!() };
        question
    }

    #[test]
    fn questions_are_answered_once_the_choice_is_known() {
        let mut parent = Decision::new(&joining(&settings(4, 0)));
        let question = question(&settings(4, 2), 0);
        assert_eq!(parent.answer(&question, PEER.into(), HERE), None);
        let chosen = RootChoice::new(Algorithm::Chain, 4096);
        parent.decide(chosen);
        parent.decide(RootChoice::new(Algorithm::Sequential, 1));
        // Also again, if the answer was lost.
        for _ in 0..2 {
            assert_eq!(parent.answer(&question, PEER.into(), HERE), Some(Ok(chosen)));
        }
        assert!(parent.take_problem().is_none());
    }

    #[test]
    fn a_group_that_ends_is_the_one_of_members_that_were_not_told() {
        let mut parent = Decision::new(&joining(&settings(4, 0)));
        let chosen = RootChoice::new(Algorithm::Chain, 4096);
        parent.decide(chosen);
        let ask = |parent: &mut Decision, rank| {
            parent.answer(&question(&settings(4, rank), 0), PEER.into(), HERE)
        };
        assert_eq!(ask(&mut parent, 2), Some(Ok(chosen)));
        parent.end();
        assert_eq!(ask(&mut parent, 2), None);
        assert_eq!(ask(&mut parent, 1), Some(Ok(chosen)));
        assert_eq!(ask(&mut parent, 1), None);
        // An answer may be lost with its connection.
        parent.lose(ConnectionId(4));
        assert_eq!(ask(&mut parent, 1), None);
        parent.lose(ConnectionId(3));
        assert_eq!(ask(&mut parent, 1), Some(Ok(chosen)));
    }

    #[test]
    fn what_differs_while_a_group_ends_is_asked_about_the_next_one() {
        let mut parent = Decision::new(&joining(&settings(4, 0)));
        parent.decide(RootChoice::new(Algorithm::Chain, 4096));
        parent.end();
        let larger = question(&settings(5, 4), 0);
        assert_eq!(parent.answer(&larger, PEER.into(), HERE), None);
        assert!(parent.take_problem().is_none());
    }

    #[test]
    fn questions_about_another_group_are_refused_with_the_difference() {
        let refused = |other: GroupSettings, to| {
            let mut parent = Decision::new(&joining(&settings(4, 0)));
            let answer = parent.answer(&question(&other, to), PEER.into(), HERE);
            let cause = answer.unwrap().unwrap_err();
            let Some(Error::Member { member, address, cause: noted }) = parent.take_problem()
            else {
                panic!("it is noted");
            };
            assert_eq!((member, address, &noted), (other.rank, PEER.into(), &cause));
            cause
        };
        assert!(refused(settings(5, 2), 0).contains("members: 4 here, 5 there"));
        assert!(refused(settings(4, 2).root(3), 0).contains("root: 0 here, 3 there"));
        assert!(refused(settings(4, 2), 1).contains("this is member 0, not member 1"));
        // Each could be one that is answered.
        assert!(refused(settings(4, 3), 0).contains("member 3 has no question for member 0"));
        assert!(refused(settings(4, u32::MAX), 0).contains("has no question for member 0"));
        let mut moved = settings(4, 2);
        moved.members[3].set_port(99);
        assert!(refused(moved, 0).contains("the address of member 3"));
        let team = Joining { root: None, ..joining(&settings(4, 0)) };
        let refusal = Decision::new(&team).answer(&question(&settings(4, 2), 0), PEER.into(), HERE);
        assert!(refusal.unwrap().unwrap_err().contains("a team here, a group there"));
    }

    #[test]
    fn questions_of_the_largest_groups_are_short() {
        let mut largest = Decision::new(&joining(&settings(u16::MAX, 0)));
        assert_eq!(largest.answer(&question(&settings(u16::MAX, 1), 0), PEER.into(), HERE), None);
        let parts = 1000;
        let forged = (7_u64, 0_u32, 1_u32, 0_u32, (3_u32, vec![[1_u8; 8]; parts]), 1_u64);
        let bytes = postcard::to_stdvec(&forged).unwrap();
        let forged = postcard::from_bytes::<Question>(&bytes).unwrap();
        assert!(
            largest.answer(&forged, PEER.into(), HERE).unwrap().unwrap_err().contains("malformed")
        );
    }
}
