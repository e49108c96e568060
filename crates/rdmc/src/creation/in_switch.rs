//! Creates a group whose blocks switches copy, over the links that bootstrap has connected.
//! Receivers open their queue pairs and send the parameters to the root; the root has the group
//! configured in the switches and sends the parameters of its own queue pair.
//!
//! Each message has a deadline and no reply. A member that fails sends the reason, so that all
//! members report the same member or switch.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use engine::GroupSettings;
use mcrdma::{GroupKey, Mac, plan};
use roce::Serial;
use serde::{Deserialize, Serialize};
use session::{Channel, Deadline};
use transport_switch::{
    GroupEnd, InsertError, MTUS_BYTES, Member, QueuePair, RECEIVERS_MAX, Registration, Root,
    Switches, Unconnected,
};

use super::{
    dialing::of_member,
    links::{Links, Wire},
    messages::shortened,
};
use crate::{Error, dispatcher};

/// Range of the random group identifiers, disjoint from the numbers of queue pairs.
const IDS: std::ops::Range<u32> = 0x80_0000..0x100_0000;
/// How many identifiers are tried until one is not in use.
const DRAWS_MAX: usize = 8;

/// A message from a receiver to the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FromReceiver {
    /// Its queue pair is open.
    Joins { mac: [u8; 6], mtu_bytes: u32, room_bytes: u32, qpn: u32 },
    /// It has no queue pair, and why.
    Cannot(String),
}

/// A message from the root to a receiver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FromRoot {
    /// All switches have the group.
    Stands { qpn: u32, psn_first: u32, mtu_bytes: u32 },
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

/// Joins the group as a receiver. Blocks until the root reports that the switches have the group,
/// or the deadline.
///
/// Errors: this host cannot open a queue pair, or the root reports why there is no group.
pub(crate) fn join(
    group: u64,
    wires: &mut Links,
    deadline: Deadline,
) -> Result<Option<GroupEnd>, Error> {
    let refused = |cause: String| Error::InSwitch { group, cause };
    let Some((rank, channel)) = channels(wires).next() else { return Ok(None) };
    let root = channel.peer().ip().to_canonical();
    let opened = local_ip(channel)
        .and_then(|local| Unconnected::open(local, &[root]).map_err(|error| error.to_string()));
    let open = match opened {
        Ok(open) => open,
        Err(reason) => {
            let sent = channel.send(&FromReceiver::Cannot(reason.clone()), deadline);
            sent.map_err(|error| of_member(rank, error))?;
            return Err(refused(format!("this member cannot join: {reason}")));
        }
    };
    let (mac, mtu_bytes, qpn) = (open.mac().0, open.mtu_bytes(), open.number());
    let room_bytes = u32::try_from(open.buffer_bytes()).unwrap_or(u32::MAX);
    let joins = FromReceiver::Joins { mac, mtu_bytes, room_bytes, qpn };
    let sent = channel.send(&joins, deadline);
    sent.map_err(|error| of_member(rank, error))?;
    match channel.receive(deadline).map_err(|error| of_member(rank, error))? {
        FromRoot::Stands { qpn, psn_first, mtu_bytes } => {
            let known = MTUS_BYTES.contains(&mtu_bytes) && mtu_bytes <= open.mtu_bytes();
            if !known || !is_qpn(qpn) || psn_first >= Serial::COUNT {
                return Err(refused(
                    "the root has sent invalid parameters for its queue pair".into(),
                ));
            }
            let member = Member { root, qpn, psn_first, mtu_bytes };
            let queue_pair = open.connect_member(&member);
            let queue_pair = queue_pair.map_err(|why| refused(format!("this member: {why}")))?;
            Ok(Some(GroupEnd::receiver(queue_pair)))
        }
        FromRoot::Refused(reason) => Err(refused(shortened(&reason))),
    }
}

/// Sets up the group as the root. Blocks until the group is in the switches, or the deadline.
/// `patience`: how long packets may remain unacknowledged later.
///
/// Errors: a receiver cannot join, or is lost; switches refuse. The reason is sent to all
/// receivers.
pub(crate) fn arrange(
    group: u64,
    wires: &mut Links,
    switches: &dyn Switches,
    patience: Duration,
    deadline: Deadline,
) -> Result<(Option<GroupEnd>, Option<dispatcher::Registration>), Error> {
    let links = wires.len();
    if links == 0 {
        return Ok((None, None));
    }
    let made = gather(group, wires, deadline).and_then(|(local, receivers)| {
        put_into_switches(local, &receivers, switches, patience, deadline)
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

/// Receives the parameters of all receivers. Returns the root's own address, too.
fn gather(
    group: u64,
    wires: &mut Links,
    deadline: Deadline,
) -> Result<(IpAddr, Vec<Receiver>), Error> {
    let refused = |cause: String| Error::InSwitch { group, cause };
    let (mut receivers, mut locals) = (Vec::new(), BTreeSet::new());
    for (rank, channel) in channels(wires) {
        let message = channel.receive(deadline).map_err(|error| of_member(rank, error))?;
        let address = channel.peer().ip().to_canonical();
        locals.insert(local_ip(channel).map_err(refused)?);
        receivers.push(validated(rank, address, message).map_err(refused)?);
    }
    let addresses: BTreeSet<IpAddr> = receivers.iter().map(|member| member.address).collect();
    if addresses.len() < receivers.len() {
        return Err(refused(
            "several members are on one host; a switch copies once to each".into(),
        ));
    }
    match locals.iter().collect::<Vec<_>>()[..] {
        [&local] => Ok((local, receivers)),
        ref several => Err(refused(format!(
            "members are reached from different addresses of the root ({several:?}); a group has \
             one interface"
        ))),
    }
}

/// Validates a receiver's parameters. Errors: the reason, with the member's rank and address.
fn validated(rank: u32, address: IpAddr, message: FromReceiver) -> Result<Receiver, String> {
    let (mac, mtu_bytes, room_bytes, qpn) = match message {
        FromReceiver::Joins { mac, mtu_bytes, room_bytes, qpn } => {
            (mac, mtu_bytes, room_bytes, qpn)
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
    Ok(Receiver { rank, address, mac: Mac(mac), mtu_bytes, room_bytes, qpn })
}

/// Opens the root's queue pair, has the group configured in the switches under a random identifier,
/// and connects the queue pair. Returns the message to receivers, too.
///
/// Errors: the step that failed, and why.
fn put_into_switches(
    local: IpAddr,
    receivers: &[Receiver],
    switches: &dyn Switches,
    patience: Duration,
    deadline: Deadline,
) -> Result<(QueuePair, Registration, FromRoot), String> {
    let peers: Vec<IpAddr> = receivers.iter().map(|member| member.address).collect();
    let open = Unconnected::open(local, &peers).map_err(|error| format!("the root: {error}"))?;
    let narrowest = receivers.iter().map(|member| member.mtu_bytes).min();
    let mtu_bytes = narrowest.unwrap_or(open.mtu_bytes()).min(open.mtu_bytes());
    let buffer_bytes = receivers.iter().map(|member| member.room_bytes).min().unwrap_or(0) as usize;
    let psn_first = draw(0..Serial::COUNT)?;
    for _ in 0..DRAWS_MAX {
        let id = draw(IDS)?;
        let group = as_switches_know(local, &open, (id, psn_first), receivers);
        // Receivers have the same deadline; the rest of the time is for the message to them.
        match switches.insert(&group, deadline.left() / 4 * 3) {
            Ok(inserted) => {
                let virtual_address = group.virtual_address;
                let root =
                    Root { virtual_address, id, psn_first, mtu_bytes, buffer_bytes, patience };
                let stands = FromRoot::Stands { qpn: open.number(), psn_first, mtu_bytes };
                let registration = Registration::new(inserted);
                let queue_pair = open.connect_root(&root);
                let queue_pair = queue_pair.map_err(|why| format!("the root: {why}"))?;
                return Ok((queue_pair, registration, stands));
            }
            Err(InsertError::Duplicate) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("{DRAWS_MAX} identifiers that were drawn at random are all in use"))
}

/// Describes the group to switches. The virtual peer has the address of the first receiver: no
/// address has to be reserved, and the switches' ARP replies for it are true.
fn as_switches_know(
    local: IpAddr,
    open: &Unconnected,
    (id, psn_first): (u32, u32),
    receivers: &[Receiver],
) -> plan::Group {
    let member = |receiver: &Receiver| plan::Member {
        address: receiver.address,
        mac: Some(receiver.mac),
        qpn: receiver.qpn,
        psn_offset: 0,
        regions: Vec::new(),
    };
    plan::Group {
        key: GroupKey { sender: local, id },
        sender_mac: Some(open.mac()),
        sender_qpn: open.number(),
        psn_first: Serial::new(psn_first),
        virtual_address: receivers[0].address,
        virtual_mac: receivers[0].mac,
        proof: Vec::new(),
        all_notifications: false,
        members: receivers.iter().map(member).collect(),
    }
}

/// Returns a random number. Errors: the system has none.
fn draw(range: std::ops::Range<u32>) -> Result<u32, String> {
    let random = getrandom::u32().map_err(|error| format!("no random numbers: {error}"))?;
    Ok(range.start + random % (range.end - range.start))
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
        let joins = FromReceiver::Joins { mac, mtu_bytes, room_bytes: 1 << 20, qpn };
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
