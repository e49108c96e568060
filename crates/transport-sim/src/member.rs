//! One member's access to a simulated network.

use std::{
    cell::{RefCell, RefMut},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use transport::{
    ArrivingRead, CONTROL_BYTES_MAX, Completion, CutThroughSends, EndpointId, FutureRead,
    OneSidedWrites, PeerMemory, PostError, ReadLease, Token, Transport, TriggeredSends, Visibility,
    Waker, WriteLease,
};

use crate::{
    config::Placement,
    connection::Phase,
    fault::{Fault, nanoseconds},
    names::SideId,
    state::State,
    write::PostedWrite,
};

/// The most virtual time that a single poll may compute, however long it may wait: an hour.
const WAIT_NS_MAX: u64 = 3_600_000_000_000;

/// One end of a connection that [`crate::SimNet::connect`] has made. If it is dropped unopened, its
/// peer waits for ever; see [`crate::SimNet::discard`].
#[derive(Debug)]
pub struct SimLink {
    /// Address of the network, which identifies it.
    pub(crate) network: usize,
    pub(crate) member: usize,
    pub(crate) side: SideId,
}

/// [`Transport`] of one member of a [`crate::SimNet`]. Dropping it kills the member.
pub struct SimTransport {
    state: Rc<RefCell<State>>,
    index: usize,
    woken: Arc<AtomicBool>,
}

impl SimTransport {
    pub(crate) fn new(state: Rc<RefCell<State>>, index: usize, woken: &Arc<AtomicBool>) -> Self {
        Self { state, index, woken: Arc::clone(woken) }
    }

    /// Returns the member's number in its network.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the network and the side of an endpoint, if posts to it are still accepted.
    fn open_side(&self, endpoint: EndpointId) -> Result<(RefMut<'_, State>, SideId), PostError> {
        let mut state = self.state.borrow_mut();
        let side = usize::try_from(endpoint.0)
            .ok()
            .and_then(|number| state.members[self.index].endpoints.get(number).copied());
        match side {
            Some(side) if state.side(side).phase == Phase::Open => Ok((state, side)),
            _ => Err(PostError::EndpointGone(endpoint)),
        }
    }
}

impl Transport for SimTransport {
    type Link = SimLink;

    /// Returns the virtual time, which is the same for all members of a network.
    fn now(&self) -> Duration {
        Duration::from_nanos(self.state.borrow().now_ns)
    }

    /// Returns [`crate::SimConfig::block_bytes_max`].
    fn block_bytes_max(&self) -> u64 {
        self.state.borrow().config.block_bytes_max
    }

    /// Makes an endpoint. Errors: the link is another member's, or the member is dead.
    fn open(&mut self, link: SimLink) -> Result<EndpointId, PostError> {
        if link.network != Rc::as_ptr(&self.state).addr() || link.member != self.index {
            return Err(PostError::System("the link belongs to another member".into()));
        }
        let mut state = self.state.borrow_mut();
        if !state.members[self.index].alive {
            return Err(PostError::System("the member is dead".into()));
        }
        Ok(state.open_endpoint(self.index, link.side))
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(into.bytes(), self.block_bytes_max())?;
        let (mut state, side) = self.open_side(endpoint)?;
        state.post_receive(side, into, token);
        Ok(())
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), self.block_bytes_max())?;
        let (mut state, side) = self.open_side(endpoint)?;
        state.post_send(side, from, immediate, token);
        Ok(())
    }

    /// Also refuses an empty word.
    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        PostError::check_length(word.len(), CONTROL_BYTES_MAX as u64)?;
        if word.is_empty() {
            return Err(PostError::System("an empty control word".into()));
        }
        let (mut state, side) = self.open_side(endpoint)?;
        state.write_control(side, word);
        Ok(())
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    /// Has them with [`crate::SimConfig::cut_through_bytes`].
    fn cut_through(&mut self) -> Option<&mut dyn CutThroughSends> {
        let has_them = self.state.borrow().config.cut_through_bytes.is_some();
        has_them.then_some(self as &mut dyn CutThroughSends)
    }

    fn triggered(&mut self) -> Option<&mut dyn TriggeredSends> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        if let Ok((mut state, side)) = self.open_side(endpoint) {
            state.close(side);
        }
    }

    /// Appends what has completed. If there is nothing, computes events of any member until there
    /// is, or the waker is used, or `wait` (at most an hour) of virtual time has passed. Takes no
    /// real time except for the computation. Without a wait, no event is computed.
    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        let mut state = self.state.borrow_mut();
        let wait_ns = nanoseconds(wait).min(WAIT_NS_MAX);
        let until_ns = state.now_ns.saturating_add(wait_ns);
        loop {
            let woken = self.woken.swap(false, Ordering::Acquire);
            let mine = &mut state.members[self.index];
            if !mine.completions.is_empty() || woken || wait_ns == 0 {
                completions.append(&mut mine.completions);
                return mine.triggers.note_poll();
            }
            if !state.advance(until_ns) {
                state.now_ns = until_ns;
                return state.members[self.index].triggers.note_poll();
            }
        }
    }

    /// Returns a waker that ends a poll even during its computation; used between two polls, it
    /// ends the next.
    fn waker(&self) -> Waker {
        let woken = Arc::clone(&self.woken);
        Arc::new(move || woken.store(true, Ordering::Release))
    }
}

impl OneSidedWrites for SimTransport {
    /// Vouches for what [`crate::SimConfig::write_placement`] makes true.
    fn visibility(&self, _endpoint: EndpointId) -> Visibility {
        match self.state.borrow().config.write_placement {
            None => Visibility { in_order: true, whole_words: true, early: false },
            Some(Placement { in_order, whole_words, .. }) => {
                Visibility { in_order, whole_words, early: true }
            }
        }
    }

    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        let (mut state, side) = self.open_side(endpoint)?;
        state.expose(side, key, memory)
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), self.block_bytes_max())?;
        let (mut state, side) = self.open_side(endpoint)?;
        state.post_write(side, PostedWrite { from, token, key, offset, immediate });
        Ok(())
    }
}

impl CutThroughSends for SimTransport {
    fn block_bytes_min(&self) -> u64 {
        self.state.borrow().config.cut_through_bytes.map_or(u64::MAX, |bytes| bytes + 1)
    }

    fn post_cut_through_send(
        &mut self,
        endpoint: EndpointId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), self.block_bytes_max())?;
        let (mut state, side) = self.open_side(endpoint)?;
        state.post_cut_through_send(side, from, immediate, token);
        Ok(())
    }
}

impl TriggeredSends for SimTransport {
    fn post_offloaded_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(into.bytes(), self.block_bytes_max())?;
        let (mut state, side) = self.open_side(endpoint)?;
        state.post_offloaded_receive(side, into, immediate, token)
    }

    fn post_offloaded_send(
        &mut self,
        endpoint: EndpointId,
        from: FutureRead,
        immediate: u32,
        token: Token,
        after: &[(EndpointId, Token)],
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), self.block_bytes_max())?;
        let (mut state, side) = self.open_side(endpoint)?;
        state.post_offloaded_send(side, from, immediate, token, after)
    }
}

impl Drop for SimTransport {
    fn drop(&mut self) {
        // Not while the network itself panics: a second panic would hide the first.
        if let Ok(mut state) = self.state.try_borrow_mut()
            && state.members[self.index].alive
        {
            state.inject(Fault::Kill(self.index));
        }
    }
}
