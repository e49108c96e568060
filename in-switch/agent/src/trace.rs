//! A trace of one group's packets, for a caller that reads it.

use std::{sync::Arc, time::Duration};

use control::{ControlError, ErrorKind, proto};
use mcrdma::{GroupKey, Traced, TracedPacket};
use tokio::{
    sync::mpsc::Sender,
    time::{Instant, sleep_until, timeout_at},
};
use tonic::Status;

use crate::{forwarding::lock, ports::Ports, registry::Registry};

/// How often the data plane is asked for packets.
const INTERVAL: Duration = Duration::from_millis(5);
/// A caller that has not read for this long after the trace's time gets no more of it.
const READER_PATIENCE: Duration = Duration::from_secs(10);
/// Groups that are traced at a time: each may hold some MiB that its caller has not read.
const TRACES_MAX: usize = 8;
/// Packets of a message: below 4 MiB with 64 copies each.
const PACKETS_PER_REPORT: usize = 256;

/// A group's packets are noted until this is dropped.
pub(crate) struct Trace {
    registry: Arc<Registry>,
    ports: Ports,
    key: GroupKey,
    /// Time of the first packet.
    begun_ns: Option<u64>,
}

impl Drop for Trace {
    fn drop(&mut self) {
        let ended = self.registry.plane().trace(self.key, false);
        ended.inspect_err(|error| tracing::warn!(key = %self.key, %error, "still traced")).ok();
        lock(&self.registry.traced).remove(&self.key);
    }
}

impl Trace {
    /// Errors: there is no such group here, another caller traces it, or too many groups are traced.
    pub(crate) fn begin(
        registry: Arc<Registry>,
        ports: Ports,
        key: GroupKey,
    ) -> Result<Self, ControlError> {
        let refused = |why| Err(registry.refused(ErrorKind::Limit, why));
        {
            let mut traced = lock(&registry.traced);
            if traced.contains(&key) {
                return refused(format!("{key} is traced already: one caller at a time"));
            }
            if traced.len() == TRACES_MAX {
                return refused(format!(
                    "{TRACES_MAX} groups are traced already, the most at a time"
                ));
            }
            traced.insert(key);
        }
        // Ends it also if that fails.
        let trace = Self { registry, ports, key, begun_ns: None };
        let begun = trace.registry.plane().trace(key, true);
        match begun.map_err(|error| trace.registry.refused(ErrorKind::Failed, error))? {
            true => Ok(trace),
            false => {
                let why = format!("no packets of {key} are copied or merged here");
                Err(trace.registry.refused(ErrorKind::Unknown, why))
            }
        }
    }

    /// Sends what is noted, until there were this many packets, for this long, or until the caller or the group has gone. While
    /// the caller does not read, nothing is taken from the data plane, which counts what it loses.
    pub(crate) async fn run(
        mut self,
        packets: u32,
        time: Duration,
        out: Sender<Result<proto::TraceReport, Status>>,
    ) {
        let (deadline, mut left) = (Instant::now() + time, packets as usize);
        let mut lost = 0;
        // The caller may send packets now.
        let mut reports = vec![proto::TraceReport::default()];
        loop {
            for report in reports.drain(..) {
                let is_last = !report.end.is_empty();
                let sent = timeout_at(deadline + READER_PATIENCE, out.send(Ok(report))).await;
                if is_last || !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
            tokio::select! {
                () = sleep_until(deadline.min(Instant::now() + INTERVAL)) => {}
                () = out.closed() => return,
            }
            let taken = self.registry.plane().take_traced(self.key);
            let (traced, end) = match taken {
                Ok(Some(traced)) if traced.packets.len() >= left => (traced, "packets"),
                Ok(Some(traced)) if Instant::now() >= deadline => (traced, "time"),
                Ok(Some(traced)) => (traced, ""),
                Ok(None) => (Traced { packets: Vec::new(), lost }, "the group was removed"),
                Err(error) => {
                    let error = self.registry.refused(ErrorKind::Failed, error);
                    let _ = out.try_send(Err(error.into()));
                    return;
                }
            };
            let count = traced.packets.len().min(left);
            left -= count;
            let mut chunks: Vec<&[TracedPacket]> =
                traced.packets[..count].chunks(PACKETS_PER_REPORT).collect();
            if chunks.is_empty() && (!end.is_empty() || traced.lost > lost) {
                chunks.push(&[]);
            }
            lost = traced.lost;
            for packets in chunks {
                let packets = packets.iter().map(|packet| self.packet(packet)).collect();
                reports.push(proto::TraceReport { packets, lost, end: String::new() });
            }
            if let Some(last) = reports.last_mut() {
                last.end = end.to_owned();
            }
        }
    }

    fn packet(&mut self, packet: &TracedPacket) -> proto::TracedPacket {
        let begun_ns = *self.begun_ns.get_or_insert(packet.at_ns);
        let copy = |&(port, is_sent): &(mcrdma::Port, bool)| proto::TracedCopy {
            port: self.ports.name(port),
            has_failed: !is_sent,
        };
        proto::TracedPacket {
            // Packets of several processors may be noted in another order.
            since_first_ns: packet.at_ns.saturating_sub(begun_ns),
            port: self.ports.name(packet.port),
            is_answer: packet.answer.is_some(),
            operation: packet.operation().to_owned(),
            psn: packet.psn.get(),
            source: packet.answer.map(|(source, _)| source.to_string()).unwrap_or_default(),
            decision: packet.decision.name().to_owned(),
            copies: packet.copies.iter().map(copy).collect(),
        }
    }
}
