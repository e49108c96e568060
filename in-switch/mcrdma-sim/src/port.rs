//! Ports: a queue, and the link that it feeds.

use std::collections::VecDeque;

use mcrdma::plan::Node;

use crate::{Ecn, LinkConfig, PS_PER_NS, PS_PER_S, Pfc, packet::PAUSE_BYTES};

const REFERENCE_BITS_PER_S: f64 = 1e11;

/// What a link has carried in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounts {
    /// Packets, those that were lost included.
    pub packets: u64,
    /// Their bytes, with all headers, preamble and gap.
    pub bytes: u64,
    /// Their payload.
    pub payload_bytes: u64,
    /// Packets that were lost on it.
    pub lost: u64,
    /// How often its sender was stopped.
    pub pauses: u64,
}

/// The sending end of one direction of a link, and what is known of its far end.
#[derive(Clone, Debug)]
pub struct Port {
    pub from: Node,
    pub to: Node,
    link: LinkConfig,
    pub queue: VecDeque<u32>,
    pub queue_bytes: u64,
    /// The packet that it sends has left by then.
    pub free_ps: u64,
    /// It will look at its queue when it is free.
    pub is_scheduled: bool,
    /// The far end has stopped it.
    pub is_paused: bool,
    /// What the far end holds of its packets.
    pub held_bytes: u64,
    /// The far end has stopped it, which it may not have heard yet.
    pub is_stopped: bool,
    /// How probable it is that a request is lost on the link.
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

    /// How long so many bytes take to get onto the link.
    pub const fn wire_ps(&self, bytes: u64) -> u64 {
        bytes * 8 * PS_PER_S / self.link.bits_per_s
    }

    pub const fn delay_ps(&self) -> u64 {
        self.link.delay_ns * PS_PER_NS
    }

    /// How long a pause travels back from the far end.
    pub const fn pause_ps(&self) -> u64 {
        self.delay_ps() + self.wire_ps(PAUSE_BYTES)
    }

    /// Lengths that are said for 100 Gbit/s, at this link's rate.
    fn scaled(&self, bytes: u64) -> f64 {
        bytes as f64 * self.link.bits_per_s as f64 / REFERENCE_BITS_PER_S
    }

    /// How probable it is that a packet that comes to this queue is marked.
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

    /// Whether the far end has to stop this port now, or let it go on; `None`: neither.
    pub fn stop(&self, pfc: &Pfc) -> Option<bool> {
        let held = self.held_bytes as f64;
        match self.is_stopped {
            false if held > self.scaled(pfc.pause_bytes) => Some(true),
            true if held <= self.scaled(pfc.resume_bytes) => Some(false),
            _ => None,
        }
    }
}
