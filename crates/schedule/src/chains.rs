//! Chains: who sends to whom where hosts come at any time and nobody knows them beforehand.
//!
//! A host that comes gets the object from one member, which sends to nobody else: the end of a chain of hosts that are
//! receiving, else one that has everything, else the root. A member sends what the other lacks as soon as it has that itself,
//! the lowest block first.
//!
//! A host gets blocks from its sender alone, so its sender has each of them, and has more until it has all. Hence it always
//! has a block to send, whenever the host came: the host is done one object's time after it came, and the delay of one
//! block for each member before it. In all one copy leaves the root while hosts follow on each other, since those that come
//! later get theirs from hosts. The order of the blocks does not matter for that; the lowest first lets files complete in
//! the same order everywhere.

use alloc::{vec, vec::Vec};

/// A member of chains. The first one of a list is the root, which has everything.
#[derive(Clone, Debug)]
pub struct ChainMember {
    /// How much of the object it has, in bytes or blocks.
    pub has: u64,
    /// It lacks nothing.
    pub is_complete: bool,
    /// The place in the list of the member that sends to it.
    pub sender: Option<usize>,
    /// It gets no sender now, whatever it lacks: it has not left the one before.
    pub is_busy: bool,
    /// To how many members it has sent so far.
    pub served: u64,
    /// It may send to others.
    pub sends: bool,
    /// It sends to others only if nobody else can: it delays them, or what it sent was not what it should be.
    pub is_last: bool,
}

impl ChainMember {
    /// A root that sends to nobody.
    pub fn root() -> Self {
        let (sender, is_busy, served, is_last) = (None, false, 0, false);
        Self { has: u64::MAX, is_complete: true, sender, is_busy, served, sends: true, is_last }
    }

    /// A host that has nothing yet.
    pub fn host() -> Self {
        Self { has: 0, is_complete: false, ..Self::root() }
    }
}

/// What is to be done, as places in the list of members.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Attached {
    /// Who is to send to whom from now on: members that nobody sent to.
    pub links: Vec<(usize, usize)>,
    /// Nobody can send to these members but those that get everything through them: the members to which they send have to
    /// get another sender first.
    pub blocked: Vec<usize>,
    /// These cannot be reached by any chain.
    pub cut_off: Vec<usize>,
}

/// Finds a sender for each member that lacks something and has none. `is_apart`: whether two members cannot connect to each
/// other.
///
/// Takes O(m n) for `m` members without a sender among `n`.
pub fn attach(members: &[ChainMember], is_apart: impl Fn(usize, usize) -> bool) -> Attached {
    let mut chains = Chains::new(members);
    let mut waiting: Vec<usize> = (0..members.len()).filter(|&host| chains.waits(host)).collect();
    // Who has most gets a sender first: then it can be one for the others.
    waiting.sort_by_key(|&host| (core::cmp::Reverse(members[host].has), host));
    let mut attached = Attached::default();
    loop {
        let before = waiting.len();
        waiting.retain(|&host| match chains.sender_for(host, &is_apart) {
            Some(sender) => {
                chains.link(sender, host);
                attached.links.push((sender, host));
                false
            }
            None => true,
        });
        if waiting.is_empty() || waiting.len() == before {
            break;
        }
    }
    if waiting.is_empty() {
        return attached;
    }
    let reached = reached(members, &is_apart);
    for host in waiting {
        match (reached[host], chains.targets[host]) {
            (false, _) => attached.cut_off.push(host),
            (true, 1..) => attached.blocked.push(host),
            (true, 0) => {}
        }
    }
    attached
}

/// The members that chains could reach if all members were free.
fn reached(members: &[ChainMember], is_apart: impl Fn(usize, usize) -> bool) -> Vec<bool> {
    let sends = |member: usize| members[member].sends;
    let mut reached: Vec<bool> = members.iter().map(|member| member.is_complete).collect();
    let mut new: Vec<usize> = (0..members.len()).filter(|&it| reached[it] && sends(it)).collect();
    while let Some(from) = new.pop() {
        for (to, reached) in reached.iter_mut().enumerate() {
            if !*reached && !is_apart(from, to) {
                *reached = true;
                if sends(to) {
                    new.push(to);
                }
            }
        }
    }
    reached
}

struct Chains<'a> {
    members: &'a [ChainMember],
    senders: Vec<Option<usize>>,
    /// To how many members each sends.
    targets: Vec<usize>,
}

impl<'a> Chains<'a> {
    fn new(members: &'a [ChainMember]) -> Self {
        let mut targets = vec![0; members.len()];
        for sender in members.iter().filter_map(|member| member.sender) {
            targets[sender] += 1;
        }
        Self { members, senders: members.iter().map(|member| member.sender).collect(), targets }
    }

    fn waits(&self, host: usize) -> bool {
        let member = &self.members[host];
        !member.is_complete && !member.is_busy && self.senders[host].is_none()
    }

    fn link(&mut self, sender: usize, host: usize) {
        self.senders[host] = Some(sender);
        self.targets[sender] += 1;
    }

    /// Whether everything that this member lacks will come to it, and not through `host`.
    fn gets_all_without(&self, member: usize, host: usize) -> bool {
        let mut at = member;
        // A sender that was listed wrong could lead round in a circle.
        for _ in 0..self.members.len() {
            if at == host {
                return false;
            }
            match self.senders[at] {
                _ if self.members[at].is_complete => return true,
                Some(sender) => at = sender,
                None => return false,
            }
        }
        false
    }

    fn sender_for(&self, host: usize, is_apart: impl Fn(usize, usize) -> bool) -> Option<usize> {
        let can_send = |&member: &usize| {
            self.members[member].sends
                && !is_apart(member, host)
                && self.gets_all_without(member, host)
        };
        let candidates = (0..self.members.len()).filter(can_send);
        candidates.min_by_key(|&member| {
            let known = &self.members[member];
            let order = match (known.is_complete, member) {
                (false, _) if known.has >= self.members[host].has => 0,
                (true, 1..) => 1,
                (true, 0) => 2,
                (false, _) => 3,
            };
            (known.is_last, self.targets[member], order, known.served, member)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: fn(usize, usize) -> bool = |_, _| false;

    fn receiving(has: u64, sender: usize) -> ChainMember {
        ChainMember { has, sender: Some(sender), ..ChainMember::host() }
    }

    fn complete(served: u64) -> ChainMember {
        ChainMember { served, ..ChainMember::root() }
    }

    fn links(members: &[ChainMember]) -> Vec<(usize, usize)> {
        attach(members, NOBODY).links
    }

    #[test]
    fn hosts_that_come_together_form_one_chain() {
        let host = ChainMember::host;
        let members = [ChainMember::root(), host(), host(), host()];
        assert_eq!(links(&members), [(0, 1), (1, 2), (2, 3)]);
    }

    #[test]
    fn a_host_gets_the_object_from_the_end_of_a_chain_else_from_a_holder_else_from_the_root() {
        let host = ChainMember::host;
        let root = ChainMember::root;
        assert_eq!(links(&[root(), receiving(5, 0), complete(0), host()]), [(1, 3)]);
        assert_eq!(links(&[root(), complete(2), complete(1), host()]), [(2, 3)]);
        let busy = receiving(5, 1);
        assert_eq!(links(&[root(), complete(2), busy, receiving(4, 2), host()]), [(3, 4)]);
        let dead_end = ChainMember { sends: false, ..receiving(5, 1) };
        assert_eq!(links(&[root(), complete(2), dead_end, host()]), [(0, 3)]);
    }

    #[test]
    fn a_host_that_has_lost_its_sender_does_not_get_what_it_lacks_from_one_that_has_less() {
        let orphan = ChainMember { has: 7, ..ChainMember::host() };
        assert_eq!(links(&[ChainMember::root(), complete(0), receiving(5, 1), orphan]), [(0, 3)]);
    }

    #[test]
    fn those_behind_a_lost_member_stay_together() {
        let orphan = ChainMember { has: 7, ..ChainMember::host() };
        // 2 sends to 3; 4 has come.
        let members =
            [ChainMember::root(), receiving(9, 0), orphan, receiving(6, 2), ChainMember::host()];
        assert_eq!(links(&members), [(1, 2), (3, 4)]);
    }

    #[test]
    fn a_member_between_two_senders_keeps_those_to_which_it_sends() {
        let busy = ChainMember { has: 7, is_busy: true, ..ChainMember::host() };
        let members = [ChainMember::root(), busy, receiving(6, 1), ChainMember::host()];
        assert_eq!(links(&members), [(0, 3)]);
    }

    #[test]
    fn one_that_delays_others_sends_if_nobody_else_can() {
        let last = ChainMember { is_last: true, ..receiving(5, 0) };
        let members = [ChainMember::root(), last, ChainMember::host()];
        assert_eq!(links(&members), [(0, 2)]);
        let is_apart = |one: usize, other: usize| one.min(other) == 0 && one.max(other) == 2;
        assert_eq!(attach(&members, is_apart).links, [(1, 2)]);
    }

    #[test]
    fn hosts_that_no_chain_reaches_are_told_apart_from_those_whose_way_is_taken() {
        // 1 and 2 reach each other only; 3 reaches 4, which reaches the root, and sends to it.
        let is_apart = |one: usize, other: usize| {
            let pair = (one.min(other), one.max(other));
            ![(1, 2), (3, 4), (0, 4)].contains(&pair)
        };
        let host = ChainMember::host;
        let members = [ChainMember::root(), host(), host(), host(), receiving(3, 3)];
        let attached = attach(&members, is_apart);
        assert_eq!((attached.cut_off, attached.blocked), (vec![1, 2], vec![3]));
        assert_eq!(attached.links, []);
        // Once that is undone.
        let members = [ChainMember::root(), host(), host(), host(), host()];
        assert_eq!(attach(&members, is_apart).links, [(0, 4), (4, 3)]);
    }
}
