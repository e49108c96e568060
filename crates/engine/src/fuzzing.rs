//! The fuzzers' entry points (`./dev fuzz`): a member of a group whose neighbours follow no rule
//! above the transport, and control words.

use std::time::Duration;

use schedule::{Algorithm, MAX_MEMBERS, Schedule};
use transport::{
    CONTROL_BYTES_MAX, Completion, EndpointId, OneSidedWrites, Region, Token, Transport,
};
use transport_sim::{SimConfig, SimNet, SimTransport};

use crate::{Engine, Event, GroupSettings, SmallMessages, words::Word};

const GROUP: u64 = 1;
const RACKS: [u32; 5] = [0, 0, 1, 1, 1];
const BLOCK_BYTES: u64 = 64;
/// The application refuses longer messages.
const MESSAGE_BYTES_MAX: u64 = 4096;

/// Decodes a control word, which follows a byte that is 0; the remaining kinds of messages are
/// defined in other crates. Returns whether the bytes are a word.
pub fn messages(bytes: &[u8]) -> bool {
    let Some((0, body)) = bytes.split_first() else { return false };
    // Transports do not carry longer words.
    if body.len() > CONTROL_BYTES_MAX {
        return false;
    }
    // Not byte by byte: control characters of a text are replaced.
    let survives = |word: &Word| {
        let encoded = word.encode();
        assert_eq!(Word::decode(&encoded, MAX_MEMBERS).as_ref(), Some(word));
        assert!(encoded.len() <= body.len());
    };
    Word::decode(body, MAX_MEMBERS).inspect(survives).is_some()
}

/// Runs a group in virtual time. The bytes determine the member, the actions of its neighbours and
/// its application, and the passing of time. Returns whether the application got any event but a
/// failure.
///
/// In every case the group ends at most once, no event follows, and all memory is returned and
/// unused.
pub fn neighbours(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let mut scene = Scene::new(&mut input);
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

    fn number(&mut self) -> u64 {
        let mut number = [0; 8];
        let bytes = self.take(8);
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct Neighbour {
    transport: SimTransport,
    endpoint: EndpointId,
}

struct Scene {
    net: SimNet,
    engine: Engine<SimTransport>,
    neighbours: Vec<Neighbour>,
    /// Messages for which the application was asked for memory, with their lengths.
    asked: Vec<(u64, u64)>,
    ended: bool,
    got_events: bool,
}

impl Scene {
    fn new(input: &mut Input<'_>) -> Self {
        let (rank, choice) = (u32::from(input.byte()), input.byte());
        let algorithm = Algorithm::ALL[usize::from(choice & 15) % Algorithm::ALL.len()];
        let schedule = Schedule::with_racks(algorithm, &RACKS, 0).expect("a small group");
        let mut settings = GroupSettings::new(GROUP, rank % schedule.members(), schedule);
        settings.block_bytes = BLOCK_BYTES;
        settings.report_blocks = choice & 16 != 0;
        settings.verify = choice & 64 != 0;
        settings.report_delivered = choice & 128 != 0;
        let small = SmallMessages { bytes_max: 32, slots: 4, ..SmallMessages::default() };
        settings.small = (choice & 32 != 0).then_some(small);

        let net = SimNet::new(SimConfig::default(), 1);
        let own = net.member();
        let mut neighbours = Vec::new();
        let links = settings.neighbours().into_iter().map(|rank| {
            let mut transport = net.member();
            let (ours, theirs) = net.connect(own.index(), transport.index());
            let endpoint = transport.open(theirs).expect("it is alive");
            neighbours.push(Neighbour { transport, endpoint });
            (rank, ours)
        });
        let links = links.collect();
        let mut engine = Engine::new(own);
        engine.create(settings, links).expect("all links are there");
        Self { net, engine, neighbours, asked: Vec::new(), ended: false, got_events: false }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let (act, index) = (input.byte(), usize::from(input.byte()));
        let count = self.neighbours.len();
        let Neighbour { transport, endpoint } = &mut self.neighbours[index % count];
        // The transport may refuse calls that break its rules.
        match act % 10 {
            0..=2 => {
                let length = usize::from(input.byte()) % (CONTROL_BYTES_MAX + 1);
                drop(transport.write_control(*endpoint, input.take(length)));
            }
            3 => {
                let block = Region::zeroed(usize::from(input.byte()));
                let lease = block.read(0..block.len()).expect("there is no other lease");
                let immediate = u32::from(input.byte());
                drop(transport.post_send(*endpoint, lease, immediate, Token(0)));
            }
            4 => {
                let block = Region::zeroed(BLOCK_BYTES as usize);
                let lease = block.write(0..block.len()).expect("there is no other lease");
                drop(transport.post_receive(*endpoint, lease, Token(0)));
            }
            5 => {
                let (offset, immediate) = (u64::from(input.byte()), u32::from(input.byte()));
                let length = usize::from(input.byte() % 64);
                let slot = Region::from_vec(input.take(length).to_vec());
                let lease = slot.read(0..slot.len()).expect("there is no other lease");
                drop(transport.post_write(*endpoint, lease, 0, offset, Some(immediate), Token(0)));
            }
            6 => match index % 8 {
                7 => transport.close(*endpoint),
                seconds => self.pass(Duration::from_secs(1 << (2 * seconds))),
            },
            7 => drop(self.engine.send(GROUP, Region::zeroed(usize::from(input.byte()) * 4))),
            8 => self.accept(index, input.number()),
            _ if index % 2 == 0 => drop(self.engine.close(GROUP)),
            _ => drop(self.engine.abort(GROUP, "enough")),
        }
    }

    /// Accepts a message for which memory was asked, or one that does not exist.
    fn accept(&mut self, index: usize, otherwise: u64) {
        if self.asked.is_empty() {
            return drop(self.engine.accept(GROUP, otherwise, Region::zeroed(1)));
        }
        let (message, bytes) = self.asked.swap_remove(index % self.asked.len());
        if bytes <= MESSAGE_BYTES_MAX {
            drop(self.engine.accept(GROUP, message, Region::zeroed(bytes as usize)));
        } else {
            drop(self.engine.abort(GROUP, "too long"));
        }
    }

    /// Lets time pass; the engine and its neighbours process what has happened.
    fn pass(&mut self, time: Duration) {
        let until = self.net.now() + time;
        let (mut events, mut unseen) = (Vec::new(), Vec::new());
        let mut looks = 0;
        loop {
            self.engine.progress(Duration::ZERO, &mut events);
            for event in events.drain(..) {
                self.on_event(event);
            }
            let Some(member) = self.net.run_until(until) else { break };
            if let Some(neighbour) = member.checked_sub(1) {
                self.neighbours[neighbour].transport.poll(&mut unseen, Duration::ZERO);
                unseen.retain(|done| matches!(done, Completion::Broken { .. }));
            }
            looks += 1;
            assert!(looks < 100_000, "it goes on and on");
        }
    }

    fn on_event(&mut self, event: Event) {
        assert!(!self.ended, "after the end: {event:?}");
        let free = |region: Region| assert!(region.try_into_vec().is_ok(), "a lease is out");
        self.got_events |= !matches!(event, Event::Failed { .. });
        match event {
            Event::Incoming { message, bytes, .. } => {
                assert!(self.asked.iter().all(|&(asked, _)| asked != message), "asked twice");
                self.asked.push((message, bytes));
            }
            Event::Complete { region, .. } => free(region),
            Event::Failed { regions, failure } => {
                assert!(!failure.to_string().is_empty());
                regions.into_iter().for_each(|(_, region)| free(region));
                self.ended = true;
            }
            Event::Closed { .. } => self.ended = true,
            Event::Block { bytes, .. } => assert!(bytes <= BLOCK_BYTES),
            Event::Received { .. } | Event::Delivered { .. } => {}
        }
    }

    /// Ends all neighbours; the group must end, if it has not.
    fn end(mut self) -> bool {
        for Neighbour { transport, endpoint } in &mut self.neighbours {
            transport.close(*endpoint);
        }
        self.pass(Duration::from_secs(10));
        assert!(self.ended, "all neighbours have gone, and the group goes on");
        assert_eq!(self.engine.groups().count(), 0);
        self.got_events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FailureKind, Notice};

    fn word(neighbour: u8, word: &Word) -> Vec<u8> {
        let bytes = word.encode();
        [&[0, neighbour, bytes.len() as u8], &bytes[..]].concat()
    }

    #[test]
    fn the_corpus_passes() {
        let announce = word(0, &Word::Announce { number: 0, bytes: 100, delivered: 0 });
        let grant = word(0, &Word::Grant { count: 2, received: 0 });
        let delivered = word(0, &Word::Delivered);
        // A receiver of a chain whose source announces and sends two blocks, and whose target
        // receives them.
        let (accept, take) = ([8, 0, 0, 0, 0, 0, 0, 0, 0, 0], [4, 1]);
        let grant_on = word(1, &Word::Grant { count: 2, received: 0 });
        let (first, last) = ([3, 0, 64, 0], [3, 0, 36, 1]);
        let closing = word(0, &Word::Closing { messages: 1 });
        let receiver = [
            &[1, 1][..],
            &announce,
            &accept,
            &take,
            &take,
            &grant_on,
            &first,
            &last,
            &closing,
            &word(1, &Word::Delivered),
            &word(0, &Word::Confirmed),
        ];
        let root = [&[0, 1][..], &[4, 0], &[4, 0], &grant, &[7, 0, 25], &[9, 0], &delivered];
        let head = [0_u64.to_le_bytes(), 3_u64.to_le_bytes()].concat();
        let small = [&[1, 33][..], &[5, 0, 0, 0, 19], &head, b"abc", &accept];
        let small_root = [&[0, 33][..], &word(0, &Word::Freed { count: 0 }), &[7, 0, 5]];
        // A receiver that compares the message with the root's, and a root that asks for what it has.
        let hash = |bytes: &[u8]| *blake3::hash(bytes).as_bytes();
        let digest = hash([hash(&[0; 64]), hash(&[0; 36])].as_flattened());
        let mut verified = receiver;
        verified[0] = &[1, 65];
        let compare = word(0, &Word::Digest { message: 0, digest });
        let verified = [&verified[..8], &[&compare], &verified[8..]].concat();
        let has = word(0, &Word::Has { received: 1 });
        let told =
            [&[0, 129][..], &[4, 0], &[4, 0], &grant, &[7, 0, 25], &has, &[9, 0], &delivered];
        let seeds = [
            ("receiver", receiver.concat()),
            ("root", root.concat()),
            ("small", small.concat()),
            ("verified", verified.concat()),
            ("told", told.concat()),
        ];
        testing::replay("rdmc_neighbours", &seeds, neighbours);
        neighbours(&small_root.concat());
    }

    #[test]
    fn the_corpus_of_words_passes() {
        let member = Some(3);
        let (kind, detail) = (FailureKind::Stalled, "why".to_owned());
        let words = [
            ("announce", Word::Announce { number: 3, bytes: 1 << 40, delivered: 1 }),
            ("grant", Word::Grant { count: 2, received: 1 }),
            ("freed", Word::Freed { count: 7 }),
            ("failed", Word::Failed(Notice { member, reporter: 7, kind, detail })),
            ("closing", Word::Closing { messages: 3 }),
            ("delivered", Word::Delivered),
            ("confirmed", Word::Confirmed),
            ("counted", Word::Counted { received: 2 }),
            ("settled", Word::Settled { delivered: 2 }),
            ("ask", Word::Ask { messages: 2 }),
            ("has", Word::Has { received: 2 }),
            ("digest", Word::Digest { message: 2, digest: [3; 32] }),
            ("moving", Word::Moving { idle_ms: 250 }),
        ];
        let seeds = words.map(|(name, word)| (name, [vec![0], word.encode()].concat()));
        testing::replay("rdmc_messages", &seeds, messages);
    }
}
