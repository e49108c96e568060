//! The transport itself: TCP, the groups whose blocks switches copy, and waiting for both.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transport::{
    Completion, EndpointId, PostError, ReadLease, Token, Transport, Watched, WriteLease,
};
use transport_tcp::{SharedConnections, TcpTransport};

use crate::{GroupEnd, SwitchLink, group::Group};

/// The longest block of a group that switches copy, in bytes: the longest message of RDMA's
/// reliable connections, which is shorter than TCP's.
const BLOCK_BYTES_MAX: u64 = 1 << 31;

/// [`Transport`] over TCP, with groups whose blocks switches copy. Endpoints, wakers and one-sided
/// writes are those of the [`TcpTransport`] that it wraps; without such groups all calls are. See the crate's documentation.
pub struct SwitchTransport {
    tcp: TcpTransport,
    groups: HashMap<u64, Group>,
    groups_made: u64,
    /// The group that an endpoint belongs to.
    by_endpoint: HashMap<EndpointId, u64>,
    /// Completions that were not reported yet.
    completed: Vec<Completion>,
    /// Empty between polls.
    from_tcp: Vec<Completion>,
}

impl SwitchTransport {
    /// Wraps a transport, with its endpoints and posts.
    pub fn over(tcp: TcpTransport) -> Self {
        Self {
            tcp,
            groups: HashMap::new(),
            groups_made: 0,
            by_endpoint: HashMap::new(),
            completed: Vec::new(),
            from_tcp: Vec::new(),
        }
    }

    /// Returns whether there are no groups, and no completions of any left to report.
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty() && self.completed.is_empty()
    }

    /// Returns the wrapped transport, for its shared connections.
    pub fn tcp_mut(&mut self) -> &mut TcpTransport {
        &mut self.tcp
    }

    /// Returns the wrapped transport. Groups whose blocks switches copy end.
    pub fn into_tcp(self) -> TcpTransport {
        self.tcp
    }

    /// Adds an endpoint, whose peer has this address, to the group of this end, which is created for its first link.
    fn join(
        &mut self,
        end: &GroupEnd,
        endpoint: EndpointId,
        peer: Option<IpAddr>,
    ) -> Result<(), PostError> {
        let known = self.groups.iter().find(|(_, group)| group.is_of(end));
        let number = match known {
            Some((&number, _)) => number,
            None => {
                let gone = || PostError::System("a link of a group that has ended".into());
                let group = Group::new(end, Instant::now()).ok_or_else(gone)?;
                if self.groups.is_empty() {
                    // A use of the waker that has ended an earlier wait must not end one with groups.
                    self.tcp.take_woken();
                }
                self.groups_made += 1;
                self.groups.insert(self.groups_made, group);
                self.groups_made
            }
        };
        if let Some(group) = self.groups.get_mut(&number) {
            group.open(endpoint, peer);
        }
        self.by_endpoint.insert(endpoint, number);
        Ok(())
    }

    /// Does everything that can be done without waiting. Returns whether the waker was used.
    fn progress(&mut self) -> bool {
        self.tcp.poll(&mut self.from_tcp, Duration::ZERO);
        for completion in std::mem::take(&mut self.from_tcp) {
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
            group.progress(now, &mut self.tcp, &mut self.completed);
        }
        self.tcp.take_woken()
    }

    /// Cancels the posts of an endpoint of a group.
    fn cancel(&mut self, endpoint: EndpointId) {
        if let Some(number) = self.by_endpoint.get(&endpoint)
            && let Some(group) = self.groups.get_mut(number)
        {
            group.cancel(endpoint, &mut self.completed);
        }
    }

    /// Removes an endpoint that has ended, and its group with the last of them.
    fn leave(&mut self, endpoint: EndpointId) {
        let Some(number) = self.by_endpoint.remove(&endpoint) else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.leave(endpoint);
        if group.endpoints.is_empty() {
            self.groups.remove(&number);
        }
    }

    /// Waits until there may be something to do, at most until the given time.
    fn sleep(&mut self, until: Option<Instant>, now: Instant) {
        self.tcp.prepare_wait();
        let left = |at: Instant| at.saturating_duration_since(now);
        let groups = self.groups.values().filter_map(|group| group.wakes_in(now));
        let times = groups.chain(until.map(left)).chain(self.tcp.next_tick().map(left));
        let timeout = times.min().and_then(|timeout| Timespec::try_from(timeout).ok());
        let tcp = self.tcp.event_queue();
        let groups = self.groups.values().filter_map(Group::as_fd);
        let mut fds = vec![PollFd::new(&tcp, PollFlags::IN)];
        fds.extend(groups.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted or failed wait ends early, which is harmless.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

impl Transport for SwitchTransport {
    type Link = SwitchLink;

    transport::forward!(tcp; now, block_bytes_max, write_control, one_sided, cut_through, flush, waker);

    fn open(&mut self, link: SwitchLink) -> Result<EndpointId, PostError> {
        let peer = link.lifeline.peer().map(|peer| peer.ip().to_canonical());
        let endpoint = self.tcp.open(link.lifeline)?;
        if let Some(end) = link.end
            && let Err(error) = self.join(&end, endpoint, peer)
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
        let Some(number) = self.by_endpoint.get(&endpoint) else {
            return self.tcp.post_receive(endpoint, into, token);
        };
        PostError::check_length(into.bytes(), BLOCK_BYTES_MAX)?;
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
        let Some(number) = self.by_endpoint.get(&endpoint) else {
            return self.tcp.post_send(endpoint, from, immediate, token);
        };
        PostError::check_length(from.bytes(), BLOCK_BYTES_MAX)?;
        let (group, completed) = (self.groups.get_mut(number), &mut self.completed);
        let group = group.ok_or(PostError::EndpointGone(endpoint))?;
        group.post_send(endpoint, from, immediate, token, completed)
    }

    fn close(&mut self, endpoint: EndpointId) {
        self.cancel(endpoint);
        self.leave(endpoint);
        self.tcp.close(endpoint);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        if self.is_idle() {
            return self.tcp.poll(completions, wait);
        }
        let until = Instant::now().checked_add(wait);
        loop {
            let woken = self.progress();
            let now = Instant::now();
            let is_over = until.is_some_and(|until| now >= until);
            let has_news = !self.completed.is_empty() || self.tcp.has_shared_events();
            if woken || is_over || has_news {
                completions.append(&mut self.completed);
                return;
            }
            self.sleep(until, now);
        }
    }
}
