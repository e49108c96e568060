//! Processor time of a host's program.

/// Two threads, each of which is a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    poster_free_ps: u64,
    poller_free_ps: u64,
}

impl Cpu {
    /// When a post that begins now is done.
    pub fn post(&mut self, now_ps: u64, cost_ps: u64) -> u64 {
        self.poster_free_ps = self.poster_free_ps.max(now_ps) + cost_ps;
        self.poster_free_ps
    }

    /// When the program has polled a completion that exists now.
    pub fn poll(&mut self, now_ps: u64, cost_ps: u64) -> u64 {
        self.poller_free_ps = self.poller_free_ps.max(now_ps) + cost_ps;
        self.poller_free_ps
    }
}
