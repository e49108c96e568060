//! A team in this process: members, their memory, and a network that delivers in any order that a network may.

use std::collections::{BTreeMap, VecDeque};

use collective::{
    Call, Contents, Effect, Fault, Function, Header, Kind, Member, Reduction, Ring, Settings,
};

/// Length in bytes of an element: an affine map x -> a x + b, whose composition is associative and does not commute.
pub const ELEMENT_BYTES: usize = 16;

/// SplitMix64: enough to choose among orders.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

type Slot = Option<(Header, Vec<u8>)>;

struct Node {
    core: Member,
    /// What others have written, by writer and ring.
    slots: BTreeMap<(u32, Ring), Vec<Slot>>,
    /// Memory of operations that are not complete, by number.
    memory: BTreeMap<u64, Vec<u8>>,
    calls: Vec<Call>,
    /// Posted receives, by sender, in order.
    receives: BTreeMap<u32, VecDeque<Block>>,
    /// Blocks that have come and are to be folded, by operation and index.
    arrived: BTreeMap<(u64, u32), Vec<u8>>,
}

/// A block that was posted at one end.
#[derive(Clone, Copy)]
struct Block {
    operation: u64,
    index: u32,
    at: u64,
    bytes: u64,
    folds: bool,
}

/// What is on its way between two members.
enum Wire {
    Slot(Ring, u32, Header, Vec<u8>),
    Freed(Ring, u64),
    Grant(u64, Call, u32),
    /// A send that was posted; its memory is read as late as possible.
    Send(u32, Block),
    Block(Vec<u8>),
}

pub struct World {
    settings: Settings,
    nodes: Vec<Node>,
    /// By sender, receiver, and what keeps its order: a ring, or the words.
    wires: BTreeMap<(u32, u32, u8), VecDeque<Wire>>,
    dice: Dice,
    /// Operations complete so far, at all members.
    pub completed: u64,
    /// What members have by [`blends`], by operation and rank.
    pub results: BTreeMap<(u64, u32), Vec<u8>>,
}

/// The contribution of a member to an operation.
pub fn contribution(operation: u64, rank: u32, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| {
        let mixed = (operation.wrapping_mul(31) + u64::from(rank) * 7 + at as u64)
            .wrapping_mul(0x9E37_79B9);
        (mixed >> 11) as u8
    };
    (0..bytes).map(byte).collect()
}

fn compose(left: &mut [u8], right: &[u8]) {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    for (left, right) in left.chunks_exact_mut(ELEMENT_BYTES).zip(right.chunks_exact(ELEMENT_BYTES))
    {
        let [(a, b), (c, d)] = [&*left, right].map(|map| (number(&map[..8]), number(&map[8..])));
        left[..8].copy_from_slice(&c.wrapping_mul(a).to_le_bytes());
        left[8..].copy_from_slice(&c.wrapping_mul(b).wrapping_add(d).to_le_bytes());
    }
}

fn add(left: &mut [u8], right: &[u8]) {
    for (left, right) in left.iter_mut().zip(right) {
        *left = left.wrapping_add(*right);
    }
}

/// The composition as a reduction.
pub fn maps() -> Reduction {
    Function::new("affine maps", ELEMENT_BYTES, compose).unwrap().into()
}

/// A sum of bytes, in elements that are not cut either.
pub fn sums() -> Reduction {
    Function::new("sums", ELEMENT_BYTES, add).unwrap().commutative().into()
}

fn blend(left: &mut [u8], right: &[u8]) {
    for (left, right) in left.iter_mut().zip(right) {
        *left = (*left).wrapping_mul(*right).wrapping_add(*left ^ *right);
    }
}

/// It commutes, and is not associative.
pub fn blends() -> Reduction {
    Function::new("blends", ELEMENT_BYTES, blend).unwrap().commutative().into()
}

fn is_blended(call: &Call) -> bool {
    Call::folding(call.kind, call.root, call.bytes, &blends()) == *call
}

/// Folds what a call says.
fn fold(call: &Call, memory: &mut [u8], other: &[u8]) {
    let Some(folding) = call.folding else { return assert!(other.is_empty()) };
    let by = match folding.is_commutative {
        true if is_blended(call) => blends(),
        true => sums(),
        false => maps(),
    };
    by.fold(memory, other).unwrap();
}

/// What a member finds in its memory after an operation, from a position on; `None` where that does not matter.
fn expected(operation: u64, call: &Call, members: u32, rank: u32) -> Option<(usize, Vec<u8>)> {
    let bytes = call.bytes as usize;
    let contributed = if call.kind == Kind::ReduceScatter { members as usize } else { 1 } * bytes;
    let all = (0..members).map(|rank| contribution(operation, rank, contributed));
    let place = bytes * rank as usize;
    let part = |whole: Vec<u8>| whole[place..][..bytes].to_vec();
    let folded = |mut all: Vec<Vec<u8>>| {
        let mut first = all.remove(0);
        all.iter().for_each(|other| fold(call, &mut first, other));
        first
    };
    let expected = match call.kind {
        _ if is_blended(call) => return None,
        Kind::Reduce if rank != call.root => return None,
        Kind::Broadcast => contribution(operation, call.root, bytes),
        Kind::Reduce | Kind::AllReduce => folded(all.collect()),
        Kind::AllGather => all.flatten().collect(),
        Kind::ReduceScatter => return Some((place, part(folded(all.collect())))),
        Kind::Gather if rank == call.root => all.flatten().collect(),
        Kind::Gather => contribution(operation, rank, bytes),
        Kind::Scatter => {
            let whole = contribution(operation, call.root, bytes * members as usize);
            if rank == call.root { whole } else { part(whole) }
        }
        _ => Vec::new(),
    };
    Some((0, expected))
}

impl World {
    pub fn new(settings: &Settings, seed: u64) -> Self {
        let node = |rank| {
            let core = Member::new(Settings { rank, ..settings.clone() });
            let rings = core.linked().flat_map(|other| Ring::ALL.map(|ring| (other, ring)));
            let slots = rings.map(|key| (key, vec![None; settings.slots as usize])).collect();
            let (memory, receives) = (BTreeMap::new(), BTreeMap::new());
            let arrived = BTreeMap::new();
            Node { core, slots, memory, calls: Vec::new(), receives, arrived }
        };
        Self {
            settings: settings.clone(),
            nodes: (0..settings.members).map(node).collect(),
            wires: BTreeMap::new(),
            dice: Dice(seed),
            completed: 0,
            results: BTreeMap::new(),
        }
    }

    /// Runs these calls at all members, each with at most `ahead` incomplete ones, and checks every result. `called` may
    /// change what a member calls.
    ///
    /// Returns whether all are complete at all members; otherwise no member can go on.
    pub fn run(
        &mut self,
        calls: &[Call],
        ahead: usize,
        called: impl Fn(u32, usize, Call) -> Call,
    ) -> Result<bool, (u32, Fault)> {
        loop {
            let can_call = |node: &Node| {
                let called = node.calls.len();
                called < calls.len() && called < node.core.completed() as usize + ahead
            };
            let callers: Vec<u32> = (0..self.settings.members)
                .filter(|&rank| can_call(&self.nodes[rank as usize]))
                .collect();
            let wires: Vec<_> = self.wires.keys().copied().collect();
            if callers.is_empty() && wires.is_empty() {
                let is_done = |node: &Node| node.core.completed() == calls.len() as u64;
                return Ok(self.nodes.iter().all(is_done));
            }
            let choice = self.dice.below(callers.len() + wires.len());
            let (rank, outcome) = match callers.get(choice) {
                Some(&rank) => {
                    let index = self.nodes[rank as usize].calls.len();
                    (rank, self.call(rank, called(rank, index, calls[index])))
                }
                None => self.deliver(wires[choice - callers.len()]),
            };
            outcome.map_err(|fault| (rank, fault))?;
            self.carry_out(rank);
        }
    }

    fn call(&mut self, rank: u32, call: Call) -> Result<(), Fault> {
        let node = &mut self.nodes[rank as usize];
        let operation = node.calls.len() as u64;
        node.calls.push(call);
        let bytes = node.core.memory_bytes(&call) as usize;
        let own = contribution(operation, rank, call.bytes as usize);
        let memory = match call.kind {
            Kind::AllGather | Kind::Gather => {
                let mut all = vec![0; bytes];
                let is_first = call.kind == Kind::Gather && rank != call.root;
                let place = if is_first { 0 } else { own.len() * rank as usize };
                all[place..][..own.len()].copy_from_slice(&own);
                all
            }
            Kind::Scatter if rank != call.root => vec![0xEE; bytes],
            Kind::Scatter | Kind::ReduceScatter => contribution(operation, rank, bytes),
            Kind::Broadcast if rank != call.root => vec![0xEE; own.len()],
            _ => own,
        };
        node.memory.insert(operation, memory);
        assert_eq!(node.core.start(call)?, operation);
        Ok(())
    }

    fn deliver(&mut self, wire: (u32, u32, u8)) -> (u32, Result<(), Fault>) {
        let (from, to, _) = wire;
        let queue = self.wires.get_mut(&wire).unwrap();
        let next = queue.pop_front().unwrap();
        if queue.is_empty() {
            self.wires.remove(&wire);
        }
        let node = &mut self.nodes[to as usize];
        let outcome = match next {
            Wire::Slot(ring, slot, header, contents) => {
                let place = &mut node.slots.get_mut(&(from, ring)).unwrap()[slot as usize];
                assert!(place.replace((header, contents)).is_none(), "a slot is written twice");
                node.core.written(from, ring, slot, header)
            }
            Wire::Freed(ring, count) => node.core.freed(from, ring, count),
            Wire::Grant(operation, call, blocks) => {
                node.core.granted(from, operation, call, blocks)
            }
            Wire::Send(to, block) => {
                let Block { operation, index, at, bytes, .. } = block;
                let contents = node.memory[&operation][at as usize..][..bytes as usize].to_vec();
                let outcome = node.core.sent(operation, index);
                self.wires.entry((from, to, 3)).or_default().push_back(Wire::Block(contents));
                outcome
            }
            Wire::Block(contents) => {
                let posted = node.receives.get_mut(&from).and_then(VecDeque::pop_front);
                let Block { operation, index, at, bytes, folds } = posted.expect("a receive");
                if folds {
                    node.arrived.insert((operation, index), contents);
                    assert!(node.arrived.len() <= 8 * node.memory.len(), "scratch memory");
                } else {
                    let memory = node.memory.get_mut(&operation).unwrap();
                    memory[at as usize..][..bytes as usize].copy_from_slice(&contents);
                }
                node.core.received(operation, index)
            }
        };
        (to, outcome)
    }

    fn carry_out(&mut self, rank: u32) {
        let node = &mut self.nodes[rank as usize];
        while let Some(effect) = node.core.poll_effect() {
            match effect {
                Effect::Fold { is_left, operation, contents, at } => {
                    let call = node.calls[operation as usize];
                    let (memory, mut other) = node.take(operation, contents, at);
                    if is_left {
                        fold(&call, &mut other, memory);
                        memory.copy_from_slice(&other);
                    } else {
                        fold(&call, memory, &other);
                    }
                }
                Effect::Copy { operation, contents, at } => {
                    let (memory, other) = node.take(operation, contents, at);
                    memory.copy_from_slice(&other);
                }
                Effect::Write { to, ring, slot, at, header } => {
                    assert_eq!(Header::decode(&header.encode()), Ok(header));
                    let memory = &node.memory[&header.operation];
                    let contents = memory[at as usize..][..header.bytes as usize].to_vec();
                    let wire = self.wires.entry((rank, to, ring as u8)).or_default();
                    wire.push_back(Wire::Slot(ring, slot, header, contents));
                }
                Effect::Freed { to, ring, count } => {
                    self.wires
                        .entry((rank, to, 2))
                        .or_default()
                        .push_back(Wire::Freed(ring, count));
                }
                Effect::Receive { operation, index, from, at, bytes, folds } => {
                    let block = Block { operation, index, at, bytes, folds };
                    node.receives.entry(from).or_default().push_back(block);
                }
                Effect::FoldBlock { operation, index, at, bytes } => {
                    let contents = node.arrived.remove(&(operation, index)).expect("a block");
                    let memory = node.memory.get_mut(&operation).unwrap();
                    let memory = &mut memory[at as usize..][..bytes as usize];
                    fold(&node.calls[operation as usize], memory, &contents);
                }
                Effect::Grant { to, operation, call, blocks } => {
                    let words = self.wires.entry((rank, to, 2)).or_default();
                    words.push_back(Wire::Grant(operation, call, blocks));
                }
                Effect::Send { operation, index, to, at, bytes } => {
                    let block = Block { operation, index, at, bytes, folds: false };
                    // One queue of each link, from a member to itself.
                    let queue = u8::try_from(4 + to).unwrap();
                    let sends = self.wires.entry((rank, rank, queue)).or_default();
                    sends.push_back(Wire::Send(to, block));
                }
                Effect::Complete { operation } => {
                    let memory = node.memory.remove(&operation).unwrap();
                    let call = &node.calls[operation as usize];
                    let expected = expected(operation, call, self.settings.members, rank);
                    if let Some((at, expected)) = expected {
                        let found = &memory[at..][..expected.len()];
                        assert_eq!(found, expected, "{call:?}, operation {operation} at {rank}");
                    } else if is_blended(call) {
                        self.results.insert((operation, rank), memory);
                    }
                    self.completed += 1;
                }
            }
        }
    }

    /// Tells every linked member what each has called last, as members do that wait for long.
    pub fn compare_calls(&self) -> Result<(), (u32, Fault)> {
        for (rank, node) in (0..).zip(&self.nodes) {
            for other in node.core.linked() {
                for operation in 0..node.core.called() {
                    let Some(call) = node.core.call(operation) else { continue };
                    let outcome = self.nodes[other as usize].core.compare(rank, operation, call);
                    outcome.map_err(|fault| (other, fault))?;
                }
            }
        }
        Ok(())
    }

    pub fn awaited(&self) -> Vec<Option<(u64, Vec<u32>)>> {
        self.nodes.iter().map(|node| node.core.awaited()).collect()
    }
}

impl Node {
    /// Takes contents out of a slot, and returns the memory that they are for.
    fn take(&mut self, operation: u64, contents: Contents, at: u64) -> (&mut [u8], Vec<u8>) {
        let Contents { from, ring, slot, bytes } = contents;
        let slots = self.slots.get_mut(&(from, ring)).unwrap();
        let (_, found) = slots[slot as usize].take().expect("a slot that was written");
        assert_eq!(found.len(), bytes as usize);
        let memory = self.memory.get_mut(&operation).unwrap();
        (&mut memory[at as usize..][..bytes as usize], found)
    }
}
