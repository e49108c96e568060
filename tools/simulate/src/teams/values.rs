//! What members contribute, and the plain model of what operations compute.

use std::ops::Range;

use collective::{Type, bf16, f16};

use super::{
    calls::{CallKind, CallPlan, FoldPlan},
    scenario::TeamScenario,
};

/// Values of a scenario's operations.
#[derive(Clone, Copy)]
pub(super) struct Values<'a>(pub(super) &'a TeamScenario);

impl Values<'_> {
    /// Returns what a member contributes to the operation of a number, if it is this call: the same for the same call.
    pub(super) fn contribution(&self, number: u64, rank: u32, call: &CallPlan) -> Vec<u8> {
        let parts = match call.kind {
            CallKind::ReduceScatter(_) => u64::from(self.0.size()),
            CallKind::Scatter if rank == call.root => u64::from(self.0.size()),
            _ => 1,
        };
        let mut random = Random(self.0.seed ^ number << 40 ^ u64::from(rank) << 20);
        if let Some(FoldPlan::Operator { element, op, is_exact: true }) = call.kind.fold()
            && let Ok(element @ (Type::F16 | Type::Bf16 | Type::F32 | Type::F64)) = element.parse()
        {
            let value = |random: &mut Random| float(element, small(op, random.next()));
            return (0..parts * call.elements).flat_map(|_| value(&mut random)).collect();
        }
        (0..parts * call.bytes()).map(|_| (random.next() >> 56) as u8).collect()
    }

    /// Returns the memory with which a member starts an operation, of this length.
    pub(super) fn memory(&self, number: u64, rank: u32, call: &CallPlan, bytes: u64) -> Vec<u8> {
        let own = self.contribution(number, rank, call);
        if !call.team_kind().has_parts() {
            return own;
        }
        let mut all = vec![0; bytes as usize];
        // A member that has all parts contributes all.
        let place = if own.len() == all.len() { 0..own.len() } else { place(rank, call) };
        all[place].copy_from_slice(&own);
        all
    }

    /// Returns what a member has to have after an operation, with its place in memory, if that was the whole result.
    pub(super) fn part_of(rank: u32, call: &CallPlan, result: &[u8]) -> (Range<usize>, Vec<u8>) {
        let own =
            rank as usize * call.bytes() as usize..(rank as usize + 1) * call.bytes() as usize;
        match call.kind {
            CallKind::ReduceScatter(_) | CallKind::Scatter => {
                (place(rank, call), result[own].to_vec())
            }
            _ => (0..result.len(), result.to_vec()),
        }
    }

    /// Returns the result of an operation, folded in the order of ranks; `None` where it depends on which members were folded
    /// first.
    pub(super) fn result(&self, number: u64, call: &CallPlan) -> Option<Vec<u8>> {
        let mut all = (0..self.0.size()).map(|rank| self.contribution(number, rank, call));
        let plan = match (&call.kind, call.kind.fold()) {
            (_, Some(FoldPlan::Operator { is_exact: false, .. })) => return None,
            (_, Some(plan)) => plan,
            (CallKind::AllGather | CallKind::Gather, None) => return Some(all.flatten().collect()),
            (CallKind::Broadcast | CallKind::Scatter, None) => {
                return Some(self.contribution(number, call.root, call));
            }
            (_, None) => return Some(Vec::new()),
        };
        let mut left = all.next()?;
        match plan {
            FoldPlan::Function(function) => {
                let bytes = function.element_bytes();
                for right in all {
                    let pairs = left.chunks_exact_mut(bytes).zip(right.chunks_exact(bytes));
                    pairs.for_each(|(left, right)| function.combine(left, right));
                }
            }
            FoldPlan::Operator { .. } => {
                let by = plan.reduction().ok()?;
                all.try_for_each(|right| by.fold(&mut left, &right)).ok()?;
            }
        }
        Some(left)
    }
}

/// Returns where a member's own part is in its memory.
fn place(rank: u32, call: &CallPlan) -> Range<usize> {
    let is_first = call.team_kind().has_parts_at_root() && rank != call.root;
    let (index, bytes) = (if is_first { 0 } else { rank as usize }, call.bytes() as usize);
    index * bytes..(index + 1) * bytes
}

/// A small number of which no rounding depends on the order: for products 1 or -1, so that none overflows.
fn small(op: &str, random: u64) -> f32 {
    match op {
        "prod" => [1.0, -1.0][(random >> 63) as usize],
        _ => (random >> 61) as f32 - 4.0,
    }
}

/// Encodes an element in the host's byte order.
fn float(element: Type, value: f32) -> Vec<u8> {
    match element {
        Type::F16 => f16::from_f32(value).to_ne_bytes().to_vec(),
        Type::Bf16 => bf16::from_f32(value).to_ne_bytes().to_vec(),
        Type::F32 => value.to_ne_bytes().to_vec(),
        _ => f64::from(value).to_ne_bytes().to_vec(),
    }
}

/// SplitMix64: fast, and good enough for contents.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}
