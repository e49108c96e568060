//! A network namespace with one interface, and a receiver's end of a group there.

use std::net::{TcpListener, TcpStream};

use transport_switch::{GroupEnd, Member, Unconnected};
use transport_tcp::TcpLink;

pub const OWN: [u8; 4] = [10, 9, 0, 1];
pub const ROOT: [u8; 4] = [10, 9, 0, 2];

/// Moves this thread into a network namespace with an interface. Returns false, with a message, if
/// this is not possible.
pub fn enter_network() -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root (network namespaces)");
        return false;
    }
    lab::enter_own_network().unwrap();
    lab::ip("link add h0 type veth peer name h1").unwrap();
    lab::ip("addr add 10.9.0.1/24 dev h0").unwrap();
    lab::ip("link set lo up").unwrap();
    lab::quiet("h0", 1500).unwrap();
    lab::quiet("h1", 1500).unwrap();
    true
}

/// Returns a receiver's end on the interface of [`enter_network`].
pub fn group_end() -> GroupEnd {
    let open = Unconnected::open(OWN.into(), &[ROOT.into()]).unwrap();
    assert_eq!(open.mtu_bytes(), 1024);
    let member = Member { root: ROOT.into(), qpn: 17, psn_first: 5, mtu_bytes: 1024 };
    GroupEnd::receiver(open.connect_member(&member).unwrap())
}

/// Returns a link, and the stream at its other end.
pub fn lifeline() -> (TcpLink, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    (TcpLink::from(own), peer)
}
