//! The contract suite detects violations: each injected flaw fails its clause.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use transport::{
    ArrivingRead, Cause, Completion, CutThroughSends, EndpointId, FutureRead, OneSidedWrites,
    PeerMemory, PostError, ReadLease, Region, Token, Transport, TriggeredSends, Visibility, Waker,
    WriteLease,
};
use transport_contract::{Harness, Network, clauses};
use transport_sim::{Placement, SimConfig, SimLink, SimNet, SimTransport};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    CompletesTwice,
    EndsTwice,
    ForgetsToCancel,
    LosesWords,
    ReordersWords,
    ChangesImmediate,
    ChangesLength,
    TakesEmptyWords,
    BreaksInsteadOfClosing,
    BlamesTheNetwork,
    ForgetsWakes,
    ClearsTheList,
    OffloadsOnlyWhilePolled,
    LosesWrites,
    MisplacesWrites,
    KeepsExposedMemory,
    ReportsAllWrites,
    VouchesForOrder,
    VouchesForWords,
    BeginsTwice,
    WaitsForWholeBlocks,
    SendsTooSoon,
}

struct Flawed {
    inner: SimTransport,
    flaw: Flaw,
    /// A word that is held back until after the next one.
    late_word: Option<Vec<u8>>,
    /// Offloaded sends that are started only after a poll has reported their receive.
    unpolled_sends: Vec<OffloadedSend>,
    kept: Vec<PeerMemory>,
    /// Sends that are posted only once their blocks have arrived.
    late_sends: Vec<(EndpointId, ArrivingRead, u32, Token)>,
}

struct OffloadedSend {
    endpoint: EndpointId,
    from: FutureRead,
    immediate: u32,
    token: Token,
    after: Vec<(EndpointId, Token)>,
}

impl Flawed {
    /// Applies the flaw to what the correct transport reports.
    fn distort(&self, mut completion: Completion) -> Vec<Completion> {
        match (&mut completion, self.flaw) {
            (Completion::Sent { .. }, Flaw::CompletesTwice)
            | (Completion::Arriving { .. }, Flaw::BeginsTwice)
            | (Completion::Broken { .. } | Completion::Closed { .. }, Flaw::EndsTwice) => {
                return vec![completion.clone(), completion];
            }
            (Completion::Cancelled { .. }, Flaw::ForgetsToCancel)
            | (Completion::Control { .. }, Flaw::LosesWords)
            | (Completion::Written { .. }, Flaw::LosesWrites) => return Vec::new(),
            (Completion::Received { immediate, .. }, Flaw::ChangesImmediate) => *immediate ^= 1,
            (Completion::Received { bytes, .. }, Flaw::ChangesLength) => *bytes /= 2,
            (Completion::Closed { endpoint }, Flaw::BreaksInsteadOfClosing) => {
                return vec![Completion::Broken {
                    endpoint: *endpoint,
                    cause: Cause::ClosedByPeer,
                }];
            }
            (Completion::Broken { cause, .. }, Flaw::BlamesTheNetwork) => {
                *cause = Cause::Lost(cause.to_string());
            }
            _ => {}
        }
        vec![completion]
    }
}

impl Transport for Flawed {
    type Link = SimLink;

    transport::forward!(inner; now, block_bytes_max, open, post_receive, post_send, close);

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        match self.flaw {
            Flaw::TakesEmptyWords if word.is_empty() => Ok(()),
            Flaw::ReordersWords => match self.late_word.take() {
                Some(late) => {
                    self.inner.write_control(endpoint, word)?;
                    self.inner.write_control(endpoint, &late)
                }
                None => {
                    self.late_word = Some(word.to_vec());
                    Ok(())
                }
            },
            _ => self.inner.write_control(endpoint, word),
        }
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn cut_through(&mut self) -> Option<&mut dyn CutThroughSends> {
        Some(self)
    }

    fn triggered(&mut self) -> Option<&mut dyn TriggeredSends> {
        Some(self)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        let mut good = Vec::new();
        self.inner.poll(&mut good, wait);
        for send in std::mem::take(&mut self.unpolled_sends) {
            let OffloadedSend { endpoint, from, immediate, token, after } = send;
            // Late, but otherwise correct.
            self.inner.post_offloaded_send(endpoint, from, immediate, token, &after).unwrap();
        }
        let is_whole = |read: &ArrivingRead| read.arrived().len() == read.bytes();
        for (endpoint, read, immediate, token) in
            self.late_sends.extract_if(.., |(_, read, ..)| is_whole(read))
        {
            // Otherwise correct.
            let sends = self.inner.cut_through().unwrap();
            sends.post_cut_through_send(endpoint, read, immediate, token).unwrap();
        }
        if self.flaw == Flaw::ClearsTheList {
            completions.clear();
        }
        completions.extend(good.into_iter().flat_map(|completion| self.distort(completion)));
    }

    fn waker(&self) -> Waker {
        if self.flaw == Flaw::ForgetsWakes { Arc::new(|| {}) } else { self.inner.waker() }
    }
}

impl OneSidedWrites for Flawed {
    fn visibility(&self, endpoint: EndpointId) -> Visibility {
        let vouched = self.inner.visibility(endpoint);
        match self.flaw {
            Flaw::VouchesForOrder => Visibility { in_order: true, ..vouched },
            Flaw::VouchesForWords => Visibility { whole_words: true, ..vouched },
            _ => vouched,
        }
    }

    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        if self.flaw == Flaw::KeepsExposedMemory {
            self.kept.push(memory.clone());
        }
        self.inner.expose(endpoint, key, memory)
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        let offset = if self.flaw == Flaw::MisplacesWrites { 0 } else { offset };
        let immediate = immediate.or((self.flaw == Flaw::ReportsAllWrites).then_some(0));
        self.inner.post_write(endpoint, from, key, offset, immediate, token)
    }
}

impl CutThroughSends for Flawed {
    fn block_bytes_min(&self) -> u64 {
        2
    }

    fn post_cut_through_send(
        &mut self,
        endpoint: EndpointId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        match self.flaw {
            Flaw::WaitsForWholeBlocks => {
                self.late_sends.push((endpoint, from, immediate, token));
                Ok(())
            }
            Flaw::SendsTooSoon => {
                let mut bytes = from.arrived().to_vec();
                bytes.resize(from.bytes(), 0);
                let all = Region::from_vec(bytes).read(0..from.bytes()).unwrap();
                self.inner.post_send(endpoint, all, immediate, token)
            }
            _ => {
                let sends = self.inner.cut_through().unwrap();
                sends.post_cut_through_send(endpoint, from, immediate, token)
            }
        }
    }
}

impl TriggeredSends for Flawed {
    fn post_offloaded_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.inner.post_offloaded_receive(endpoint, into, immediate, token)
    }

    fn post_offloaded_send(
        &mut self,
        endpoint: EndpointId,
        from: FutureRead,
        immediate: u32,
        token: Token,
        after: &[(EndpointId, Token)],
    ) -> Result<(), PostError> {
        if self.flaw != Flaw::OffloadsOnlyWhilePolled {
            return self.inner.post_offloaded_send(endpoint, from, immediate, token, after);
        }
        let after = after.to_vec();
        self.unpolled_sends.push(OffloadedSend { endpoint, from, immediate, token, after });
        Ok(())
    }
}

struct FlawedNetwork(Flaw);

impl Harness for FlawedNetwork {
    type Transport = Flawed;

    fn network(&mut self, members: usize) -> Network<Flawed> {
        let config = SimConfig {
            write_placement: self.placement(),
            cut_through_bytes: Some(10_000),
            ..SimConfig::default()
        };
        let net = SimNet::new(config, 0);
        let transports: Vec<Flawed> = net
            .members(members)
            .into_iter()
            .map(|inner| Flawed {
                inner,
                flaw: self.0,
                late_word: None,
                unpolled_sends: Vec::new(),
                kept: Vec::new(),
                late_sends: Vec::new(),
            })
            .collect();
        Network::connected(transports, |(left, _), (right, _)| net.connect(left, right))
    }

    fn has_real_time(&self) -> bool {
        false
    }
}

impl FlawedNetwork {
    /// What a transport vouches for wrongly is wrong in this network.
    fn placement(&self) -> Option<Placement> {
        let (in_order, whole_words) = match self.0 {
            Flaw::VouchesForOrder => (false, true),
            Flaw::VouchesForWords => (true, false),
            _ => return None,
        };
        Some(Placement { in_order, whole_words, lasting_ns: 100_000 })
    }
}

type Clause = fn(&mut FlawedNetwork);

#[test]
fn every_flaw_fails_its_clause() {
    let cases: [(Flaw, Clause); 22] = [
        (Flaw::CompletesTwice, clauses::every_length_arrives_exactly),
        (Flaw::EndsTwice, clauses::closing_twice_is_harmless),
        (Flaw::ForgetsToCancel, clauses::a_dead_member_breaks_its_endpoints_only),
        (Flaw::LosesWords, clauses::control_words_before_a_close_arrive),
        (Flaw::ReordersWords, clauses::control_words_arrive_whole_and_in_order),
        (Flaw::ChangesImmediate, clauses::tokens_and_immediates_come_back),
        (Flaw::ChangesLength, clauses::a_short_block_leaves_the_rest_of_the_memory_alone),
        (Flaw::TakesEmptyWords, clauses::control_words_of_a_wrong_length_are_refused),
        (Flaw::BreaksInsteadOfClosing, clauses::both_sides_may_close_at_once),
        (Flaw::BlamesTheNetwork, clauses::a_block_that_nobody_asked_for_breaks_the_endpoint),
        (Flaw::ForgetsWakes, clauses::a_wake_before_the_wait_counts),
        (Flaw::LosesWrites, clauses::exposed_memory_is_used_by_turns),
        (Flaw::MisplacesWrites, clauses::writes_arrive_in_order_where_they_belong),
        (Flaw::KeepsExposedMemory, clauses::exposed_memory_is_released_at_the_end),
        (Flaw::ReportsAllWrites, clauses::unreported_writes_arrive_before_a_reported_one),
        (Flaw::VouchesForOrder, clauses::vouched_bytes_become_visible_in_order),
        (Flaw::VouchesForWords, clauses::vouched_words_become_visible_whole),
        (Flaw::ClearsTheList, clauses::completions_are_appended),
        (Flaw::BeginsTwice, clauses::a_block_is_sent_on_while_it_arrives),
        (Flaw::WaitsForWholeBlocks, clauses::a_block_is_sent_on_while_it_arrives),
        (Flaw::SendsTooSoon, clauses::a_block_is_sent_on_while_it_arrives),
        (Flaw::OffloadsOnlyWhilePolled, clauses::offloaded_sends_start_with_nobody_polling),
    ];
    for (flaw, clause) in cases {
        clause(&mut FlawedNetwork(Flaw::None));
        let outcome = catch_unwind(AssertUnwindSafe(|| clause(&mut FlawedNetwork(flaw))));
        assert!(outcome.is_err(), "the suite did not detect that a transport {flaw:?}");
    }
}
