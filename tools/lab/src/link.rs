//! Links, and the queueing disciplines that make them.

use serde::{Deserialize, Serialize};

use crate::Rate;

/// The default longest packet on a link.
const MTU_BYTES: u32 = 1500;
/// Ethernet header.
const FRAME_BYTES: u64 = 14;
/// IP, TCP and time stamps take this much of each packet.
const HEADER_BYTES: u64 = 52;
/// What TCP hands to the network device for segmentation: 64 KiB, and a header for each of the 45 packets of 1500 bytes
/// that come out, which token buckets count.
const GSO_BYTES: u64 = 72 * 1024;
/// How long a packet may wait in a port before it is dropped, unless said otherwise.
const QUEUE_MS: u64 = 50;

/// What a link is like, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Rate of TCP payload.
    pub rate: Rate,
    /// What passes unshaped after a pause; `None` is 2 ms of the rate, and at least one packet as
    /// TCP hands them over: with less the kernel cuts packets up in software.
    pub burst_bytes: Option<u64>,
    /// The longest packet, without its Ethernet header; the same on all links of a network.
    #[serde(default = "usual_mtu")]
    pub mtu_bytes: u32,
    /// How long a packet may wait in a port, in ms: what comes while as much is queued is dropped.
    #[serde(default = "usual_queue")]
    pub queue_ms: u64,
}

const fn usual_mtu() -> u32 {
    MTU_BYTES
}

const fn usual_queue() -> u64 {
    QUEUE_MS
}

impl Link {
    /// The shortest burst: a few packets.
    pub const BURST_BYTES_MIN: u64 = 6_000;
    /// MTUs that links can have.
    pub(crate) const MTUS: std::ops::RangeInclusive<u32> = 576..=9_000;
    /// Queues that links can have, in ms.
    pub const QUEUES_MS: std::ops::RangeInclusive<u64> = 1..=10_000;

    /// A link of this rate, with the usual burst.
    pub fn of_rate(rate: Rate) -> Self {
        Self { rate, burst_bytes: None, mtu_bytes: MTU_BYTES, queue_ms: QUEUE_MS }
    }

    /// The same with a burst of 18 kB. A burst hides store-and-forward: each link lets that much
    /// through at once. One flow still fills such a link, since its packets are limited to 16 kB.
    pub fn with_small_burst(self) -> Self {
        Self { burst_bytes: Some(18_000), ..self }
    }

    /// The same with another longest packet.
    pub fn with_mtu(self, mtu_bytes: u32) -> Self {
        Self { mtu_bytes, ..self }
    }

    /// The same with another queue.
    pub fn with_queue(self, queue_ms: u64) -> Self {
        Self { queue_ms, ..self }
    }

    /// The same with another rate.
    pub fn at_rate(self, rate: Rate) -> Self {
        Self { rate, ..self }
    }

    /// What passes unshaped after a pause.
    pub fn burst_bytes(self) -> u64 {
        let usual = || (self.rate.bits_per_s() / 8 * 2 / 1_000).max(GSO_BYTES);
        self.burst_bytes.unwrap_or_else(usual)
    }

    /// The longest packet that TCP may hand to the device, where the burst could not hold any.
    pub(crate) fn gso_bytes(self) -> Option<u64> {
        let burst = self.burst_bytes();
        (burst < GSO_BYTES).then(|| burst - 2_000)
    }

    /// What a token bucket is set to: it counts Ethernet headers, but not the link's rate, which is
    /// that of TCP payload.
    pub(crate) fn shaper_bits(self) -> u64 {
        let mtu = u64::from(self.mtu_bytes);
        self.rate.bits_per_s() * (mtu + FRAME_BYTES) / (mtu - HEADER_BYTES)
    }

    /// The command of `tc` that makes it the rate of a device.
    pub(crate) fn shape(self, device: &str) -> String {
        let (rate, burst) = (self.shaper_bits(), self.burst_bytes());
        let limit = rate / 8 * self.queue_ms / 1_000 + burst;
        format!(
            "qdisc add dev {device} root handle 1: tbf rate {rate}bit burst {burst} limit {limit}"
        )
    }

    /// The commands of `tc` that slow down what goes to some addresses, beneath [`Link::shape`].
    ///
    /// Everything else goes through a class that has no limit of its own, and shares the device
    /// with the slow classes, alternating.
    pub(crate) fn slow_down(device: &str, slow: &[(std::net::Ipv4Addr, Link)]) -> Vec<String> {
        if slow.is_empty() {
            return Vec::new();
        }
        let class = |number: usize, rate: u64, burst: u64| {
            format!(
                "class add dev {device} parent 2: classid 2:{number:x} htb rate {rate}bit ceil {rate}bit \
                 burst {burst} cburst {burst} quantum {GSO_BYTES}"
            )
        };
        let unlimited = Self::of_rate(Rate::MAX);
        let mut lines = vec![
            format!("qdisc add dev {device} parent 1:1 handle 2: htb default 1"),
            class(1, unlimited.shaper_bits(), unlimited.burst_bytes()),
        ];
        for (number, (address, link)) in (2..).zip(slow) {
            lines.push(class(number, link.shaper_bits(), link.burst_bytes()));
            lines.push(format!(
                "filter add dev {device} parent 2: protocol ip prio 1 u32 match ip dst {address}/32 \
                 flowid 2:{number:x}"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(mbit: u64) -> Link {
        Link::of_rate(Rate::from_mbit(mbit))
    }

    #[test]
    fn a_link_carries_its_rate_of_payload_and_a_whole_packet() {
        assert_eq!(link(1_000).shaper_bits(), 1_045_580_110);
        assert_eq!(link(1_000).burst_bytes(), 250_000);
        assert_eq!(link(125).burst_bytes(), GSO_BYTES);
        assert_eq!(link(1_000).with_mtu(4_200).shaper_bits(), 1_015_911_282);
    }

    #[test]
    fn packets_fit_into_a_small_burst() {
        assert_eq!(link(1_000).gso_bytes(), None);
        assert_eq!(link(1_000).with_small_burst().gso_bytes(), Some(16_000));
        let smallest = Link { burst_bytes: Some(Link::BURST_BYTES_MIN), ..link(10) };
        assert!(smallest.gso_bytes().unwrap() > u64::from(2 * MTU_BYTES));
    }

    #[test]
    fn only_named_addresses_are_slowed_down() {
        assert!(Link::slow_down("eth0", &[]).is_empty());
        let lines = Link::slow_down("eth0", &[([10, 77, 0, 8].into(), link(125))]);
        assert_eq!(lines.len(), 4);
        assert!(lines[0].ends_with("htb default 1"));
        assert!(lines[3].contains("dst 10.77.0.8/32 flowid 2:2"));
    }
}
