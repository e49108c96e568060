//! The interface through which the peers are reached.

use std::{collections::BTreeSet, net::IpAddr};

use if_addrs::{IfAddr, Interface};
use routes::{Kernel, Station};

use crate::OpenError;

/// Returns the interface that has the address `local`, and the router on the path to the first of
/// the peers.
///
/// Errors: there is none, or a peer is reached through another one.
pub(crate) fn to_peers(
    local: IpAddr,
    peers: &[IpAddr],
) -> Result<(Interface, Option<IpAddr>), OpenError> {
    let interfaces = if_addrs::get_if_addrs()
        .map_err(|error| OpenError::Interface(format!("listing network interfaces: {error}")))?;
    let found = interfaces.into_iter().find(|interface| interface.ip() == local);
    let interface = found.ok_or(OpenError::NoInterface(local))?;
    if interface.is_loopback() {
        return Err(OpenError::Loopback(local));
    }
    let next_hops = next_hops(&interface, peers)?;
    Ok((interface, next_hops.first().copied().flatten()))
}

/// Returns the routers on the paths to peers, if there are any.
///
/// Errors: a peer is not reached through this interface.
fn next_hops(interface: &Interface, peers: &[IpAddr]) -> Result<Vec<Option<IpAddr>>, OpenError> {
    if peers.iter().all(|&peer| is_on_link(interface, peer)) {
        return Ok(vec![None; peers.len()]);
    }
    let index = interface.index.unwrap_or_default();
    let unread = |error| OpenError::Interface(format!("reading routes: {error}"));
    let snapshot = Kernel::open().and_then(|mut kernel| kernel.snapshot()).map_err(unread)?;
    let next_hop = |&peer: &IpAddr| {
        let station = Station { address: peer, mac: None };
        match snapshot.hops(&BTreeSet::from([index]), station) {
            Ok(hops) => Ok(hops.first().and_then(|hop| hop.gateway)),
            // The queue pair will resolve its Ethernet address.
            Err(why) => match why.to_ask() {
                Some(asked) => Ok(Some(asked.address).filter(|&address| address != peer)),
                None => Err(OpenError::Unreached {
                    local: interface.ip(),
                    interface: interface.name.clone(),
                    peer,
                    why: why.to_string(),
                }),
            },
        }
    };
    peers.iter().map(next_hop).collect()
}

fn is_on_link(interface: &Interface, peer: IpAddr) -> bool {
    match (&interface.addr, peer) {
        (IfAddr::V4(own), IpAddr::V4(peer)) => {
            let mask = own.netmask.to_bits();
            own.ip.to_bits() & mask == peer.to_bits() & mask
        }
        (IfAddr::V6(own), IpAddr::V6(peer)) => {
            let mask = own.netmask.to_bits();
            own.ip.to_bits() & mask == peer.to_bits() & mask
        }
        _ => false,
    }
}
