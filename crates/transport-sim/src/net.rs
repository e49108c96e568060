//! The network as tests use it: adding members, driving time, injecting faults.

use std::{cell::RefCell, rc::Rc, time::Duration};

use crate::{
    config::{LinkConfig, SimConfig},
    fault::{Fault, nanoseconds},
    member::{SimLink, SimTransport},
    state::{MemberTotals, SimTotals, State},
};

/// A simulated network. Clones share the same network. See the crate's documentation for the model.
///
/// Belongs to one thread, as all its transports do. Members are numbered from 0 in the order of
/// [`SimNet::member`]; methods that take a member panic if there is none of that number.
#[derive(Clone)]
pub struct SimNet(pub(crate) Rc<RefCell<State>>);

impl SimNet {
    /// Makes a network without members. All randomness follows from `seed`.
    pub fn new(config: SimConfig, seed: u64) -> Self {
        Self(Rc::new(RefCell::new(State::new(config, seed))))
    }

    /// Adds a member, the next in number. Dropping its transport kills it.
    pub fn member(&self) -> SimTransport {
        let mut state = self.0.borrow_mut();
        let index = state.add_member();
        SimTransport::new(Rc::clone(&self.0), index, &state.members[index].woken)
    }

    /// Adds `count` members.
    pub fn members(&self, count: usize) -> Vec<SimTransport> {
        (0..count).map(|_| self.member()).collect()
    }

    /// Connects two members by a link as in [`SimConfig::link`]. The first link is for the first
    /// member to open, the second for the second. Panics if they are the same.
    pub fn connect(&self, one: usize, other: usize) -> (SimLink, SimLink) {
        let link = self.0.borrow().config.link;
        self.connect_with(one, other, link)
    }

    /// Connects two members by a link with properties of its own. Panics if they are the same.
    pub fn connect_with(&self, one: usize, other: usize, link: LinkConfig) -> (SimLink, SimLink) {
        assert_ne!(one, other, "a member is not its own peer");
        let [near, far] = self.0.borrow_mut().connect([one, other], link);
        let network = Rc::as_ptr(&self.0).addr();
        let end = |member, side| SimLink { network, member, side };
        (end(one, near), end(other, far))
    }

    /// Discards an end that was not opened: its peer reports a lost connection.
    pub fn discard(&self, link: SimLink) {
        self.0.borrow_mut().vanish(link.side, 0);
    }

    /// Returns the virtual time since the network was made.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.borrow().now_ns)
    }

    /// Computes events until a member has something to report, and returns that member. Poll it
    /// without a wait before the next step: a member whose earlier reports were not fetched is not
    /// returned again until there are new ones.
    ///
    /// `None`: no more events will happen, unless something is posted.
    pub fn step(&self) -> Option<usize> {
        self.step_until(None)
    }

    /// As [`SimNet::step`], but computes no event that is later than `at`; if no member has
    /// anything to report by then, the time is `at` afterwards (or now, if that is later), and the
    /// result is `None`.
    pub fn run_until(&self, at: Duration) -> Option<usize> {
        self.step_until(Some(nanoseconds(at)))
    }

    fn step_until(&self, until_ns: Option<u64>) -> Option<usize> {
        let mut state = self.0.borrow_mut();
        loop {
            if let Some(member) = state.next_reporting() {
                return Some(member);
            }
            if !state.advance(until_ns.unwrap_or(u64::MAX)) {
                state.now_ns = state.now_ns.max(until_ns.unwrap_or(0));
                return None;
            }
        }
    }

    /// Returns the time of the next event: now, if a member has something to report that
    /// [`SimNet::step`] would return.
    pub fn next_event_time(&self) -> Option<Duration> {
        let state = self.0.borrow();
        if state.is_anybody_reporting() {
            return Some(Duration::from_nanos(state.now_ns));
        }
        state.agenda.next_at_ns().map(Duration::from_nanos)
    }

    /// Injects a fault now.
    pub fn inject(&self, fault: Fault) {
        self.0.borrow_mut().inject(fault);
    }

    /// Injects a fault at a virtual time, or now if that has passed.
    pub fn inject_at(&self, at: Duration, fault: Fault) {
        let mut state = self.0.borrow_mut();
        let at_ns = nanoseconds(at).max(state.now_ns);
        state.agenda.plan(at_ns, crate::event::Event::Fault(fault));
    }

    /// Injects [`Fault::Kill`] now.
    pub fn kill(&self, member: usize) {
        self.inject(Fault::Kill(member));
    }

    /// Injects [`Fault::PortRate`] now.
    pub fn set_port_rate(&self, member: usize, bytes_per_s: u64) {
        self.inject(Fault::PortRate { member, bytes_per_s });
    }

    /// Returns the totals of all members.
    pub fn totals(&self) -> SimTotals {
        self.0.borrow().totals
    }

    /// Returns the totals of one member.
    pub fn member_totals(&self, member: usize) -> MemberTotals {
        self.0.borrow().members[member].totals
    }

    /// Adds a line to the trace, if one is kept ([`SimConfig::trace_events`]); otherwise `text` is
    /// not called.
    pub fn remark(&self, text: impl FnOnce() -> String) {
        let mut state = self.0.borrow_mut();
        let now_ns = state.now_ns;
        state.trace.remark(now_ns, text);
    }

    /// Returns the seed and the last events ([`SimConfig::trace_events`]), to be printed by a
    /// failing test.
    pub fn trace(&self) -> String {
        self.0.borrow().trace.to_string()
    }

    /// Returns a digest of all events: equal runs have equal digests. It may differ between
    /// versions of this library.
    pub fn digest(&self) -> u64 {
        self.0.borrow().trace.digest()
    }
}
