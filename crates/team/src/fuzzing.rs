//! The fuzzer's entry point (`./dev fuzz`): a member of a team whose linked members follow no rule above the transport.

use std::time::Duration;

use collective::{
    Call, HEADER_BYTES, Header, Kind, Op, Reduction, Ring, Thresholds, Type, WaySelection,
    model::WriteCosts,
};
use transport::{
    CONTROL_BYTES_MAX, Completion, EndpointId, OneSidedWrites, Region, Token, Transport,
};
use transport_sim::{SimConfig, SimNet, SimTransport};

use crate::{
    Error, Memory, Team, TeamSettings, WriteEnds,
    flags::Flags,
    slots::{self, Slots},
    words::Word,
};

const MEMBERS: u32 = 5;
const SLOTS: u32 = 4;
const SLOT_BYTES: u32 = 96;
const ENDS: [WriteEnds; 3] = [WriteEnds::Reports, WriteEnds::LastByte, WriteEnds::Words];
const KINDS: [Kind; 8] = [
    Kind::Barrier,
    Kind::Broadcast,
    Kind::Reduce,
    Kind::AllReduce,
    Kind::AllGather,
    Kind::ReduceScatter,
    Kind::Scatter,
    Kind::Gather,
];

/// Runs a member in virtual time. The bytes determine its rank, how it learns of writes, whether it waits for costs, what it calls, what
/// others write and tell, and the passing of time. Returns whether an operation was completed.
///
/// In every case the team ends once its linked members have gone, and its first failure stays.
pub fn neighbours(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let first = u32::from(input.byte());
    let ends = ENDS[(first / MEMBERS) as usize % ENDS.len()];
    let mut scene = Scene::new(first % MEMBERS, ends, first >= 128);
    while !input.0.is_empty() {
        scene.act(&mut input);
        scene.pass(Duration::from_millis(1));
    }
    scene.end()
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A linked member, with how many slots of each ring it has written by the rules.
struct Neighbour {
    transport: SimTransport,
    endpoint: EndpointId,
    written: [u32; 2],
}

struct Scene {
    net: SimNet,
    team: Team<SimTransport>,
    neighbours: Vec<Neighbour>,
    called: u64,
    failure: Option<crate::Failure>,
}

impl Scene {
    fn new(rank: u32, ends: WriteEnds, takes_costs: bool) -> Self {
        let net = SimNet::new(SimConfig::default(), 1);
        let own = net.member();
        let mut neighbours = Vec::new();
        let links: Vec<_> = (0..MEMBERS)
            .filter(|&other| other != rank)
            .map(|other| {
                let mut transport = net.member();
                let (ours, theirs) = net.connect(own.index(), transport.index());
                let endpoint = transport.open(theirs).expect("it is alive");
                let rings = Slots::new(&settings(rank));
                for ring in Ring::ALL {
                    let memory = rings.memory(ring).clone();
                    transport.expose(endpoint, slots::key(ring), memory).expect("a new key");
                }
                neighbours.push(Neighbour { transport, endpoint, written: [0; 2] });
                (other, ours)
            })
            .collect();
        // Counts at rank 0.
        let probed = takes_costs.then_some(1);
        let mut settings = TeamSettings { ends, takes_costs, probed, ..settings(rank) };
        if takes_costs {
            settings.core.ways = WaySelection::ByCosts(WriteCosts::PAPER);
        }
        let team = Team::new(own, settings, links).expect("all links are there");
        Self { net, team, neighbours, called: 0, failure: None }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let (act, index) = (input.byte(), usize::from(input.byte()));
        let count = self.neighbours.len();
        let Neighbour { transport, endpoint, written } = &mut self.neighbours[index % count];
        // The transport may refuse calls that break its rules.
        match act % 12 {
            0 | 1 => {
                let length = usize::from(input.byte()) % (CONTROL_BYTES_MAX + 1);
                drop(transport.write_control(*endpoint, input.take(length)));
            }
            2 | 3 => {
                let (ring, header, contents) = piece(input);
                let number = u64::from(written[ring as usize]);
                written[ring as usize] += 1;
                let flags = Flags::new(SLOTS, None);
                let header = Header { flag: flags.byte(number), ..header };
                let bytes = [&contents, &header.encode()[..]].concat();
                let offset = flags.end(number, SLOT_BYTES as usize) - bytes.len() as u64;
                let region = Region::from_vec(bytes);
                let lease = region.read(0..region.len()).expect("there is no other lease");
                let (key, immediate) = (slots::key(ring), slots::immediate(ring, number));
                let immediate = (act % 12 == 2).then_some(immediate);
                drop(transport.post_write(*endpoint, lease, key, offset, immediate, Token(0)));
            }
            4 => {
                let (key, offset) = (u32::from(input.byte() % 3), u64::from(input.byte()));
                let immediate = Some(u32::from(input.byte()));
                let length = usize::from(input.byte()) % 2 * HEADER_BYTES;
                let region = Region::from_vec(input.take(length).to_vec());
                let lease = region.read(0..region.len()).expect("there is no other lease");
                drop(transport.post_write(*endpoint, lease, key, offset, immediate, Token(0)));
            }
            5 => match index % 8 {
                7 => transport.close(*endpoint),
                seconds => self.pass(Duration::from_secs(1 << (2 * seconds))),
            },
            6 | 7 => self.start(input),
            8 => {
                let (_, header, _) = piece(input);
                let (operation, call) = (header.operation, header.call);
                let word = Word::Grant { operation, call, blocks: u32::from(input.byte() % 9) };
                drop(transport.write_control(*endpoint, &word.encode()));
            }
            9 => {
                let region = Region::from_vec(input.take(index % 48).to_vec());
                let lease = region.read(0..region.len()).expect("there is no other lease");
                drop(transport.post_send(*endpoint, lease, 0, Token(0)));
            }
            10 => {
                let region = Region::zeroed(index % 48);
                let lease = region.write(0..region.len()).expect("there is no other lease");
                drop(transport.post_receive(*endpoint, lease, Token(0)));
            }
            _ => match index % 4 {
                0 => drop(self.team.leave()),
                1 => self.team.abort("enough"),
                _ => self.team.time_out(Duration::from_secs(10)),
            },
        }
    }

    fn start(&mut self, input: &mut Input<'_>) {
        let call = call(input);
        let by = call.folding.map(|_| sum());
        // A call that is refused needs none.
        let needed = self.team.memory_bytes(call.kind, call.root, call.bytes, by.as_ref());
        let memory = Memory::Owned(vec![1; needed.unwrap_or(0) as usize]);
        match self.team.start(call.kind, call.root, call.bytes, by, memory) {
            Ok(number) => {
                assert_eq!(number, self.called);
                self.called += 1;
            }
            // It was started, and failed the team at once; or was not.
            Err(Error::Failed(failure)) => assert_eq!(Some(&failure), self.team.failure()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    /// Lets time pass; the team and its neighbours process what has happened.
    fn pass(&mut self, time: Duration) {
        let until = self.net.now() + time;
        let mut unseen = Vec::new();
        let mut looks = 0;
        loop {
            self.team.progress(&mut [], Duration::ZERO);
            if let Some(first) = &self.failure {
                assert_eq!(Some(first), self.team.failure(), "the first failure stays");
            }
            self.failure = self.team.failure().cloned();
            let Some(member) = self.net.run_until(until) else { break };
            if let Some(neighbour) = member.checked_sub(1) {
                self.neighbours[neighbour].transport.poll(&mut unseen, Duration::ZERO);
                unseen.retain(|done| matches!(done, Completion::Broken { .. }));
            }
            looks += 1;
            assert!(looks < 100_000, "it goes on and on");
        }
    }

    fn end(mut self) -> bool {
        for Neighbour { transport, endpoint, .. } in &mut self.neighbours {
            transport.close(*endpoint);
        }
        self.pass(Duration::from_secs(10));
        assert!(self.team.has_ended(), "all others have gone, and the team goes on");
        (0..self.called).any(|number| self.team.is_complete(number).unwrap_or(false))
    }
}

fn settings(rank: u32) -> TeamSettings {
    let mut settings = TeamSettings::new(1, MEMBERS, rank);
    (settings.core.slots, settings.core.slot_bytes) = (SLOTS, SLOT_BYTES);
    let thresholds = Thresholds { degree: 3, exchange_bytes: 0, long_bytes: 64, block_bytes: 24 };
    settings.core.ways = WaySelection::ByThresholds(thresholds);
    settings
}

fn sum() -> Reduction {
    Reduction::new(Type::U16, Op::Sum).expect("integers have sums")
}

/// A call that is valid, but for its root.
fn call(input: &mut Input<'_>) -> Call {
    let (kind, root, length) = (input.byte(), u32::from(input.byte()) % 6, u64::from(input.byte()));
    let kind = KINDS[usize::from(kind) % KINDS.len()];
    match kind {
        Kind::Barrier => Call::new(kind, 0, 0),
        Kind::Broadcast | Kind::Scatter | Kind::Gather => Call::new(kind, root, length),
        Kind::Reduce => Call::folding(kind, root, length / 2 * 2, &sum()),
        Kind::AllReduce | Kind::ReduceScatter => Call::folding(kind, 0, length / 2 * 2, &sum()),
        _ => Call::new(kind, 0, length),
    }
}

/// The contents of a slot with a valid header.
fn piece(input: &mut Input<'_>) -> (Ring, Header, Vec<u8>) {
    let (choice, operation) = (input.byte(), u64::from(input.byte()));
    let call = call(input);
    let room = u64::from(SLOT_BYTES) - HEADER_BYTES as u64;
    let offset = u64::from(choice >> 4) * room;
    let bytes = if choice & 2 == 0 { call.bytes.saturating_sub(offset).min(room) } else { 7 };
    let header = Header { operation, call, offset, bytes: bytes as u32, flag: 1 };
    (Ring::ALL[usize::from(choice & 1)], header, vec![choice; bytes as usize])
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::ends::Marks;

    fn exposed(neighbour: u8) -> Vec<u8> {
        let word = Word::Exposed(Marks::default()).encode();
        [&[0, neighbour, word.len() as u8], &word[..]].concat()
    }

    #[test]
    fn the_corpus_passes() {
        // Rank 1 receives a broadcast of rank 0, its neighbour 0, in two pieces, and passes it on.
        let call = [6, 0, 1, 0, 60];
        let pieces = [[2, 0, 1, 0, 1, 0, 60], [2, 0, 0x11, 0, 1, 0, 60]];
        let others: Vec<u8> = (0..4).flat_map(exposed).collect();
        let broadcast = [&[1], &others[..], &call, &pieces[0], &pieces[1]].concat();
        // Rank 0 combines contributions of all others.
        let call = [6, 0, 3, 0, 8];
        let up = |neighbour| [2, neighbour, 0, 0, 3, 0, 8];
        let all_reduce = [&[0], &others[..], &up(3), &call, &up(0), &up(1), &up(2)].concat();
        // The same at rank 1, by flags that nobody reports.
        let call = [6, 0, 1, 0, 60];
        let pieces = pieces.map(|[_, rest @ ..]| [[3].as_slice(), &rest].concat()).concat();
        let flags = [&[6], &others[..], &call, &pieces].concat();
        // After the first one all leave.
        let bye = Word::Bye { operations: 1 }.encode();
        let byes = |neighbour| [&[0, neighbour, bye.len() as u8], &bye[..]].concat();
        let byes: Vec<u8> = (0..4).flat_map(byes).collect();
        let leaves = [&broadcast[..], &byes, &[11, 0]].concat();
        // The broadcast, once it has received how ways are chosen.
        let costs = Word::Costs(WriteCosts::PAPER).encode();
        let costs = [&[0, 0, costs.len() as u8], &costs[..]].concat();
        let told = [&[136], &others[..], &costs, &broadcast[1 + others.len()..]].concat();
        // Rank 0's, after it has measured the time of a write.
        let answers = [0, 0, 1, Word::Probe.encode()[0]].repeat(8);
        let probed = [&[135], &others[..], &answers, &[6, 0, 1, 0, 60]].concat();
        let seeds = [
            ("told", told),
            ("probed", probed),
            ("broadcast", broadcast),
            ("all_reduce", all_reduce),
            ("flags", flags),
            ("leaves", leaves),
        ];
        testing::replay("team_neighbours", &seeds, neighbours);
    }
}
