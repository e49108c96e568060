//! One receiver, as the coordinator knows it.

use std::{net::IpAddr, time::Duration};

use super::settings::{HostPlan, HostReport, HostState};
use crate::ranges::Ranges;

/// How far a host is; where it may take so long, until when in the push's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// It has not called, or was called and has not answered.
    Awaited(Duration),
    /// It was lost; from then on it is expected again.
    Resting(Duration),
    /// It prepares its target.
    Preparing(Duration),
    /// What it has of an earlier session is compared with the source.
    Checking,
    /// It can start a fabric.
    Prepared,
    /// It starts the fabric, and makes room for what it lacks.
    Starting(Duration),
    /// It can take part in groups, or waits to be told the digest.
    Ready,
    /// It compares its copy with the digest.
    Comparing(Duration),
    /// Its copy is not what the root has read.
    Differs,
    /// Its copy is right.
    Verified,
    Publishing(Duration),
    Published,
    Failed(String),
    /// It was told to publish its copy, and it is not known whether it has.
    Unknown(String),
}

pub struct Host {
    pub plan: HostPlan,
    pub step: Step,
    /// Where other members reach it: the address that it was seen at, and its context's port.
    pub ip: Option<IpAddr>,
    pub port: u16,
    /// The fabrics that it could use.
    pub fabrics: Vec<String>,
    /// Where it has seen the root.
    pub own_ip: Option<IpAddr>,
    /// What of the file it has, as far as it is known for certain.
    pub has: Ranges,
    /// How much it said it has: for showing.
    pub bytes: u64,
    /// How much it has read and written besides receiving, and when it has got on for the last time.
    pub worked: u64,
    pub progressed_at: Duration,
    /// How often it was blamed for a failed group although it is alive.
    pub strikes: u32,
    /// The last round for which it was.
    pub struck_round: u32,
    /// How often it may come back, and how often it was lost.
    pub retries: u32,
    pub start: u32,
    /// Why it was lost the last time.
    pub lost_by: String,
    /// It was set aside when its group was so slow, in bytes per second.
    pub set_aside: Option<u64>,
    /// How often it could have been the one that holds the others up.
    pub doubts: u32,
    /// Its share in what held its last group up.
    pub waiting_share: Option<f64>,
    pub replication: Option<Duration>,
    /// It was told to publish its copy, and has not said that it could not.
    pub may_have_published: bool,
    /// What it had of an earlier session.
    pub resumed_bytes: u64,
    /// It had the whole copy, under its name.
    pub was_there: bool,
    /// What was sent to it although it had it.
    pub repeated_bytes: u64,
    pub peak_resident_bytes: Option<u64>,
}

impl Host {
    pub fn new(plan: HostPlan, retries: u32, until: Duration) -> Self {
        Self {
            plan,
            step: Step::Awaited(until),
            ip: None,
            port: 0,
            fabrics: Vec::new(),
            own_ip: None,
            has: Ranges::default(),
            bytes: 0,
            worked: 0,
            progressed_at: Duration::ZERO,
            strikes: 0,
            struck_round: 0,
            retries,
            start: 0,
            lost_by: String::new(),
            set_aside: None,
            doubts: 0,
            waiting_share: None,
            replication: None,
            may_have_published: false,
            resumed_bytes: 0,
            was_there: false,
            repeated_bytes: 0,
            peak_resident_bytes: None,
        }
    }

    /// It was blamed for a group of this round: one lost connection may fail several groups.
    pub(super) fn strike(&mut self, round: u32) {
        if self.struck_round != round {
            self.struck_round = round;
            self.strikes += 1;
        }
    }

    /// For those who watch.
    pub fn state(&self) -> HostState {
        match &self.step {
            Step::Awaited(_) | Step::Resting(_) => HostState::Awaited,
            Step::Preparing(_) | Step::Checking | Step::Prepared | Step::Starting(_) => {
                HostState::Preparing
            }
            Step::Ready if self.replication.is_none() => HostState::Ready,
            Step::Ready
            | Step::Comparing(_)
            | Step::Differs
            | Step::Verified
            | Step::Publishing(_) => HostState::Received,
            Step::Published => HostState::Published,
            Step::Failed(reason) => HostState::Failed(reason.clone()),
            Step::Unknown(reason) => HostState::Unknown(reason.clone()),
        }
    }

    /// It has neither a copy nor failed.
    pub fn is_open(&self) -> bool {
        !matches!(self.step, Step::Published | Step::Failed(_) | Step::Unknown(_))
    }

    /// How it ends if nothing more is heard of it.
    pub(super) fn given_up(&self, reason: &str) -> Step {
        match self.may_have_published {
            true => Step::Unknown(format!("{reason}; it may have published its copy")),
            false => Step::Failed(reason.to_owned()),
        }
    }

    /// It is in, or on its way to, a state in which it can be in groups.
    pub fn is_coming(&self) -> bool {
        let coming = matches!(self.step, Step::Preparing(_) | Step::Checking | Step::Prepared);
        coming || matches!(self.step, Step::Awaited(_) | Step::Resting(_) | Step::Starting(_))
    }

    /// It can be in groups, as far as it has not published yet.
    pub fn is_ready(&self) -> bool {
        matches!(self.step, Step::Ready | Step::Comparing(_) | Step::Verified)
    }

    /// Until when it may take to get on.
    pub fn deadline(&self) -> Option<Duration> {
        match self.step {
            Step::Awaited(until)
            | Step::Resting(until)
            | Step::Preparing(until)
            | Step::Starting(until)
            | Step::Comparing(until)
            | Step::Publishing(until) => Some(until),
            _ => None,
        }
    }

    /// What it has not done in time.
    pub fn lateness(&self, start_timeout: Duration) -> String {
        match self.step {
            Step::Preparing(_) => "did not prepare its target in time".into(),
            Step::Starting(_) => "did not make room or start its fabric in time".into(),
            Step::Comparing(_) => "did not verify its copy in time".into(),
            Step::Publishing(_) => "did not say in time that its copy is published".into(),
            _ => format!("did not call back within {} s", start_timeout.as_secs_f64()),
        }
    }

    pub fn report(&self) -> HostReport {
        HostReport {
            name: self.plan.name.clone(),
            state: if self.is_open() {
                HostState::Failed("not reached".into())
            } else {
                self.state()
            },
            replication: self.replication,
            resumed_bytes: self.resumed_bytes,
            was_there: self.was_there,
            repeated_bytes: self.repeated_bytes,
            set_aside: self.set_aside,
            waiting_share: self.waiting_share,
            peak_resident_bytes: self.peak_resident_bytes,
        }
    }
}
