//! The state of a failed group until its last event is due.

use std::{collections::BTreeSet, time::Duration};

use transport::Transport;

use crate::{event::Event, failure::Failure, notice::Notice, transfers::Transfers, words::Word};

/// How long a failed group waits for jobs, whose memory is in use, and for counts. The limit is
/// needed because a disk or a member may never respond; without it every member would wait for the
/// slowest disk before it may report whom it blames.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Why a group has failed, and what it still waits for.
#[derive(Debug)]
pub(crate) struct Failed {
    failure: Failure,
    count_ends_at: Duration,
    jobs_end_at: Duration,
    /// Set once the wait for jobs has timed out.
    gave_up_jobs: bool,
}

impl Failed {
    /// Notifies every neighbour, and starts to count the messages that are in place at all members.
    pub(crate) fn start<T: Transport>(
        notice: Notice,
        transfers: &mut Transfers,
        transport: &mut T,
    ) -> Self {
        let (in_place, now) = (transfers.in_place(), transport.now());
        transfers.staging.clear();
        transfers.outbox.clear();
        let Transfers { watermark, peers, settings, .. } = transfers;
        let word = Word::Failed(notice.clone());
        let mut notified = BTreeSet::new();
        for (rank, endpoint) in peers.iter() {
            match peers.write(transport, rank, &word) {
                Ok(()) => drop(notified.insert(rank)),
                // The end of the connection notifies that neighbour of the failure.
                Err(_) => transport.close(endpoint),
            }
        }
        watermark.start_count(in_place, |rank| notified.contains(&rank));
        let mut failure = notice.into_failure(settings.number);
        failure.delivered = watermark.everywhere(in_place);
        let count_wait = settings.stall_timeout.map_or(WAIT_MAX, |timeout| timeout.min(WAIT_MAX));
        let mut failed = Self {
            failure,
            count_ends_at: now + count_wait,
            jobs_end_at: now + WAIT_MAX,
            gave_up_jobs: false,
        };
        failed.go_on(transfers, transport);
        failed
    }

    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Processes a word of a neighbour: only counts matter, and nothing fails the group again.
    pub(crate) fn on_control<T: Transport>(
        &mut self,
        transfers: &mut Transfers,
        transport: &mut T,
        rank: u32,
        word: &Word,
    ) {
        if transfers.watermark.is_counting() && transfers.watermark.on_count(rank, word).is_ok() {
            self.go_on(transfers, transport);
        }
    }

    /// Notes that the connection to a neighbour has ended.
    pub(crate) fn on_lost<T: Transport>(
        &mut self,
        transfers: &mut Transfers,
        transport: &mut T,
        rank: u32,
    ) {
        if transfers.watermark.is_counting() {
            transfers.watermark.on_lost(rank);
            self.go_on(transfers, transport);
        }
    }

    /// Takes the next step of the count, and closes all connections after the last.
    fn go_on<T: Transport>(&mut self, transfers: &mut Transfers, transport: &mut T) {
        let Transfers { watermark, peers, .. } = transfers;
        while let Some((rank, word)) = watermark.next_word() {
            if peers.write(transport, rank, &word).is_err() {
                watermark.on_lost(rank);
            }
        }
        if !transfers.watermark.is_counting() {
            self.failure.delivered = transfers.watermark.everywhere(transfers.in_place());
            transfers.peers.close(transport);
        }
    }

    fn waits_for_jobs(&self, transfers: &Transfers) -> bool {
        transfers.staging.jobs.is_busy() && !self.gave_up_jobs
    }

    /// Returns when [`Failed::check`] has to be called at the latest, if at all.
    pub(crate) fn deadline(&self, transfers: &Transfers) -> Option<Duration> {
        let count = transfers.watermark.is_counting().then_some(self.count_ends_at);
        let jobs = self.waits_for_jobs(transfers).then_some(self.jobs_end_at);
        count.into_iter().chain(jobs).min()
    }

    /// Stops waiting for what is overdue. Memory that jobs use is not returned: the jobs keep it.
    pub(crate) fn check<T: Transport>(
        &mut self,
        transfers: &mut Transfers,
        transport: &mut T,
        now: Duration,
    ) {
        if transfers.watermark.is_counting() && now >= self.count_ends_at {
            transfers.watermark.stop_count();
            self.go_on(transfers, transport);
        }
        if self.waits_for_jobs(transfers) && now >= self.jobs_end_at {
            let (group, what) = (self.failure.group, transfers.staging.jobs.occupation());
            tracing::warn!(target: "rdmc::engine", group, what, "storage does not answer");
            self.gave_up_jobs = true;
        }
    }

    /// Returns whether the last event is due: no memory is in use any more.
    pub(crate) fn is_over(&self, transfers: &Transfers) -> bool {
        !transfers.watermark.is_counting()
            && transfers.peers.posts_are_done()
            && !self.waits_for_jobs(transfers)
    }

    /// Returns the last event.
    pub(crate) fn into_event(self, transfers: &mut Transfers) -> Event {
        let mut regions = transfers.messages.memory.take_all();
        regions.retain(|&(message, _)| !transfers.staging.jobs.uses(message));
        Event::Failed { failure: self.failure, regions }
    }
}
