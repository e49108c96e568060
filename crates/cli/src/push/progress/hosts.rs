//! The state of a push's hosts, from its events.

use std::{cmp::Reverse, time::Duration};

use files::{HostState, PushEvent};

/// The phase of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Starting,
    Replicating,
    Publishing,
    Ending,
}

impl Phase {
    /// The name in lines of progress.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Replicating => "replicating",
            Self::Publishing => "writing to disk",
            Self::Ending => "ending",
        }
    }
}

/// The stage of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Waiting,
    Preparing,
    Receiving,
    /// The host is lost, and is expected to return.
    Lost,
    /// The host gets its copy after the others.
    Deferred,
    Verifying,
    Failed,
    Done,
}

impl Stage {
    /// The name in lines of progress.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Preparing => "preparing",
            Self::Receiving => "receiving",
            Self::Lost => "lost",
            Self::Deferred => "deferred",
            Self::Verifying => "verifying",
            Self::Failed => "failed",
            Self::Done => "done",
        }
    }

    /// Whether the others wait for a host at this stage.
    const fn is_awaited(self) -> bool {
        matches!(self, Self::Waiting | Self::Preparing | Self::Receiving | Self::Lost)
    }
}

/// One host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    pub name: String,
    pub stage: Stage,
    /// Bytes of the file that the host has.
    pub received: u64,
    /// Why the host is lost or has failed; otherwise empty.
    pub reason: String,
    /// Bytes received since the last call of [`Hosts::take_rate`]; `None` before the first report, whose bytes may be from an
    /// earlier push.
    recent: Option<u64>,
}

/// All hosts of a push, by their index.
pub struct Hosts {
    hosts: Vec<Host>,
    /// Length of the file.
    bytes: u64,
    phase: Phase,
}

/// A few figures for all hosts.
#[derive(PartialEq, Eq, Debug)]
pub struct Overview<'a> {
    /// Bytes that every host has, without failed and deferred ones.
    pub received: u64,
    pub done: usize,
    pub failed: usize,
    /// The awaited host with the fewest bytes.
    pub slowest: Option<&'a Host>,
}

impl Hosts {
    /// Hosts of these names, for a file of this length.
    pub fn new(names: &[String], bytes: u64) -> Self {
        let mut hosts = Self { hosts: Vec::new(), bytes, phase: Phase::Starting };
        names.iter().for_each(|name| hosts.add(name));
        hosts
    }

    fn add(&mut self, name: &str) {
        let (name, reason) = (name.to_owned(), String::new());
        self.hosts.push(Host { name, stage: Stage::Waiting, received: 0, reason, recent: None });
    }

    pub fn all(&self) -> &[Host] {
        &self.hosts
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The phase; replicating until the last host has everything, even while others already write to disk.
    pub fn phase(&self) -> Phase {
        let lacks = |host: &Host| host.stage.is_awaited() || host.stage == Stage::Deferred;
        match self.phase {
            Phase::Publishing if self.hosts.iter().any(lacks) => Phase::Replicating,
            phase => phase,
        }
    }

    /// Processes an event.
    pub fn note(&mut self, event: &PushEvent) {
        match event {
            PushEvent::Host { host, state } => self.note_state(*host, state),
            PushEvent::Joined { name, .. } => self.add(name),
            PushEvent::Round { .. } => self.phase = Phase::Replicating,
            PushEvent::Progress { host, bytes } => {
                if let Some(host) = self.hosts.get_mut(*host) {
                    host.has(*bytes);
                }
            }
            PushEvent::Retry { host, start, reason } => {
                if let Some(host) = self.hosts.get_mut(*host) {
                    (host.stage, host.received, host.recent) = (Stage::Lost, 0, None);
                    host.reason = format!("lost ({reason}), start {}", start + 1);
                }
            }
            PushEvent::Deferred { host, .. } => {
                if let Some(host) = self.hosts.get_mut(*host) {
                    host.stage = Stage::Deferred;
                    "delays the others: deferred until they are done".clone_into(&mut host.reason);
                }
            }
            // Part of the summary.
            PushEvent::FellBack { .. } | PushEvent::Altered { .. } => {}
            // Of sessions whose hosts fetch.
            PushEvent::Left { .. } => {}
            PushEvent::Publishing => self.phase = Phase::Publishing,
            PushEvent::Stopping { .. } => self.phase = Phase::Ending,
        }
    }

    fn note_state(&mut self, index: usize, state: &HostState) {
        let bytes = self.bytes;
        let Some(host) = self.hosts.get_mut(index) else { return };
        host.reason.clear();
        host.stage = match state {
            HostState::Awaited => Stage::Waiting,
            HostState::Preparing => Stage::Preparing,
            HostState::Ready => Stage::Receiving,
            HostState::Received => Stage::Verifying,
            HostState::Published | HostState::Examined | HostState::Shares(_) => Stage::Done,
            HostState::Failed(reason) | HostState::Unknown(reason) => {
                host.reason.clone_from(reason);
                Stage::Failed
            }
        };
        if matches!(host.stage, Stage::Verifying | Stage::Done) {
            host.has(bytes);
        }
    }

    pub fn overview(&self) -> Overview<'_> {
        let count = |stage| self.hosts.iter().filter(|host| host.stage == stage).count();
        let counted = |host: &&Host| !matches!(host.stage, Stage::Failed | Stage::Deferred);
        let awaited = self.hosts.iter().filter(|host| host.stage.is_awaited());
        Overview {
            received: self
                .hosts
                .iter()
                .filter(counted)
                .map(|host| host.received)
                .min()
                .unwrap_or(0),
            done: count(Stage::Done),
            failed: count(Stage::Failed),
            slowest: awaited.min_by_key(|host| host.received),
        }
    }

    /// The mean rate, in bits per second, of the hosts that have received anything since the last call, `elapsed`
    /// ago.
    pub fn take_rate(&mut self, elapsed: Duration) -> u64 {
        let moved =
            self.hosts.iter_mut().filter_map(|host| host.recent.replace(0).filter(|&n| n > 0));
        let (count, sum) = moved.fold((0_u64, 0_u64), |(count, sum), n| (count + 1, sum + n));
        let seconds = elapsed.as_secs_f64();
        if count == 0 || seconds == 0.0 {
            return 0;
        }
        (sum as f64 * 8.0 / count as f64 / seconds) as u64
    }

    /// The indices of at most this many hosts: all, in order, if they are not more; else those that the others wait for,
    /// the slowest first.
    pub fn most_relevant(&self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.hosts.len()).collect();
        if all.len() > count {
            all.sort_by_key(|&index| {
                let Host { stage, received, .. } = &self.hosts[index];
                (Reverse(stage.is_awaited()), *stage == Stage::Done, *received)
            });
            all.truncate(count);
        }
        all
    }
}

impl Host {
    fn has(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.received);
        self.recent = Some(self.recent.map_or(0, |recent| recent + more));
        self.received = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: usize) -> Hosts {
        let names: Vec<String> = (0..count).map(|index| format!("h{index}")).collect();
        Hosts::new(&names, 1000)
    }

    fn ready(host: usize) -> PushEvent {
        PushEvent::Host { host, state: HostState::Ready }
    }

    fn progress(host: usize, bytes: u64) -> PushEvent {
        PushEvent::Progress { host, bytes }
    }

    #[test]
    fn the_slowest_awaited_host_is_named() {
        let mut hosts = hosts(4);
        (0..4).for_each(|host| hosts.note(&ready(host)));
        for (host, bytes) in [(0, 500), (1, 300), (2, 100), (3, 50)] {
            hosts.note(&progress(host, bytes));
        }
        let slowest = |hosts: &Hosts| hosts.overview().slowest.map(|host| host.name.clone());
        assert_eq!((slowest(&hosts).as_deref(), hosts.overview().received), (Some("h3"), 50));
        hosts.note(&PushEvent::Host { host: 3, state: HostState::Failed("it died".into()) });
        hosts.note(&PushEvent::Deferred { host: 2, bytes_per_second: 1 });
        assert_eq!((slowest(&hosts).as_deref(), hosts.overview().received), (Some("h1"), 300));
        for host in [0, 1] {
            hosts.note(&PushEvent::Host { host, state: HostState::Published });
        }
        let Overview { received, done, failed, slowest } = hosts.overview();
        assert_eq!((received, done, failed, slowest), (1000, 2, 1, None));
    }

    #[test]
    fn it_replicates_until_a_host_that_was_deferred_has_its_copy() {
        let mut hosts = hosts(2);
        (0..2).for_each(|host| hosts.note(&ready(host)));
        hosts.note(&PushEvent::Round { members: 3 });
        hosts.note(&PushEvent::Deferred { host: 1, bytes_per_second: 1 });
        hosts.note(&PushEvent::Host { host: 0, state: HostState::Received });
        hosts.note(&PushEvent::Publishing);
        hosts.note(&PushEvent::Host { host: 0, state: HostState::Published });
        assert_eq!(hosts.phase(), Phase::Replicating);
        hosts.note(&PushEvent::Host { host: 1, state: HostState::Received });
        assert_eq!(hosts.phase(), Phase::Publishing);
    }

    #[test]
    fn rates_are_those_of_hosts_that_received() {
        let mut hosts = hosts(3);
        // The first bytes are from an earlier push.
        hosts.note(&progress(0, 400));
        hosts.note(&progress(1, 100));
        hosts.note(&progress(0, 500));
        hosts.note(&progress(1, 400));
        assert_eq!(hosts.take_rate(Duration::from_secs(2)), 800);
        assert_eq!(hosts.take_rate(Duration::from_secs(2)), 0);
        let lost = PushEvent::Retry { host: 1, start: 1, reason: "it died".into() };
        hosts.note(&lost);
        hosts.note(&progress(1, 300));
        assert_eq!(hosts.take_rate(Duration::from_secs(1)), 0);
        hosts.note(&progress(1, 301));
        assert_eq!(hosts.take_rate(Duration::from_secs(1)), 8);
    }

    #[test]
    fn the_most_relevant_hosts_are_those_that_others_wait_for() {
        let mut hosts = hosts(5);
        (0..5).for_each(|host| hosts.note(&ready(host)));
        for (host, bytes) in [(1, 300), (2, 100), (4, 200)] {
            hosts.note(&progress(host, bytes));
        }
        hosts.note(&PushEvent::Host { host: 0, state: HostState::Published });
        hosts.note(&PushEvent::Host { host: 3, state: HostState::Failed("it died".into()) });
        assert_eq!(hosts.most_relevant(5), [0, 1, 2, 3, 4]);
        assert_eq!(hosts.most_relevant(4), [2, 4, 1, 3]);
        hosts.note(&PushEvent::Joined { host: 5, name: "late".into() });
        assert_eq!(hosts.most_relevant(1), [5]);
    }
}
