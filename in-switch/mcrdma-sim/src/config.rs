//! Parameters of a simulated network.

use roce::rc::{RateConfig, RequesterConfig};

use crate::Dcqcn;

/// A link, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Its rate.
    pub bits_per_s: u64,
    /// Propagation delay.
    pub delay_ns: u64,
}

/// When switches mark packets: with a probability that rises from 0 to `probability` while the
/// output queue, at the packet's arrival or departure, rises from `min_bytes` to `max_bytes`; always beyond (DCQCN,
/// section 5.1).
///
/// For a link of 100 Gbit/s; the lengths of others are in proportion to their rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ecn {
    /// Kmin.
    pub min_bytes: u64,
    /// Kmax.
    pub max_bytes: u64,
    /// Pmax.
    pub probability: f64,
    /// A packet is marked when it leaves the queue, with what is behind it, as in HPCC's public model
    /// (`SwitchNode::SwitchNotifyDequeue`). Otherwise when it comes: then a queue that shrinks still sends
    /// marks for as long as it takes to send it.
    pub marks_leaving: bool,
}

/// Thresholds of PFC (IEEE 802.1Qbb), by the buffered bytes of each ingress port. A packet counts once,
/// however many copies of it are queued (the paper's section IV-D).
///
/// For a link of 100 Gbit/s; others in proportion to their rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pfc {
    /// XOFF threshold.
    pub pause_bytes: u64,
    /// XON threshold.
    pub resume_bytes: u64,
}

/// Processor time of a host. It has one thread that posts and one that polls for completions, as in
/// the paper's section VII-A.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Of each request that is posted.
    pub post_ns: u64,
    /// Of each completion, of a request or of a message that came.
    pub completion_ns: u64,
}

/// A simulated network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// Between hosts and switches.
    pub host_link: LinkConfig,
    /// Between switches.
    pub switch_link: LinkConfig,
    /// `None`: no packet is marked.
    pub ecn: Option<Ecn>,
    /// `None`: no pauses; packets are dropped when the buffer is full.
    pub pfc: Option<Pfc>,
    /// A switch's memory, which its ports share.
    pub buffer_bytes: u64,
    /// Processor time.
    pub costs: Costs,
    /// Of all sending queue pairs.
    pub requester: RequesterConfig,
    /// A variant of DCQCN in place of the requester's, and of the receivers' notifications.
    pub dcqcn: Option<Dcqcn>,
    /// All CNPs are forwarded to groups' senders, as in the paper.
    pub all_notifications: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

const HOST_BITS_PER_S: u64 = 100_000_000_000;

impl Default for Config {
    /// The paper's testbed (section VII-A, VII-C): hosts with 100 Gbit/s, four such links from each
    /// switch to the one above as one of 400 Gbit/s; marks as in section VII-C. Delays are those of
    /// its simulations, 500 ns (section VII-E). The paper does not give the rest: PFC at 512 KiB, 32
    /// MiB of memory, 200 ns for a post and as much for a completion, and timeouts of 1 ms, since
    /// 67 ms would be all that is seen of a loss.
    fn default() -> Self {
        Self {
            host_link: LinkConfig { bits_per_s: HOST_BITS_PER_S, delay_ns: 500 },
            switch_link: LinkConfig { bits_per_s: 4 * HOST_BITS_PER_S, delay_ns: 500 },
            ecn: Some(Ecn {
                min_bytes: 50_000,
                max_bytes: 500_000,
                probability: 0.01,
                marks_leaving: false,
            }),
            pfc: Some(Pfc { pause_bytes: 512 << 10, resume_bytes: 480 << 10 }),
            buffer_bytes: 32 << 20,
            costs: Costs { post_ns: 200, completion_ns: 200 },
            requester: RequesterConfig {
                // DCQCN limits rates; a window would hide it.
                window_packets: 8192,
                timeout_ns: 1_048_576,
                // Losses are experiments here, not failures.
                retries: 1000,
                rate: Some(RateConfig::of_link(HOST_BITS_PER_S as f64)),
                ..RequesterConfig::default()
            },
            dcqcn: None,
            all_notifications: false,
            seed: 1,
        }
    }
}
