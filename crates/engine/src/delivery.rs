//! Which messages every member has, as the root learns it while the group runs.
//!
//! Counts of messages in place come with grants already ([`crate::watermark`]), but none after the last
//! block. If the root's application wants to know, the root asks along the announcement tree
//! ([`Word::Ask`]), and members reply from the leaves up ([`Word::Has`]) once that many messages are in
//! place at them and behind them. One question is open at a time. Cost: two words on each of the tree's
//! n-1 edges for each question, and nothing if nobody wants to know.

use std::collections::BTreeSet;

use relay::RelayError;
use schedule::Schedule;
use transport::Transport;

use crate::{error::Fault, event::Event, transfers::Transfers, watermark::Watermark, words::Word};

/// The questions at one member.
#[derive(Debug)]
pub(crate) struct Delivery {
    parent: Option<u32>,
    children: Vec<u32>,
    /// At the root: whether each message is to be reported.
    reports_each: bool,
    /// At the root: the number of messages about which the application wants to be notified.
    wanted: u64,
    /// At the root: what was reported last.
    reported: u64,
    /// How many messages the last question was about.
    asked: u64,
    question: Option<Question>,
}

/// A question that this member has not answered.
#[derive(Debug)]
struct Question {
    is_passed_on: bool,
    /// Children that have not answered.
    awaited: BTreeSet<u32>,
}

impl Delivery {
    /// `reports_each`: at the root, whether each message is to be reported.
    pub(crate) fn new(schedule: &Schedule, rank: u32, reports_each: bool) -> Self {
        Self {
            parent: schedule.announcer(rank),
            children: schedule.announces_to(rank).collect(),
            reports_each,
            wanted: if reports_each { u64::MAX } else { 0 },
            reported: 0,
            asked: 0,
            question: None,
        }
    }

    /// At the root: notes that the application wants to be notified of this many messages.
    pub(crate) fn want(&mut self, messages: u64) {
        self.wanted = self.wanted.max(messages);
    }

    /// Processes a neighbour's word. Errors: it is out of turn.
    pub(crate) fn on_control(
        &mut self,
        rank: u32,
        word: &Word,
        watermark: &mut Watermark,
    ) -> Result<(), RelayError> {
        match (word, &mut self.question) {
            (Word::Ask { messages }, None)
                if self.parent == Some(rank) && *messages > self.asked =>
            {
                self.ask(*messages);
            }
            (Word::Has { received }, Some(question))
                if *received >= self.asked && question.awaited.contains(&rank) =>
            {
                question.awaited.remove(&rank);
                watermark.note_subtree(rank, *received);
            }
            _ => return Err(word.out_of_turn(rank)),
        }
        Ok(())
    }

    fn ask(&mut self, messages: u64) {
        self.asked = messages;
        let awaited = self.children.iter().copied().collect();
        self.question = Some(Question { is_passed_on: false, awaited });
    }

    /// Returns whether a question waits for messages to be in place here, where `own` are.
    pub(crate) fn awaits(&self, own: u64) -> bool {
        self.question.is_some() && own < self.asked
    }

    /// Returns the words to be written now, with their receivers. `own`: how many messages are in place
    /// here.
    fn next_words(&mut self, own: u64, watermark: &Watermark) -> Vec<(u32, Word)> {
        let mut words = Vec::new();
        let is_answered = |question: &mut Question| question.awaited.is_empty();
        if own >= self.asked && self.question.take_if(is_answered).is_some() {
            let has = Word::Has { received: watermark.subtree(own) };
            words.extend(self.parent.map(|parent| (parent, has)));
        }
        // Also right after an answer: nothing else may happen at the root.
        let everywhere = watermark.everywhere(own);
        if self.parent.is_none() && self.question.is_none() && own.min(self.wanted) > everywhere {
            self.ask(if self.reports_each { everywhere + 1 } else { own.min(self.wanted) });
        }
        let is_new = |question: &mut Question| !std::mem::replace(&mut question.is_passed_on, true);
        if self.question.as_mut().is_some_and(is_new) {
            let ask = Word::Ask { messages: self.asked };
            words.extend(self.children.iter().map(|&child| (child, ask.clone())));
        }
        words
    }

    /// Returns whether nothing is asked, and nothing is to be reported.
    fn is_idle(&self) -> bool {
        self.question.is_none() && (self.parent.is_some() || self.wanted <= self.reported)
    }

    /// Writes the words that are due, and reports at the root what every member has.
    pub(crate) fn carry_out<T: Transport>(
        &mut self,
        transport: &mut T,
        transfers: &mut Transfers,
    ) -> Result<(), Fault> {
        if self.is_idle() {
            return Ok(());
        }
        let own = transfers.in_place();
        for (rank, word) in self.next_words(own, &transfers.watermark) {
            transfers.peers.write(transport, rank, &word)?;
        }
        self.report(transfers.watermark.everywhere(own), transfers);
        Ok(())
    }

    /// Reports, if it is to be reported, that every member has this many messages.
    pub(crate) fn report(&mut self, everywhere: u64, transfers: &mut Transfers) {
        if let Some(count) = self.take_report(everywhere) {
            let group = transfers.settings.number;
            transfers.messages.events.push_back(Event::Delivered { group, count });
        }
    }

    /// At the root: returns how many messages every member has, if the application wants to be notified and
    /// was not.
    fn take_report(&mut self, everywhere: u64) -> Option<u64> {
        let is_news = self.reported < everywhere.min(self.wanted);
        is_news.then(|| {
            self.reported = everywhere;
            everywhere
        })
    }
}

#[cfg(test)]
mod tests {
    use schedule::Algorithm;

    use super::*;

    struct Member {
        own: u64,
        delivery: Delivery,
        watermark: Watermark,
    }

    /// Returns the members of a chain of three.
    fn chain(reports_each: bool) -> Vec<Member> {
        let schedule = Schedule::new(Algorithm::Chain, 3, 0).unwrap();
        let member = |rank| Member {
            own: 0,
            delivery: Delivery::new(&schedule, rank, reports_each && rank == 0),
            watermark: Watermark::new(&schedule, rank),
        };
        (0..3).map(member).collect()
    }

    /// Passes words on until there are none, and returns how many there were.
    fn run(members: &mut [Member]) -> usize {
        let mut count = 0;
        loop {
            let mut words = Vec::new();
            for (from, Member { own, delivery, watermark }) in (0..).zip(&mut *members) {
                let next = delivery.next_words(*own, watermark).into_iter();
                words.extend(next.map(|(to, word)| (from, to, word)));
            }
            if words.is_empty() {
                return count;
            }
            count += words.len();
            for (from, to, word) in words {
                let Member { delivery, watermark, .. } = &mut members[to as usize];
                delivery.on_control(from, &word, watermark).unwrap();
            }
        }
    }

    fn report(members: &mut [Member]) -> Option<u64> {
        let Member { own, delivery, watermark } = &mut members[0];
        delivery.take_report(watermark.everywhere(*own))
    }

    fn have(members: &mut [Member], counts: [u64; 3]) {
        members.iter_mut().zip(counts).for_each(|(member, count)| member.own = count);
    }

    #[test]
    fn nothing_is_asked_unless_the_application_wants_to_know() {
        let mut members = chain(false);
        have(&mut members, [3, 3, 3]);
        assert_eq!((run(&mut members), report(&mut members)), (0, None));
        members[0].delivery.want(2);
        assert_eq!((run(&mut members), report(&mut members)), (4, Some(3)));
        assert_eq!((run(&mut members), report(&mut members)), (0, None));
    }

    #[test]
    fn the_slowest_member_counts() {
        let mut members = chain(false);
        have(&mut members, [5, 1, 3]);
        members[0].delivery.want(2);
        assert_eq!((run(&mut members), report(&mut members)), (3, None), "member 2 has answered");
        assert!(members[1].delivery.awaits(1));
        have(&mut members, [5, 2, 4]);
        assert_eq!((run(&mut members), report(&mut members)), (1, Some(2)));
    }

    #[test]
    fn each_message_is_reported_once_all_have_it() {
        let mut members = chain(true);
        for (counts, expected) in [([1, 0, 0], None), ([3, 1, 1], Some(1)), ([3, 3, 3], Some(3))] {
            have(&mut members, counts);
            run(&mut members);
            assert_eq!(report(&mut members), expected, "{counts:?}");
        }
    }

    /// Nothing else may happen at the root after the answer to the last question.
    #[test]
    fn the_next_question_is_asked_as_soon_as_one_is_answered() {
        let mut members = chain(true);
        have(&mut members, [2, 1, 1]);
        run(&mut members);
        assert_eq!(report(&mut members), Some(1));
        assert!(members[1].delivery.awaits(1) && members[2].delivery.awaits(1));
    }

    #[test]
    fn words_out_of_turn_are_refused() {
        let mut members = chain(false);
        let Member { delivery, watermark, .. } = &mut members[1];
        let mut gets = |rank, word| delivery.on_control(rank, &word, watermark).is_ok();
        assert!(!gets(2, Word::Has { received: 1 }), "nobody has asked");
        assert!(!gets(2, Word::Ask { messages: 1 }), "a child");
        assert!(!gets(0, Word::Ask { messages: 0 }), "nothing");
        assert!(gets(0, Word::Ask { messages: 2 }));
        assert!(!gets(0, Word::Ask { messages: 3 }), "before the answer");
        assert!(!gets(0, Word::Has { received: 2 }), "the parent");
        assert!(!gets(2, Word::Has { received: 1 }), "too few");
        assert!(gets(2, Word::Has { received: 2 }));
        assert!(!gets(2, Word::Has { received: 3 }), "twice");
    }
}
