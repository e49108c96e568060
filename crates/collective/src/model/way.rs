//! What an operation costs by a way.

use super::{
    allreduce_us, bounds::Bounds, broadcast_us, chain_allreduce_us, circulant_us, exchange_us,
    line_reduce_us, parameters::Parameters, reduce_us, ring_allreduce_us,
};
use crate::{Call, Kind, Settings, Way};

/// Returns the time of a call by a way, with the lengths of slots and blocks of these settings, whatever way
/// [`Settings::way`] chooses. A barrier is an allreduce of nothing, and a reduction ends at rank 0.
///
/// `None` where there is no model: for all-gathers, and for ways that the kind of operation never goes.
///
/// # Panics
/// There are 0 members.
pub fn way_us(
    way: Way,
    call: &Call,
    settings: &Settings,
    parameters: &Parameters,
) -> Option<Bounds> {
    let (members, bytes) = (settings.members, call.bytes);
    let (slot, block) = (settings.slot_room_bytes().into(), settings.block_bytes(call));
    let kind = if call.kind.is_barrier() { Kind::AllReduce } else { call.kind };
    Some(match (kind, way) {
        (Kind::Broadcast, Way::Trees { degree: None }) => {
            Bounds::exactly(broadcast_us(members, bytes, slot, parameters))
        }
        (Kind::Broadcast, Way::Circulant) => circulant_us(members, bytes, block, parameters),
        (Kind::Reduce, Way::Trees { degree: Some(degree) }) => {
            reduce_us(members, degree, bytes, parameters)
        }
        (Kind::Reduce, Way::Ring | Way::Chain) => line_reduce_us(members, bytes, block, parameters),
        (Kind::AllReduce, Way::Trees { degree: Some(degree) }) => {
            allreduce_us(members, degree, bytes, slot, parameters)
        }
        (Kind::AllReduce, Way::Exchange(partners)) => {
            Bounds::exactly(exchange_us(partners, bytes, slot, parameters))
        }
        (Kind::AllReduce, Way::Ring) => ring_allreduce_us(members, bytes, block, parameters),
        (Kind::AllReduce, Way::Chain) => chain_allreduce_us(members, bytes, block, parameters),
        _ => return None,
    })
}
