//! What members contribute, and the plain model of what operations compute.

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
        let mut random = Random(self.0.seed ^ number << 40 ^ u64::from(rank) << 20);
        if let CallKind::Reduce(plan) | CallKind::AllReduce(plan) = &call.kind
            && let FoldPlan::Operator { element, op, is_exact: true } = plan
            && let Ok(element @ (Type::F16 | Type::Bf16 | Type::F32 | Type::F64)) = element.parse()
        {
            let value = |random: &mut Random| float(element, small(op, random.next()));
            return (0..call.elements).flat_map(|_| value(&mut random)).collect();
        }
        (0..call.bytes()).map(|_| (random.next() >> 56) as u8).collect()
    }

    /// Returns the memory with which a member starts an operation.
    pub(super) fn memory(&self, number: u64, rank: u32, call: &CallPlan) -> Vec<u8> {
        let own = self.contribution(number, rank, call);
        if call.kind != CallKind::AllGather {
            return own;
        }
        let mut all = vec![0; call.memory_bytes(self.0.size()) as usize];
        all[own.len() * rank as usize..][..own.len()].copy_from_slice(&own);
        all
    }

    /// Returns the result of an operation, folded in the order of ranks; `None` where it depends on which members were folded
    /// first.
    pub(super) fn result(&self, number: u64, call: &CallPlan) -> Option<Vec<u8>> {
        let mut all = (0..self.0.size()).map(|rank| self.contribution(number, rank, call));
        let plan = match &call.kind {
            CallKind::Barrier => return Some(Vec::new()),
            CallKind::Broadcast => return Some(self.contribution(number, call.root, call)),
            CallKind::AllGather => return Some(all.flatten().collect()),
            CallKind::Reduce(FoldPlan::Operator { is_exact: false, .. })
            | CallKind::AllReduce(FoldPlan::Operator { is_exact: false, .. }) => return None,
            CallKind::Reduce(plan) | CallKind::AllReduce(plan) => plan,
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
