//! Direct copies over addresses of one link: another link of the machine may have the same.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::{Ipv6Addr, SocketAddrV6, TcpStream},
    os::fd::AsFd,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Socket, Type};
use transport::Transport;

use crate::{
    common::*,
    direct::{Raw, can_copy},
};

/// Addresses of links that are ready for use, each with the number of its interface.
fn addresses() -> Vec<(Ipv6Addr, u32)> {
    const LINK: u32 = 0x20;
    const TENTATIVE: u32 = 0x40;
    let text = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let parsed = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let bits = u128::from_str_radix(words.next()?, 16).ok()?;
        let [interface, _prefix, scope, flags] =
            [(); 4].map(|()| words.next().and_then(|word| u32::from_str_radix(word, 16).ok()));
        (scope? == LINK && flags? & TENTATIVE == 0)
            .then_some((Ipv6Addr::from_bits(bits), interface?))
    });
    parsed.collect()
}

/// Returns a stream within a machine, the end with the first of these ports first; 0 is any.
fn stream(ip: Ipv6Addr, interface: u32, [first, second]: [u16; 2]) -> (TcpStream, TcpStream) {
    let bound = |port| {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddrV6::new(ip, port, 0, interface).into()).unwrap();
        socket
    };
    let (listener, socket) = (bound(first), bound(second));
    listener.listen(1).unwrap();
    socket.connect(&listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0.into(), socket.into())
}

/// Both ends take the same name for their stream.
#[test]
fn blocks_over_an_address_of_a_link_are_copied_directly() {
    if !can_copy() {
        return;
    }
    let Some((ip, interface)) = addresses().pop() else {
        skipped("no interface of this machine has a link-local address");
        return;
    };
    let (one, other) = stream(ip, interface, [0, 0]);
    let mut ends = [one, other].map(|stream| {
        let mut transport = transport(&patient());
        transport.open(stream.into()).unwrap();
        transport
    });
    let [one, other] = &mut ends;
    assert!(become_neighbours(&mut [one, other], 1));
}

/// A member has a stream with a reader, and one with another process of the reader's user, whose ends have the same addresses the
/// other way round. It forwards what the reader challenges it with.
#[test]
fn links_with_the_same_address_are_told_apart() {
    if !can_copy() {
        return;
    }
    let all = addresses();
    let twins = all.iter().flat_map(|one| all.iter().map(move |other| (one, other)));
    let Some((&(ip, one), &(_, other))) =
        { twins }.find(|(one, other)| one.0 == other.0 && one.1 < other.1)
    else {
        skipped("no two interfaces of this machine have the same link-local address");
        return;
    };
    let (readers, members) = stream(ip, one, [0, 0]);
    let port = |stream: &TcpStream| stream.local_addr().unwrap().port();
    let ports = [port(&readers), port(&members)];
    let mut reader = Raw::over(readers, members);
    let (mut members, users) = stream(ip, other, ports);
    let mut user = transport(&patient());
    user.open(users.into()).unwrap();

    assert!(reader.introduce(std::process::id()));
    let mut forwarded = challenge();
    forwarded[16..].copy_from_slice(&reader.proof[..]);
    members.write_all(&forwarded).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while user.counters().refused_introductions == 0 {
        assert!(Instant::now() < deadline, "it said that the reader's stream is its own");
        user.poll(&mut Vec::new(), Duration::from_millis(1));
    }
    let address = reader.proof.as_ptr().addr() as u64;
    assert!(!reader.prove(address));
}

/// Runs both where two interfaces have the same address: in a network of their own, which root makes.
#[test]
fn links_are_tested_as_an_ordinary_user() {
    if !is_root() {
        return;
    }
    const NETWORK: &str = "set -e
ip link add v0 type veth peer name v1
for interface in lo v0 v1; do ip link set $interface up; done
for interface in lo v0; do ip -6 address add fe80::1/64 dev $interface nodad; done
echo ready
read -r line";
    let network = Command::new("unshare")
        .args(["--net", "sh", "-c", NETWORK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut network = match network {
        Ok(network) => network,
        Err(error) => return skipped(&format!("links with the same address: unshare: {error}")),
    };
    let mut line = String::new();
    BufReader::new(network.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line != "ready\n" {
        network.wait().unwrap();
        return skipped("links with the same address: this root can make none");
    }
    let place = File::open(format!("/proc/{}/ns/net", network.id())).unwrap();
    let run = thread::spawn(move || {
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        testing::run_as_ordinary_user(&["link_local::"])
    });
    let said = run.join();
    // The end of its input ends it.
    drop(network.stdin.take());
    network.wait().unwrap();
    if let Some(said) = said.unwrap() {
        assert!(
            said.text.contains("told_apart ... ok") && said.skipped.is_empty(),
            "{}",
            said.text
        );
    }
}
