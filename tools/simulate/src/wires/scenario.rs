//! The scenario of two ends as plain data: it can be printed, kept in files, and shrunk.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use transport_tcp::{MESSAGE_BYTES_MAX, RATE_MAX_LEAST, STREAMS_MAX, StreamKeys, TcpSettings};

use super::fault::PlannedWireFault;

/// The two ends of every connection.
pub(super) const ENDS: [usize; 2] = [0, 1];

/// A scenario determines a run: equal scenarios give equal runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WireScenario {
    /// Seed of all random choices during the run.
    pub seed: u64,
    /// The network between the ends.
    pub network: WireNetworkPlan,
    /// The two ends.
    pub ends: [WireEndPlan; 2],
    /// Connections between them.
    pub connections: Vec<ConnectionPlan>,
    /// Faults, by time.
    pub faults: Vec<PlannedWireFault>,
}

/// The network between two ends: each direction of each stream keeps its order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WireNetworkPlan {
    /// From a write until its bytes can be read.
    pub latency_ns: u64,
    /// The most that is added at random, for each part of a write.
    pub jitter_ns_max: u64,
    /// How many bytes a direction takes that were not read.
    pub capacity_bytes: usize,
    /// How often a write is accepted in part, and cut into parts that arrive one after another.
    pub cuts_percent: u64,
    /// How often a read or a write is interrupted.
    pub interrupts_percent: u64,
}

/// One end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WireEndPlan {
    /// See [`TcpSettings::segment_bytes`].
    pub segment_bytes: usize,
    /// See [`TcpSettings::silence_timeout`].
    pub silence_ms: u64,
    /// See [`TcpSettings::drain_timeout`].
    pub drain_ms: u64,
    /// See [`TcpSettings::idle_timeout`].
    pub idle_ms: u64,
    /// See [`TcpSettings::rate_max`].
    pub rate_max: Option<u64>,
    /// The most time from an event until its process polls.
    pub poll_delay_ns_max: u64,
    /// See [`TcpSettings::threads`]; 1 with a limit.
    #[serde(default = "one_thread")]
    pub threads: u8,
}

fn one_thread() -> u8 {
    1
}

/// How the streams of a connection are protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Protection {
    /// Not at all.
    None,
    /// By records.
    Encrypted,
}

/// A connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConnectionPlan {
    /// How many streams it has, from 1.
    pub streams: usize,
    /// How they are protected; a shared one always is.
    pub protection: Protection,
    /// Whether its channels share it. Otherwise it has one.
    pub is_shared: bool,
    /// When each end begins to use it.
    pub start_ns: [u64; 2],
    /// Its channels.
    pub channels: Vec<ChannelPlan>,
    /// Messages of a shared connection.
    pub messages: Vec<MessagePlan>,
}

/// A channel, or what goes over a connection that is not shared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChannelPlan {
    /// The end that asks for it. Only on a shared connection, as are all that follow.
    pub asked_by: usize,
    /// When it asks.
    pub at_ns: u64,
    /// How long the other takes to answer.
    pub answer_ns: u64,
    /// Whether it refuses.
    pub is_refused: bool,
    /// When each end closes it although it is not done.
    pub closes_ns: [Option<u64>; 2],
    /// Whether end 1 sends every block of end 0 back while it arrives, in place of its own blocks.
    pub is_echoed: bool,
    /// What each end sends.
    pub flows: [FlowPlan; 2],
}

/// What one end sends on a channel.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct FlowPlan {
    /// Lengths of its blocks.
    pub blocks: Vec<usize>,
    /// How many receives the other end has posted at most.
    pub window: usize,
    /// How many control words it writes besides those that the blocks need.
    pub words: u32,
    /// Whether its first empty block stands behind as many control words as fill a record.
    #[serde(default)]
    pub fills_record: bool,
    /// Its one-sided writes, one behind the other in the memory that the other end exposes.
    pub writes: Vec<WritePlan>,
}

/// A one-sided write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WritePlan {
    /// Its length.
    pub bytes: usize,
    /// Whether the other end is told of it. The last one is, in any case.
    pub is_reported: bool,
}

/// A message on a shared connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MessagePlan {
    /// The end that sends it.
    pub from: usize,
    /// When it is sent, in virtual time.
    pub at_ns: u64,
    /// Its length, from 9.
    pub bytes: usize,
}

impl FlowPlan {
    /// Returns how many writes are reported.
    pub(super) fn reported_writes(&self) -> usize {
        (0..self.writes.len()).filter(|&at| self.is_reported(at)).count()
    }

    pub(super) fn is_reported(&self, write: usize) -> bool {
        self.writes[write].is_reported || write + 1 == self.writes.len()
    }

    pub(super) fn exposed_bytes(&self) -> usize {
        self.writes.iter().map(|write| write.bytes).sum()
    }

    fn bytes(&self) -> u64 {
        let blocks: usize = self.blocks.iter().sum();
        // A control word more for each block.
        let filled = if self.fills_record { 64 << 10 } else { 0 };
        (blocks
            + filled
            + self.exposed_bytes()
            + 80 * (self.blocks.len() + self.words as usize + 2)) as u64
    }
}

impl ChannelPlan {
    /// Returns the lengths of the blocks that an end sends.
    pub(super) fn blocks(&self, from: usize) -> &[usize] {
        &self.flows[if self.is_echoed { 0 } else { from }].blocks
    }

    fn last_ns(&self) -> u64 {
        let closes = self.closes_ns.iter().flatten().copied().max().unwrap_or(0);
        closes.max(self.at_ns + self.answer_ns)
    }
}

impl ConnectionPlan {
    /// Returns the keys of a stream at one end.
    pub(super) fn keys(&self, connection: usize, stream: usize, end: usize) -> Option<StreamKeys> {
        let key = |from: usize| [(connection * 32 + stream * 2 + from + 1) as u8; 32];
        (self.protection != Protection::None).then(|| StreamKeys::new(key(end), key(1 - end)))
    }

    /// Returns when the last thing begins that it plans.
    fn last_ns(&self) -> u64 {
        let channels = self.channels.iter().map(ChannelPlan::last_ns);
        let messages = self.messages.iter().map(|message| message.at_ns);
        channels.chain(messages).chain(self.start_ns).max().unwrap_or(0)
    }
}

impl WireScenario {
    /// Returns the settings of an end.
    pub(super) fn settings(&self, end: usize) -> TcpSettings {
        let plan = &self.ends[end];
        TcpSettings::default()
            .segment_bytes(plan.segment_bytes)
            .silence_timeout(Duration::from_millis(plan.silence_ms))
            .drain_timeout(Duration::from_millis(plan.drain_ms))
            .idle_timeout(Duration::from_millis(plan.idle_ms))
            .rate_max(plan.rate_max)
            .direct_copies(false)
            .threads(Some(plan.threads))
    }

    /// Returns the most time from something that happens at one end until the other one has noticed it.
    fn hop_ns(&self) -> u64 {
        let delay = |end: &WireEndPlan| end.poll_delay_ns_max + end.telling_ns();
        let delay = self.ends.iter().map(delay).max().unwrap_or(0);
        self.network.latency_ns + self.network.jitter_ns_max + delay
    }

    /// Returns how long everything takes at most if nothing is disturbed, from when the last of it began: a full
    /// line at a time, every cut one after another, and limits.
    pub(super) fn moving_ns(&self) -> u64 {
        let connections = || self.connections.iter();
        let flows = connections()
            .flat_map(|it| &it.channels)
            .flat_map(|it| [&it.flows[0], &it.flows[if it.is_echoed { 0 } else { 1 }]]);
        let (mut bytes, mut items) = (0, 0);
        for flow in flows {
            let least = self.ends.iter().map(|end| end.segment_bytes).min().unwrap_or(1) as u64;
            // A header for each segment, which cut-through may make shorter.
            bytes += flow.bytes() + 64 * (flow.bytes() / least.min(4096) + 1);
            items += flow.blocks.len() + flow.writes.len() + flow.words as usize + 4;
        }
        let messages = connections().flat_map(|it| &it.messages);
        bytes += messages.map(|message| 2 * message.bytes as u64).sum::<u64>();
        let rate = self.ends.iter().filter_map(|end| end.rate_max).min();
        let limited_ns = rate.map_or(0, |rate| 4 * bytes * 1_000_000_000 / rate);
        // Partial writes fill a line with few bytes.
        let lines = bytes / (self.network.capacity_bytes as u64 / 8).max(1);
        limited_ns + (8 * items as u64 + 4 * lines + 64) * 2 * (self.hop_ns() + 20_000)
    }

    /// Returns how long it may take until an end has read 1 KiB, a part of a record by which it knows that the other one is alive:
    /// a line, fuller or not, at a time. No socket holds less than that, so that only a short line is read in several turns.
    pub(super) fn progress_ns(&self) -> u64 {
        let lines = 1024 / (self.network.capacity_bytes as u64 / 8).max(1);
        let turns = 1024 / self.network.capacity_bytes as u64;
        let turn_ns = self.ends.iter().map(|end| self.turn_ns(end)).max().unwrap_or(0);
        2 * (lines + 1) * (self.hop_ns() + 20_000) + turns * turn_ns
    }

    /// Returns how long a connection waits for its turn under an end's limit until it looks whether something has come: each stream
    /// may read two records in a turn.
    pub(super) fn turn_ns(&self, end: &WireEndPlan) -> u64 {
        let streams: usize = self.connections.iter().map(|it| it.streams).sum();
        end.rate_max.map_or(0, |rate| streams as u64 * (140 << 10) * 1_000_000_000 / rate)
    }

    /// Returns when the last thing begins that is planned, faults included.
    pub(super) fn last_ns(&self) -> u64 {
        let faults = self.faults.iter().map(|fault| fault.at_ns + fault.what.holds_ns());
        let connections = self.connections.iter().map(ConnectionPlan::last_ns);
        faults.chain(connections).max().unwrap_or(0)
    }

    /// Returns how long all connections of living ends may last from then on.
    pub(super) fn ending_ns(&self) -> u64 {
        let timeouts = self.ends.iter().map(|end| end.silence_ms + end.drain_ms + end.idle_ms);
        2 * self.moving_ns() + 3 * timeouts.max().unwrap_or(0) * 1_000_000
    }

    /// Returns whether closes wait long enough for all that is under way.
    pub(super) fn drains(&self) -> bool {
        let last_ns = self.last_ns() + self.moving_ns();
        let is_long = |end: &WireEndPlan| end.drain_ms.min(end.idle_ms) * 1_000_000 > last_ns;
        self.ends.iter().all(is_long)
    }

    /// Checks that a scenario from a file is valid.
    ///
    /// Errors: what is invalid.
    pub fn check(&self) -> Result<(), String> {
        for end in ENDS {
            self.settings(end).check().map_err(|error| error.to_string())?;
            if self.ends[end].threads > 1 && self.ends[end].rate_max.is_some() {
                return Err(format!("end {end} has a limit and several threads"));
            }
        }
        let silences = self.ends.each_ref().map(|end| end.silence_ms);
        if silences[0].max(silences[1]) > 2 * silences[0].min(silences[1]) {
            return Err("the silence timeouts differ by a factor of more than 2".into());
        }
        if 8 * self.hop_ns() > silences[0].min(silences[1]) * 1_000_000 {
            return Err("bytes take longer than an eighth of a silence timeout".into());
        }
        if self.progress_ns() > silences[0].min(silences[1]) * 1_000_000 {
            return Err("1 KiB takes longer than a silence timeout".into());
        }
        if self.network.capacity_bytes == 0 || self.network.cuts_percent > 100 {
            return Err("a line takes a byte at least".into());
        }
        if self.network.interrupts_percent > 50 {
            return Err("more calls are interrupted than not".into());
        }
        self.connections.iter().try_for_each(ConnectionPlan::check)?;
        let streams: Vec<usize> = self.connections.iter().map(|it| it.streams).collect();
        self.faults.iter().try_for_each(|fault| fault.what.check(&streams))
    }
}

impl ConnectionPlan {
    fn check(&self) -> Result<(), String> {
        if !(1..=STREAMS_MAX).contains(&self.streams) {
            return Err(format!("{} streams", self.streams));
        }
        if !self.is_shared && (self.channels.len() != 1 || !self.messages.is_empty()) {
            return Err("a connection that is not shared has one channel and no messages".into());
        }
        let is_short =
            |it: &&MessagePlan| it.bytes < 9 || it.bytes > MESSAGE_BYTES_MAX || it.from > 1;
        if let Some(message) = self.messages.iter().find(is_short) {
            return Err(format!("{message:?}"));
        }
        let flows = self.channels.iter().flat_map(|channel| &channel.flows);
        if self.channels.iter().any(|it| it.asked_by > 1) || flows.clone().any(|it| it.window == 0)
        {
            return Err("a channel is asked for by an end, and its windows are 1 at least".into());
        }
        Ok(())
    }
}

impl WireEndPlan {
    /// The least [`TcpSettings::rate_max`].
    pub(super) const RATE_LEAST: u64 = RATE_MAX_LEAST;

    /// Returns the most time until what one of several threads has found is told by the end's owner.
    pub(super) fn telling_ns(&self) -> u64 {
        if self.threads == 1 { 0 } else { 2 * self.poll_delay_ns_max + 6_000 }
    }
}

impl fmt::Display for WireScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}; {:?}", self.seed, self.network)?;
        for (number, end) in self.ends.iter().enumerate() {
            writeln!(f, "end {number}: {end:?}")?;
        }
        for (number, connection) in self.connections.iter().enumerate() {
            let ConnectionPlan { streams, protection, is_shared, start_ns, .. } = connection;
            let kind = if *is_shared { "shared" } else { "own" };
            writeln!(
                f,
                "connection {number}: {kind}, {streams} streams, {protection:?}, from {start_ns:?}"
            )?;
            for (number, channel) in connection.channels.iter().enumerate() {
                writeln!(f, "  channel {number}: {channel:?}")?;
            }
            for message in &connection.messages {
                writeln!(f, "  {message:?}")?;
            }
        }
        for PlannedWireFault { at_ns, what } in &self.faults {
            writeln!(f, "at {at_ns} ns: {what:?}")?;
        }
        Ok(())
    }
}
