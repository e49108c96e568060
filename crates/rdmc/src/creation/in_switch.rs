//! Creates a group whose blocks switches copy, over the links that bootstrap has connected. The root
//! opens its queue pair and proposes the group; receivers open theirs, and send their parameters and
//! that switches may copy to them, signed; the root has the group configured in the switches.
//!
//! Each message has a deadline. A member that fails sends the reason, so that all
//! members report the same member or switch.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use engine::GroupSettings;
use mcrdma::{GroupKey, Mac, plan};
use roce::Serial;
use serde::{Deserialize, Serialize};
use session::{Channel, Deadline};
use transport_switch::{
    Delegates, GroupEnd, InsertError, MTUS_BYTES, Member, QueuePair, RECEIVERS_MAX, Registration,
    Root, Switches, Unconnected,
};

use super::{
    dialing::of_member,
    links::{Links, Wire},
    messages::shortened,
};
use crate::{ContextSettings, Error, dispatcher};

/// Range of the random group identifiers, disjoint from the numbers of queue pairs.
const IDS: std::ops::Range<u32> = 0x80_0000..0x100_0000;
/// How many identifiers are tried until one is not in use.
const DRAWS_MAX: usize = 8;

/// A message from a receiver to the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FromReceiver {
    /// Its queue pair is open. Agents of switches read the delegation.
    Joins { mac: [u8; 6], mtu_bytes: u32, room_bytes: u32, qpn: u32, delegation: Vec<u8> },
    /// It has no queue pair, and why.
    Cannot(String),
}

/// A message from the root to a receiver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FromRoot {
    /// Its queue pair is open; `instance` is a random number for this group.
    Proposes { qpn: u32, psn_first: u32, instance: u64 },
    /// All switches have the group.
    Stands { mtu_bytes: u32 },
    /// The group cannot be created, and why.
    Refused(String),
}

/// A receiver: what it has sent, and the address of its connection.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Receiver {
    rank: u32,
    address: IpAddr,
    mac: Mac,
    mtu_bytes: u32,
    /// Buffer for packets that it has received and not processed.
    room_bytes: u32,
    qpn: u32,
    delegation: Vec<u8>,
}

/// The root's end, before the switches have the group.
struct Proposed {
    local: IpAddr,
    open: Unconnected,
    psn_first: u32,
    instance: u64,
}

/// Checks that switches can copy to a group of this size.
///
/// Errors: the group is too large; the error contains the limit.
pub(crate) fn check_size(settings: &GroupSettings) -> Result<(), Error> {
    let receivers = settings.schedule.members() as usize - 1;
    if receivers > RECEIVERS_MAX {
        let cause = format!("{receivers} receivers; switches copy to at most {RECEIVERS_MAX}");
        return Err(Error::InSwitch { group: settings.number, cause });
    }
    Ok(())
}

/// Joins the group as the member that this is. Blocks until the switches have the group, or the deadline.
///
/// Errors: as for a receiver, or for the root.
pub(crate) fn join(
    group: &GroupSettings,
    settings: &ContextSettings,
    wires: &mut Links,
    deadline: Deadline,
) -> Result<(Option<GroupEnd>, Option<dispatcher::Registration>), Error> {
    match &settings.switches {
        Some(switches) if group.is_root() => {
            // The link detects a silent member before this timeout does, and names it.
            let ack_timeout = settings.tcp.silence_timeout.saturating_mul(2);
            arrange(group.number, wires, switches.as_ref(), ack_timeout, deadline)
        }
        _ => {
            let end = receive(group.number, wires, settings.delegates.as_deref(), deadline)?;
            Ok((end, None))
        }
    }
}

/// Joins the group as a receiver. Blocks until the root reports that the switches have the group,
/// or the deadline.
///
/// Errors: this host cannot open a queue pair or sign; or the root reports why there is no group.
fn receive(
    group: u64,
    wires: &mut Links,
    delegates: Option<&dyn Delegates>,
    deadline: Deadline,
) -> Result<Option<GroupEnd>, Error> {
    let refused = |cause: String| Error::InSwitch { group, cause };
    let invalid = || refused("the root has sent invalid parameters for its queue pair".into());
    let Some((rank, channel)) = channels(wires).next() else { return Ok(None) };
    let root = channel.peer().ip().to_canonical();
    let proposal = match channel.receive(deadline).map_err(|error| of_member(rank, error))? {
        FromRoot::Proposes { qpn, psn_first, instance }
            if is_qpn(qpn) && psn_first < Serial::COUNT =>
        {
            let psn_first = Serial::new(psn_first);
            plan::Proposal { sender: root, sender_qpn: qpn, psn_first, instance }
        }
        FromRoot::Proposes { .. } | FromRoot::Stands { .. } => return Err(invalid()),
        FromRoot::Refused(reason) => return Err(refused(shortened(&reason))),
    };
    let opened = local_ip(channel).and_then(|local| open_receiver(local, &proposal, delegates));
    let (open, joins) = match opened {
        Ok(opened) => opened,
        Err(reason) => {
            let sent = channel.send(&FromReceiver::Cannot(reason.clone()), deadline);
            sent.map_err(|error| of_member(rank, error))?;
            return Err(refused(format!("this member cannot join: {reason}")));
        }
    };
    let sent = channel.send(&joins, deadline);
    sent.map_err(|error| of_member(rank, error))?;
    match channel.receive(deadline).map_err(|error| of_member(rank, error))? {
        FromRoot::Stands { mtu_bytes }
            if MTUS_BYTES.contains(&mtu_bytes) && mtu_bytes <= open.mtu_bytes() =>
        {
            let (qpn, psn_first) = (proposal.sender_qpn, proposal.psn_first.get());
            let member = Member { root, qpn, psn_first, mtu_bytes };
            let queue_pair = open.connect_member(&member);
            let queue_pair = queue_pair.map_err(|why| refused(format!("this member: {why}")))?;
            Ok(Some(GroupEnd::receiver(queue_pair)))
        }
        FromRoot::Stands { .. } | FromRoot::Proposes { .. } => Err(invalid()),
        FromRoot::Refused(reason) => Err(refused(shortened(&reason))),
    }
}

/// Opens a receiver's queue pair, and signs that switches may copy to it. Errors: why not.
fn open_receiver(
    local: IpAddr,
    proposal: &plan::Proposal,
    delegates: Option<&dyn Delegates>,
) -> Result<(Unconnected, FromReceiver), String> {
    // First: without a certificate no right and no device helps.
    let delegates = delegates.ok_or(
        "it has no certificate with which to agree that switches copy to it, as all receivers started by `rdmc push`; start \
         `rdmc receive --listen` there with --cert, --key and --ca, and --fabric tcp,in-switch",
    )?;
    let open = Unconnected::open(local, &[proposal.sender]).map_err(|error| error.to_string())?;
    let (mac, mtu_bytes, qpn) = (open.mac(), open.mtu_bytes(), open.number());
    let delegation = delegates.delegate(proposal, &entry(local, mac, qpn))?;
    let room_bytes = u32::try_from(open.buffer_bytes()).unwrap_or(u32::MAX);
    Ok((open, FromReceiver::Joins { mac: mac.0, mtu_bytes, room_bytes, qpn, delegation }))
}

/// A receiver's entry in switches, not signed yet.
fn entry(address: IpAddr, mac: Mac, qpn: u32) -> plan::Member {
    let (regions, delegation) = (Vec::new(), Vec::new());
    plan::Member { address, mac: Some(mac), qpn, psn_offset: 0, regions, delegation }
}

/// Sets up the group as the root. Blocks until the group is in the switches, or the deadline.
/// `ack_timeout`: how long packets may remain unacknowledged later.
///
/// Errors: a receiver cannot join, or is lost; switches refuse. The reason is sent to all
/// receivers.
fn arrange(
    group: u64,
    wires: &mut Links,
    switches: &dyn Switches,
    ack_timeout: Duration,
    deadline: Deadline,
) -> Result<(Option<GroupEnd>, Option<dispatcher::Registration>), Error> {
    let links = wires.len();
    if links == 0 {
        return Ok((None, None));
    }
    let made = propose(group, wires, deadline).and_then(|proposed| {
        let receivers = gather(group, wires, deadline)?;
        put_into_switches(proposed, &receivers, switches, ack_timeout, deadline)
            .map_err(|cause| Error::InSwitch { group, cause })
    });
    let (queue_pair, registration, stands) = match made {
        Ok(made) => made,
        Err(error) => {
            let reason = match &error {
                Error::InSwitch { cause, .. } => cause.clone(),
                other => other.to_string(),
            };
            for (_, channel) in channels(wires) {
                // A receiver that is lost cannot receive the reason.
                let _ = channel.send(&FromRoot::Refused(reason.clone()), deadline);
            }
            return Err(error);
        }
    };
    for (rank, channel) in channels(wires) {
        channel.send(&stands, deadline).map_err(|error| of_member(rank, error))?;
    }
    let end = GroupEnd::root(queue_pair, links, registration.watch());
    Ok((Some(end), Some(Box::new(registration))))
}

/// Opens the root's queue pair, and proposes the group to all receivers. Errors: the step that failed, and why.
fn propose(group: u64, wires: &mut Links, deadline: Deadline) -> Result<Proposed, Error> {
    let refused = |cause: String| Error::InSwitch { group, cause };
    let (mut peers, mut locals) = (BTreeSet::new(), BTreeSet::new());
    let links = channels(wires).count();
    for (_, channel) in channels(wires) {
        peers.insert(channel.peer().ip().to_canonical());
        locals.insert(local_ip(channel).map_err(refused)?);
    }
    if peers.len() < links {
        return Err(refused(
            "several members are on one host; a switch copies once to each".into(),
        ));
    }
    let [local] = locals.iter().copied().collect::<Vec<_>>()[..] else {
        return Err(refused(format!(
            "members are reached from different addresses of the root ({locals:?}); a group has \
             one interface"
        )));
    };
    let open = Unconnected::open(local, &peers.into_iter().collect::<Vec<_>>());
    let open = open.map_err(|error| refused(format!("the root: {error}")))?;
    let psn_first = draw(0..Serial::COUNT).map_err(refused)?;
    let instance = getrandom::u64().map_err(|error| refused(no_random(error)))?;
    let proposes = FromRoot::Proposes { qpn: open.number(), psn_first, instance };
    for (rank, channel) in channels(wires) {
        channel.send(&proposes, deadline).map_err(|error| of_member(rank, error))?;
    }
    Ok(Proposed { local, open, psn_first, instance })
}

/// Receives the parameters of all receivers.
fn gather(group: u64, wires: &mut Links, deadline: Deadline) -> Result<Vec<Receiver>, Error> {
    let mut receivers = Vec::new();
    for (rank, channel) in channels(wires) {
        let message = channel.receive(deadline).map_err(|error| of_member(rank, error))?;
        let address = channel.peer().ip().to_canonical();
        let receiver = validated(rank, address, message);
        receivers.push(receiver.map_err(|cause| Error::InSwitch { group, cause })?);
    }
    Ok(receivers)
}

/// Validates a receiver's parameters. Errors: the reason, with the member's rank and address.
fn validated(rank: u32, address: IpAddr, message: FromReceiver) -> Result<Receiver, String> {
    let (mac, mtu_bytes, room_bytes, qpn, delegation) = match message {
        FromReceiver::Joins { mac, mtu_bytes, room_bytes, qpn, delegation } => {
            (mac, mtu_bytes, room_bytes, qpn, delegation)
        }
        FromReceiver::Cannot(reason) => {
            let reason = shortened(&reason);
            return Err(format!("member {rank} at {address} cannot join: {reason}"));
        }
    };
    let is_station = mac[0] & 1 == 0 && mac != [0; 6];
    if !is_station || !MTUS_BYTES.contains(&mtu_bytes) || !is_qpn(qpn) {
        return Err(format!(
            "member {rank} at {address} has sent invalid parameters for its queue pair"
        ));
    }
    Ok(Receiver { rank, address, mac: Mac(mac), mtu_bytes, room_bytes, qpn, delegation })
}

/// Has the group configured in the switches under a random identifier, and connects the root's queue pair. Returns
/// the message to receivers, too.
///
/// Errors: the step that failed, and why.
fn put_into_switches(
    proposed: Proposed,
    receivers: &[Receiver],
    switches: &dyn Switches,
    ack_timeout: Duration,
    deadline: Deadline,
) -> Result<(QueuePair, Registration, FromRoot), String> {
    let open = &proposed.open;
    let narrowest = receivers.iter().map(|member| member.mtu_bytes).min();
    let mtu_bytes = narrowest.unwrap_or(open.mtu_bytes()).min(open.mtu_bytes());
    let buffer_bytes = receivers.iter().map(|member| member.room_bytes).min().unwrap_or(0) as usize;
    for _ in 0..DRAWS_MAX {
        let id = draw(IDS)?;
        let group = as_switches_know(&proposed, id, receivers);
        // Receivers have the same deadline; the rest of the time is for the message to them.
        match switches.insert(&group, deadline.left() / 4 * 3) {
            Ok(inserted) => {
                let (virtual_address, psn_first) = (group.virtual_address, proposed.psn_first);
                let root =
                    Root { virtual_address, id, psn_first, mtu_bytes, buffer_bytes, ack_timeout };
                let registration = Registration::new(inserted);
                let queue_pair = proposed.open.connect_root(&root);
                let queue_pair = queue_pair.map_err(|why| format!("the root: {why}"))?;
                return Ok((queue_pair, registration, FromRoot::Stands { mtu_bytes }));
            }
            Err(InsertError::Duplicate) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("{DRAWS_MAX} identifiers that were drawn at random are all in use"))
}

/// Describes the group to switches. The virtual peer has the address of the first receiver: no
/// address has to be reserved, and the switches' ARP replies for it are true.
fn as_switches_know(proposed: &Proposed, id: u32, receivers: &[Receiver]) -> plan::Group {
    let member = |receiver: &Receiver| plan::Member {
        delegation: receiver.delegation.clone(),
        ..entry(receiver.address, receiver.mac, receiver.qpn)
    };
    plan::Group {
        key: GroupKey { sender: proposed.local, id },
        sender_mac: Some(proposed.open.mac()),
        sender_qpn: proposed.open.number(),
        psn_first: Serial::new(proposed.psn_first),
        instance: proposed.instance,
        virtual_address: receivers[0].address,
        virtual_mac: receivers[0].mac,
        all_notifications: false,
        members: receivers.iter().map(member).collect(),
    }
}

/// Returns a random number. Errors: the system has none.
fn draw(range: std::ops::Range<u32>) -> Result<u32, String> {
    let random = getrandom::u32().map_err(no_random)?;
    Ok(range.start + random % (range.end - range.start))
}

fn no_random(error: getrandom::Error) -> String {
    format!("cannot get random numbers: {error}")
}

const fn is_qpn(number: u32) -> bool {
    number >= 2 && number < Serial::COUNT
}

/// Returns one connection to each neighbour: the first if there are several.
fn channels(links: &mut Links) -> impl Iterator<Item = (u32, &mut Channel)> {
    links.iter_mut().filter_map(|(rank, link)| match link {
        Wire::Own(own) => own.channels.first_mut().map(|channel| (*rank, channel)),
        Wire::Shared(_) => None,
    })
}

fn local_ip(channel: &Channel) -> Result<IpAddr, String> {
    let address = channel.local_address().map_err(|error| format!("its own address: {error}"))?;
    Ok(address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::creation::messages::CAUSE_CHARS_MAX;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    fn joins(mac: [u8; 6], mtu_bytes: u32, qpn: u32) -> Result<Receiver, String> {
        let (room_bytes, delegation) = (1 << 20, Vec::new());
        let joins = FromReceiver::Joins { mac, mtu_bytes, room_bytes, qpn, delegation };
        validated(3, IpAddr::from([10, 0, 0, 3]), joins)
    }

    #[test]
    fn parameters_of_receivers_are_checked() {
        assert_eq!(joins(MAC, 1024, 17).unwrap().mac, Mac(MAC));
        let wrong = [
            ([0; 6], 1024, 17),
            ([0xff; 6], 1024, 17),
            (MAC, 0, 17),
            (MAC, 1500, 17),
            (MAC, 8192, 17),
            (MAC, 1024, 1),
            (MAC, 1024, 1 << 24),
        ];
        for (mac, mtu_bytes, qpn) in wrong {
            let error = joins(mac, mtu_bytes, qpn).unwrap_err();
            assert!(error.contains("member 3 at 10.0.0.3"), "{error}");
        }
    }

    /// Whether or not this process may open a queue pair.
    #[test]
    fn a_receiver_without_a_certificate_says_what_to_do() {
        let (sender, psn_first) = (IpAddr::from([10, 0, 0, 1]), Serial::new(1));
        let proposal = plan::Proposal { sender, sender_qpn: 17, psn_first, instance: 1 };
        let error = open_receiver(IpAddr::from([10, 0, 0, 3]), &proposal, None).err().unwrap();
        for words in ["no certificate", "--listen", "--cert, --key and --ca", "tcp,in-switch"] {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn reasons_are_shortened_without_control_characters() {
        let message = FromReceiver::Cannot(format!("no\u{1b}[2J{}", "x".repeat(10_000)));
        let error = validated(3, IpAddr::from([10, 0, 0, 3]), message).unwrap_err();
        assert!(error.contains("cannot join: no[2Jx"), "{error}");
        assert!(error.chars().count() < CAUSE_CHARS_MAX + 100);
    }

    #[test]
    fn numbers_are_drawn_from_their_range() {
        for _ in 0..1000 {
            assert!(IDS.contains(&draw(IDS).unwrap()));
            assert!(draw(5..6).unwrap() == 5);
        }
    }
}
