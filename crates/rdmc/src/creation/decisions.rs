//! What this context answers to questions about the choices of roots, and the questions that wait for an answer.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use session::Deadline;

use super::choice::{Decision, Problem, Question, RootChoice};
use crate::network::ConnectionId;

/// How many questions may wait in a context.
const WAITING_MAX: usize = 4096;

/// The longest time for which a question waits.
pub(super) const WAITING_TIME_MAX: Duration = Duration::from_secs(600);

/// An answer to a question: what the root has chosen, or why it is refused.
pub(crate) type Reply = Result<RootChoice, String>;

/// A question on a shared connection that has no answer yet.
struct Waiting {
    at: (ConnectionId, u32),
    peer: SocketAddr,
    question: Question,
    until: Deadline,
}

/// The decisions of the groups of a context, and the questions that wait for one.
#[derive(Default)]
pub(crate) struct Decisions {
    /// By the group's number. A group holds its own until it is closed at this member: members that create the next group of the
    /// same number are not told what the last one took.
    by_group: HashMap<u64, Weak<Decision>>,
    waiting: Vec<Waiting>,
}

impl Decisions {
    /// Answers questions about its group by a decision from now on, until it is dropped; not if there is one already, whose
    /// number is in use.
    pub(crate) fn add(&mut self, decision: &Arc<Decision>) {
        self.by_group.retain(|_, it| it.strong_count() > 0);
        self.by_group.entry(decision.group()).or_insert_with(|| Arc::downgrade(decision));
    }

    /// Answers a question from this address; `None` if the group is not known or its choice is not.
    pub(crate) fn answer(&self, question: &Question, peer: SocketAddr) -> Option<Reply> {
        self.by_group.get(&question.group)?.upgrade()?.answer(question, peer)
    }

    /// Answers a question on a shared connection, or keeps it until there is an answer.
    pub(crate) fn ask(
        &mut self,
        at: (ConnectionId, u32),
        question: Question,
        peer: SocketAddr,
    ) -> Option<Reply> {
        if let Some(reply) = self.answer(&question, peer) {
            return Some(reply);
        }
        self.waiting.retain(|one| !one.until.left().is_zero());
        if !question.is_bounded() {
            return Some(Err("the question is malformed".into()));
        }
        if self.waiting.len() >= WAITING_MAX {
            return Some(Err("too many groups are being created there".into()));
        }
        let patience = Duration::from_millis(question.timeout_ms).min(WAITING_TIME_MAX);
        self.waiting.push(Waiting { at, peer, question, until: Deadline::after(patience) });
        None
    }

    /// Takes the questions that can be answered now, with their answers.
    pub(crate) fn settle(&mut self) -> Vec<((ConnectionId, u32), Reply)> {
        let mut replies = Vec::new();
        let waiting = std::mem::take(&mut self.waiting);
        for one in waiting {
            match self.answer(&one.question, one.peer) {
                Some(reply) => replies.push((one.at, reply)),
                None => self.waiting.push(one),
            }
        }
        replies
    }

    /// Forgets the questions for which `is_over` holds: withdrawn ones, and those of a connection that has ended.
    pub(crate) fn forget(&mut self, is_over: impl Fn((ConnectionId, u32)) -> bool) {
        self.waiting.retain(|one| !is_over(one.at));
    }

    /// Returns what a member has asked that does not fit to the group that is being created here.
    pub(crate) fn problem(&self, group: u64) -> Option<Problem> {
        self.by_group.get(&group)?.upgrade()?.problem().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupSettings;

    const PEER: ([u8; 4], u16) = ([10, 0, 0, 1], 9);

    fn decision(rank: u32) -> Arc<Decision> {
        let members = vec![PEER.into(), ([10, 0, 0, 2], 9).into()];
        Arc::new(Decision::new(&GroupSettings::new(5, members, rank)))
    }

    fn chosen() -> RootChoice {
        let settings = GroupSettings::new(5, vec![PEER.into()], 0);
        RootChoice::of(&engine::GroupSettings::try_from(&settings).unwrap())
    }

    #[test]
    fn questions_wait_until_the_choice_is_known() {
        let mut decisions = Decisions::default();
        let at = |channel| (ConnectionId(3), channel);
        let question = decision(1).question(0, 60_000);
        let root = decision(0);
        assert_eq!(decisions.ask(at(1), question.clone(), PEER.into()), None);
        decisions.add(&root);
        assert_eq!(decisions.ask(at(3), question.clone(), PEER.into()), None);
        assert_eq!(decisions.ask(at(5), question.clone(), PEER.into()), None);
        assert_eq!(decisions.settle(), []);
        decisions.forget(|one| one == at(3));
        root.decide(chosen());
        let expected = [1, 5].map(|channel| (at(channel), Ok(chosen())));
        assert_eq!(decisions.settle(), expected);
        assert_eq!(decisions.ask(at(7), question.clone(), PEER.into()), Some(Ok(chosen())));
        // A group that is closing answers nothing more: the question is about the next of its number.
        drop(root);
        assert_eq!(decisions.ask(at(9), question, PEER.into()), None);
    }

    #[test]
    fn no_peer_makes_more_questions_wait_than_the_limit() {
        let mut decisions = Decisions::default();
        let question = decision(1).question(0, 60_000);
        for channel in 0..WAITING_MAX as u32 {
            let at = (ConnectionId(3), channel);
            assert_eq!(decisions.ask(at, question.clone(), PEER.into()), None);
        }
        let at = (ConnectionId(3), u32::MAX);
        let refused = decisions.ask(at, question.clone(), PEER.into());
        assert!(refused.is_some_and(|reply| reply.is_err()));
        decisions.forget(|(connection, _)| connection == ConnectionId(3));
        assert_eq!(decisions.ask(at, question, PEER.into()), None);
    }

    #[test]
    fn questions_about_another_group_are_a_problem_of_this_one() {
        let mut decisions = Decisions::default();
        let own = decision(0);
        decisions.add(&own);
        let at = (ConnectionId(3), 1);
        let refused = decisions.ask(at, decision(1).question(1, 1), PEER.into());
        let cause = refused.unwrap().unwrap_err();
        assert_eq!(decisions.problem(5), Some((1, PEER.into(), cause)));
        assert_eq!(decisions.problem(6), None);
    }
}
