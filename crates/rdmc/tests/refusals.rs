//! A transport that has no room left: each refused call is reported.

use std::{cell::Cell, rc::Rc, time::Duration};

use engine::{Engine, Event, GroupSettings};
use rdmc::{Algorithm, Failure, FailureKind, Region, Schedule};
use transport::{
    EndpointId, OneSidedWrites, PeerMemory, PostError, ReadLease, Token, Transport, WriteLease,
};
use transport_sim::{SimConfig, SimLink, SimNet, SimTransport};

/// The calls of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Word,
    Receive,
    Send,
    Write,
}

/// Refuses calls of one kind once it has accepted a number of them.
struct Refusing {
    inner: SimTransport,
    call: Option<Call>,
    accepted: Cell<u32>,
    refused: Rc<Cell<bool>>,
}

impl Refusing {
    fn check(&self, call: Call) -> Result<(), PostError> {
        if self.call != Some(call) {
            return Ok(());
        }
        if self.accepted.get() == 0 {
            self.refused.set(true);
            return Err(PostError::System("there is no room".into()));
        }
        self.accepted.set(self.accepted.get() - 1);
        Ok(())
    }
}

impl Transport for Refusing {
    type Link = SimLink;

    transport::forward!(inner; now, block_bytes_max, open, close, poll, waker);

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        self.check(Call::Receive)?;
        self.inner.post_receive(endpoint, into, token)
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.check(Call::Send)?;
        self.inner.post_send(endpoint, from, immediate, token)
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        self.check(Call::Word)?;
        self.inner.write_control(endpoint, word)
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }
}

impl OneSidedWrites for Refusing {
    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
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
        self.check(Call::Write)?;
        self.inner.post_write(endpoint, from, key, offset, immediate, token)
    }
}

/// How a group of three ended at each member, by rank, and when.
struct Ends {
    ends: Vec<Option<End>>,
    was_refused: bool,
}

/// Why it failed, unless it closed; and when.
type End = (Option<Failure>, Duration);

/// Sends a message down a chain of three and closes the group, while the transport of `rank`
/// refuses calls.
fn run(rank: usize, call: Call, accepted: u32, small: bool) -> Ends {
    let network = SimNet::new(SimConfig::IDEAL, 1);
    let refused = Rc::new(Cell::new(false));
    let mut engines: Vec<_> = (0..3)
        .map(|member| {
            let call = (member == rank).then_some(call);
            let (accepted, refused) = (Cell::new(accepted), Rc::clone(&refused));
            Engine::new(Refusing { inner: network.member(), call, accepted, refused })
        })
        .collect();
    let schedule = Schedule::new(Algorithm::Chain, 3, 0).unwrap();
    let settings = |rank| {
        let mut settings = GroupSettings::new(1, rank, schedule.clone());
        settings.block_bytes = 100;
        settings.small = settings.small.filter(|_| small);
        settings
    };
    let mut links: [Vec<_>; 3] = Default::default();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        if settings(one).neighbours().contains(&other) {
            let (own, theirs) = network.connect(one as usize, other as usize);
            links[one as usize].push((other, own));
            links[other as usize].push((one, theirs));
        }
    }
    for ((rank, engine), links) in (0..).zip(&mut engines).zip(links) {
        engine.create(settings(rank), links).unwrap();
    }
    let _ = engines[0].send(1, Region::zeroed(1_000));
    engines.iter_mut().for_each(|engine| drop(engine.close(1)));
    let mut ends = vec![None; 3];
    (0..3).for_each(|rank| progress(&mut engines[rank], &mut ends[rank]));
    while let Some(rank) = network.step() {
        progress(&mut engines[rank], &mut ends[rank]);
    }
    Ends { ends, was_refused: refused.get() }
}

fn progress(engine: &mut Engine<Refusing>, end: &mut Option<End>) {
    let mut events = Vec::new();
    loop {
        engine.progress(Duration::ZERO, &mut events);
        if events.is_empty() {
            return;
        }
        for event in events.drain(..) {
            match event {
                Event::Incoming { message, bytes, .. } => {
                    drop(engine.accept(1, message, Region::zeroed(bytes as usize)));
                }
                Event::Failed { failure, regions } => {
                    for (_, region) in regions {
                        region.try_into_vec().expect("no other reference");
                    }
                    *end = Some((Some(failure), engine.transport().now()));
                }
                Event::Closed { .. } => *end = Some((None, engine.transport().now())),
                _ => {}
            }
        }
    }
}

/// Whatever call is refused, and whenever, the group ends at once, long before the stall timeout,
/// and fails at the member where it happens.
#[test]
fn any_refusal_by_a_transport_ends_the_group_at_once() {
    let calls = [
        (Call::Word, false, FailureKind::Silent),
        (Call::Word, true, FailureKind::Silent),
        (Call::Receive, false, FailureKind::Network),
        (Call::Send, false, FailureKind::Network),
        (Call::Write, true, FailureKind::Network),
    ];
    for (call, small, kind) in calls {
        let mut refusals = 0;
        for (rank, accepted) in (0..3).flat_map(|rank| (0..30).map(move |nth| (rank, nth))) {
            let Ends { ends, was_refused } = run(rank, call, accepted, small);
            let case = format!("{call:?} {accepted} of member {rank}, small {small}");
            for (other, end) in ends.iter().enumerate() {
                let Some((failure, at)) = end else { panic!("{case}: member {other} goes on") };
                assert!(*at < Duration::from_secs(1), "{case}: member {other} waits for a stall");
                assert!(was_refused || failure.is_none(), "{case}: {failure:?}");
            }
            if !was_refused {
                continue;
            }
            refusals += 1;
            let Some((Some(failure), _)) = &ends[rank] else { panic!("{case}: no failure") };
            assert_eq!((failure.kind, failure.reporter), (kind, rank as u32), "{case}: {failure}");
            assert!(failure.detail.contains("there is no room"), "{case}: {failure}");
            if kind == FailureKind::Silent {
                assert!(failure.member.is_some_and(|by| by != rank as u32), "{case}: {failure}");
            }
        }
        assert!(refusals > 0, "{call:?} is never called");
    }
}
