//! What one run of a case measured.

use lab::{LongLinkCounts, UplinkBytes};

use crate::{load::Copies, member::Done, member_processes::Measured, outcome::Outcome};

/// The part of a full packet on a link that is payload.
const PAYLOAD_PART: f64 = 1448.0 / 1514.0;

/// One run; what a case does not measure is NaN or empty.
#[derive(Clone, Debug)]
pub struct Run {
    /// From the first send to the end of the last receiver's last message.
    pub seconds: f64,
    /// Between the first and the last receiver's end.
    pub skew_seconds: f64,
    /// Processor time of all members, user and system.
    pub cpu_seconds: f64,
    /// TCP segments that all hosts have sent again; only of members that have a host each.
    pub sent_again: f64,
    /// The time of each message that was sent alone after the others.
    pub singles: Vec<f64>,
    /// The time of each of several groups.
    pub groups: Vec<f64>,
    /// What each other connection carried meanwhile.
    pub flow_mbit: Vec<f64>,
    /// What crossed each rack's uplink, in copies of the message.
    pub uplinks: Vec<Copies>,
    /// Copies of the message that crossed the long link, in the direction that more crossed.
    pub crossed: f64,
    /// The part of packets that the long link lost.
    pub lost: f64,
    /// The part of packets that found its queue full.
    pub dropped: f64,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            seconds: f64::NAN,
            skew_seconds: f64::NAN,
            cpu_seconds: f64::NAN,
            sent_again: f64::NAN,
            singles: Vec::new(),
            groups: Vec::new(),
            flow_mbit: Vec::new(),
            uplinks: Vec::new(),
            crossed: f64::NAN,
            lost: f64::NAN,
            dropped: f64::NAN,
        }
    }
}

impl Run {
    /// Of messages in one group.
    pub fn of_members(all: &[Done]) -> Outcome<Self> {
        let Measured { seconds, skew_seconds, cpu_seconds, sent_again } = Measured::of(all)?;
        let sent_again = sent_again as f64;
        Ok(Self { seconds, skew_seconds, cpu_seconds, sent_again, ..Self::default() })
    }

    /// Of several groups, by the time of each.
    pub fn of_groups(groups: Vec<f64>) -> Self {
        let seconds = groups.iter().copied().fold(0.0, f64::max);
        Self { seconds, groups, ..Self::default() }
    }

    /// Adds what crossed uplinks between two readings.
    pub fn add_uplinks(
        &mut self,
        before: &[UplinkBytes],
        after: &[UplinkBytes],
        message_bytes: u64,
    ) {
        let copies = |before: u64, after: u64| {
            after.saturating_sub(before) as f64 * PAYLOAD_PART / message_bytes as f64
        };
        let crossed = before.iter().zip(after).map(|(before, after)| Copies {
            leaving: copies(before.leaving, after.leaving),
            entering: copies(before.entering, after.entering),
        });
        self.uplinks = crossed.collect();
    }

    /// Adds what the long link did between two readings.
    pub fn add_long_link(
        &mut self,
        before: &[LongLinkCounts; 2],
        after: &[LongLinkCounts; 2],
        message_bytes: u64,
    ) {
        let grown = |what: fn(&LongLinkCounts) -> u64| {
            [0, 1].map(|direction| (what(&after[direction]) - what(&before[direction])) as f64)
        };
        let sum = |what| grown(what).iter().sum::<f64>();
        let [there, back] = grown(|counts| counts.carried_bytes);
        let (lost, dropped) = (sum(|counts| counts.lost), sum(|counts| counts.dropped));
        let offered = lost + dropped + sum(|counts| counts.carried);
        self.crossed = there.max(back) * PAYLOAD_PART / message_bytes as f64;
        (self.lost, self.dropped) = (lost / offered, dropped / offered);
    }
}
