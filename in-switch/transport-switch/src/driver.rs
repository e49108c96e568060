//! The transport itself: TCP, the groups whose blocks go through switches, and how it waits for both.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use transport::{
    Completion, EndpointId, OneSidedWrites, PeerMemory, PostError, ReadLease, Token, Transport,
    Waker, WriteLease,
};
use transport_tcp::{TcpConfig, TcpCounters, TcpTransport};

use crate::{GroupEnd, SwitchLink, group::Group};

/// Longest message of RDMA's reliable connections.
const BLOCK_BYTES_MAX: u64 = 1 << 31;

/// [`Transport`] over TCP, with groups whose blocks switches copy. Without such a group it is
/// [`TcpTransport`]. See the crate's documentation.
pub struct SwitchTransport {
    tcp: TcpTransport,
    groups: HashMap<u64, Group>,
    groups_made: u64,
    /// Which group an endpoint belongs to.
    by_endpoint: HashMap<EndpointId, u64>,
    /// Not yet reported.
    completed: Vec<Completion>,
    heard: Vec<Completion>,
    waker: Arc<OwnedFd>,
}

impl SwitchTransport {
    /// Makes the event queue and nothing else.
    ///
    /// Errors: a value of `config` is out of range, or the process has no file descriptors left.
    pub fn new(config: TcpConfig) -> io::Result<Self> {
        Ok(Self {
            tcp: TcpTransport::new(config)?,
            groups: HashMap::new(),
            groups_made: 0,
            by_endpoint: HashMap::new(),
            completed: Vec::new(),
            heard: Vec::new(),
            waker: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        })
    }

    /// What TCP has moved so far.
    pub fn counters(&self) -> TcpCounters {
        self.tcp.counters()
    }

    /// The group of this end, which is made if this is its first link.
    fn join(&mut self, end: &GroupEnd, endpoint: EndpointId) -> Result<(), PostError> {
        let known = self.groups.iter().find(|(_, group)| group.is_of(end));
        let number = match known {
            Some((&number, _)) => number,
            None => {
                let gone = || PostError::System("a link of a group that has ended".into());
                let group = Group::new(end, Instant::now()).ok_or_else(gone)?;
                self.groups_made += 1;
                self.groups.insert(self.groups_made, group);
                self.groups_made
            }
        };
        if let Some(group) = self.groups.get_mut(&number) {
            group.open(endpoint);
        }
        self.by_endpoint.insert(endpoint, number);
        Ok(())
    }

    /// Everything that can be done without waiting.
    fn progress(&mut self) {
        self.tcp.poll(&mut self.heard, Duration::ZERO);
        for completion in std::mem::take(&mut self.heard) {
            if let Completion::Broken { endpoint, .. } | Completion::Closed { endpoint } =
                &completion
            {
                self.cancel(*endpoint);
                self.leave(*endpoint);
            }
            self.completed.push(completion);
        }
        let now = Instant::now();
        for group in self.groups.values_mut() {
            group.progress(now, &mut self.completed);
        }
    }

    /// Hands back what is posted on an endpoint of a group.
    fn cancel(&mut self, endpoint: EndpointId) {
        if let Some(number) = self.by_endpoint.get(&endpoint)
            && let Some(group) = self.groups.get_mut(number)
        {
            group.cancel(endpoint, &mut self.completed);
        }
    }

    /// The endpoint is gone, and its group with the last of them.
    fn leave(&mut self, endpoint: EndpointId) {
        let Some(number) = self.by_endpoint.remove(&endpoint) else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.endpoints.remove(&endpoint);
        if group.endpoints.is_empty() {
            self.groups.remove(&number);
        }
    }

    /// Sleeps until something happens or the time has come. True if the waker was used.
    fn sleep(&self, until: Option<Instant>, now: Instant) -> bool {
        let left = |at: Instant| at.saturating_duration_since(now);
        let groups = self.groups.values().filter_map(|group| group.wakes_in(now));
        let times = groups.chain(until.map(left)).chain(self.tcp.next_tick().map(left));
        let timeout = times.min().and_then(|timeout| Timespec::try_from(timeout).ok());
        let tcp = self.tcp.event_queue();
        let mut fds =
            vec![PollFd::new(&*self.waker, PollFlags::IN), PollFd::new(&tcp, PollFlags::IN)];
        let groups = self.groups.values().filter_map(Group::as_fd);
        fds.extend(groups.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted or failed wait is a short one.
        let _ = poll(&mut fds, timeout.as_ref());
        let woken = fds[0].revents().contains(PollFlags::IN);
        if woken {
            let _ = rustix::io::read(&*self.waker, &mut [0_u8; 8]);
        }
        woken
    }
}

impl Transport for SwitchTransport {
    type Link = SwitchLink;

    fn now(&self) -> Duration {
        self.tcp.now()
    }

    /// That of RDMA's messages, which is less than TCP's: 2 GiB.
    fn block_bytes_max(&self) -> u64 {
        BLOCK_BYTES_MAX
    }

    fn open(&mut self, link: SwitchLink) -> Result<EndpointId, PostError> {
        let endpoint = self.tcp.open(link.lifeline)?;
        if let Some(end) = link.end
            && let Err(error) = self.join(&end, endpoint)
        {
            self.tcp.close(endpoint);
            return Err(error);
        }
        Ok(endpoint)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        check_length(into.bytes())?;
        let Some(number) = self.by_endpoint.get(&endpoint) else {
            return self.tcp.post_receive(endpoint, into, token);
        };
        let (group, completed) = (self.groups.get_mut(number), &mut self.completed);
        group.ok_or(PostError::EndpointGone(endpoint))?.post_receive(into, token, completed)
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        check_length(from.bytes())?;
        let Some(number) = self.by_endpoint.get(&endpoint) else {
            return self.tcp.post_send(endpoint, from, immediate, token);
        };
        let (group, completed) = (self.groups.get_mut(number), &mut self.completed);
        let group = group.ok_or(PostError::EndpointGone(endpoint))?;
        group.post_send(endpoint, from, immediate, token, completed)
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        self.tcp.write_control(endpoint, word)
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        self.cancel(endpoint);
        self.leave(endpoint);
        self.tcp.close(endpoint);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        if self.groups.is_empty() {
            completions.append(&mut self.completed);
            let wait = if completions.is_empty() { wait } else { Duration::ZERO };
            return self.tcp.poll(completions, wait);
        }
        let until = Instant::now().checked_add(wait);
        loop {
            self.progress();
            let now = Instant::now();
            let is_over = until.is_some_and(|until| now >= until);
            if is_over || !self.completed.is_empty() || self.sleep(until, now) {
                completions.append(&mut self.completed);
                return;
            }
        }
    }

    fn waker(&self) -> Waker {
        // TCP's own is for a wait without groups.
        let (own, tcp) = (Arc::clone(&self.waker), self.tcp.waker());
        Arc::new(move || {
            // Full only if nobody has slept for very long, and then it is readable.
            let _ = rustix::io::write(&*own, &1_u64.to_ne_bytes());
            tcp();
        })
    }
}

impl OneSidedWrites for SwitchTransport {
    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        self.tcp.expose(endpoint, key, memory)
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        check_length(from.bytes())?;
        self.tcp.post_write(endpoint, from, key, offset, immediate, token)
    }
}

fn check_length(bytes: usize) -> Result<(), PostError> {
    let (bytes, bytes_max) = (bytes as u64, BLOCK_BYTES_MAX);
    if bytes > bytes_max { Err(PostError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}
