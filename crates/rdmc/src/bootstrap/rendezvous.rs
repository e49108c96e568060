//! Members meet at one address and learn of each other.
//!
//! One process (usually the root's) calls [`host`] with a listener; every other calls [`join`]
//! with that address. Each says under which address its context listens; all get the same list.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Channel, Deadline};
use crate::{Error, Secret};

#[derive(Debug, Serialize, Deserialize)]
struct Join {
    /// `None`: any rank that is left.
    rank: Option<u32>,
    /// An unspecified address stands for the one that this connection comes from.
    address: SocketAddr,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Members { rank: u32, addresses: Vec<SocketAddr> },
    Refused(String),
}

/// Waits until `members - 1` others have joined, and returns everybody's address by rank. The
/// caller has rank 0 and listens on `own`. Connections that do not authenticate are ignored.
///
/// Errors: deadline (names how many are missing), the system refuses.
pub fn host(
    listener: &TcpListener,
    secret: &Secret,
    members: u32,
    own: SocketAddr,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, Error> {
    let system = |error| Error::System { what: "accepting at the rendezvous".into(), error };
    listener.set_nonblocking(true).map_err(system)?;
    let mut joined: Vec<Option<(Channel, SocketAddr)>> = (0..members).map(|_| None).collect();
    let missing = |joined: &[Option<_>]| joined.iter().skip(1).filter(|j| j.is_none()).count();
    while missing(&joined) > 0 {
        if deadline.left().is_zero() {
            let what = format!("waiting for {} more members at the rendezvous", missing(&joined));
            return Err(deadline.missed(what));
        }
        let Ok((stream, peer)) = listener.accept() else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let _ = stream.set_nonblocking(false);
        let patience = Deadline::after(deadline.left().min(Duration::from_secs(5)));
        if let Err(error) = admit(stream, peer.ip(), secret, &mut joined, patience) {
            tracing::debug!(%error, "not admitted to the rendezvous");
        }
    }
    let addresses: Vec<SocketAddr> =
        joined.iter().map(|member| member.as_ref().map_or(own, |&(_, address)| address)).collect();
    for (rank, member) in (0..).zip(&mut joined) {
        if let Some((channel, _)) = member {
            channel.send(&Answer::Members { rank, addresses: addresses.clone() }, deadline)?;
        }
    }
    Ok(addresses)
}

fn admit(
    stream: std::net::TcpStream,
    peer: IpAddr,
    secret: &Secret,
    joined: &mut [Option<(Channel, SocketAddr)>],
    deadline: Deadline,
) -> Result<(), Error> {
    let mut channel = Channel::accept(stream, secret, deadline)?;
    let Join { rank, mut address } = channel.receive(deadline)?;
    if address.ip().is_unspecified() {
        address.set_ip(peer);
    }
    let free = |place: &Option<_>| place.is_none();
    let place = match rank {
        Some(rank) => joined.get_mut(rank as usize).filter(|place| rank > 0 && free(place)),
        None => joined.iter_mut().skip(1).find(|place| free(place)),
    };
    match place {
        Some(place) => *place = Some((channel, address)),
        None => {
            let reason = match rank {
                Some(rank) => format!("rank {rank} is taken, or not in this group"),
                None => "all ranks are taken".to_owned(),
            };
            channel.send(&Answer::Refused(reason), deadline)?;
        }
    }
    Ok(())
}

/// Joins at a rendezvous: says where this context listens, and returns this member's rank and
/// everybody's address. An unspecified IP in `own` (`0.0.0.0` or `::`) means the one by which
/// this process reaches the rendezvous.
///
/// Errors: unreachable, another secret, rank taken, deadline.
pub fn join(
    rendezvous: SocketAddr,
    secret: &Secret,
    rank: Option<u32>,
    own: SocketAddr,
    deadline: Deadline,
) -> Result<(u32, Vec<SocketAddr>), Error> {
    let mut channel = loop {
        match Channel::connect(rendezvous, secret, deadline) {
            Ok(channel) => break channel,
            Err(Error::Peer { cause, .. })
                if cause.starts_with("cannot connect") && !deadline.left().is_zero() =>
            {
                thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error),
        }
    };
    channel.send(&Join { rank, address: own }, deadline)?;
    match channel.receive(deadline)? {
        Answer::Members { rank, addresses } if (rank as usize) < addresses.len() => {
            Ok((rank, addresses))
        }
        Answer::Members { .. } => Err(Error::Peer {
            address: rendezvous,
            cause: "sent a member list that does not contain this member".into(),
        }),
        Answer::Refused(cause) => Err(Error::Peer { address: rendezvous, cause }),
    }
}
