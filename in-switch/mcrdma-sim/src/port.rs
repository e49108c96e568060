//! Ports: a queue, and the link that it feeds.

use std::collections::VecDeque;

use mcrdma::plan::Node;

use crate::{Ecn, LinkConfig, PS_PER_NS, PS_PER_S, Pfc, packet::PAUSE_BYTES};

const REFERENCE_BITS_PER_S: f64 = 1e11;

/// What a link has carried in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounts {
    /// Packets, lost ones included.
    pub packets: u64,
    /// Their bytes, with all headers, preamble and gap.
    pub bytes: u64,
    /// Their payload.
    pub payload_bytes: u64,
    /// Packets that were lost on it.
    pub lost: u64,
    /// How often its sender was paused.
    pub pauses: u64,
}

/// The sending end of one direction of a link, and the PFC state of its far end.
#[derive(Clone, Debug)]
pub struct Port {
    pub from: Node,
    pub to: Node,
    link: LinkConfig,
    pub queue: VecDeque<u32>,
    pub queue_bytes: u64,
    /// Its transmission ends then.
    pub free_ps: u64,
    /// An `Event::Free` is pending.
    pub is_scheduled: bool,
    /// It has received a pause.
    pub is_paused: bool,
    /// Bytes of its packets in the far end's buffer.
    pub held_bytes: u64,
    /// The far end has sent a pause, which may not have arrived.
    pub is_stopped: bool,
    /// Probability that a request is lost on the link.
    pub loss: f64,
    pub counts: PortCounts,
}

impl Port {
    pub const fn new(from: Node, to: Node, link: LinkConfig) -> Self {
        Self {
            from,
            to,
            link,
            queue: VecDeque::new(),
            queue_bytes: 0,
            free_ps: 0,
            is_scheduled: false,
            is_paused: false,
            held_bytes: 0,
            is_stopped: false,
            loss: 0.0,
            counts: PortCounts { packets: 0, bytes: 0, payload_bytes: 0, lost: 0, pauses: 0 },
        }
    }

    /// Serialization time.
    pub const fn wire_ps(&self, bytes: u64) -> u64 {
        bytes * 8 * PS_PER_S / self.link.bits_per_s
    }

    pub const fn delay_ps(&self) -> u64 {
        self.link.delay_ns * PS_PER_NS
    }

    /// Latency of a pause frame from the far end.
    pub const fn pause_ps(&self) -> u64 {
        self.delay_ps() + self.wire_ps(PAUSE_BYTES)
    }

    /// Scales a length for 100 Gbit/s to this link's rate.
    fn scaled(&self, bytes: u64) -> f64 {
        bytes as f64 * self.link.bits_per_s as f64 / REFERENCE_BITS_PER_S
    }

    /// ECN marking probability of a packet that is enqueued.
    pub fn mark_probability(&self, ecn: &Ecn) -> f64 {
        let (min, max) = (self.scaled(ecn.min_bytes), self.scaled(ecn.max_bytes));
        let bytes = self.queue_bytes as f64;
        if bytes <= min {
            0.0
        } else if bytes <= max {
            ecn.probability * (bytes - min) / (max - min)
        } else {
            1.0
        }
    }

    /// Whether the far end has to send a pause (true) or a resume now; `None`: neither.
    pub fn stop(&self, pfc: &Pfc) -> Option<bool> {
        let held = self.held_bytes as f64;
        match self.is_stopped {
            false if held > self.scaled(pfc.pause_bytes) => Some(true),
            true if held <= self.scaled(pfc.resume_bytes) => Some(false),
            _ => None,
        }
    }
}
