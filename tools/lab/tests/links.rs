//! The rates of the links of a lab, and what they carry. Skipped without root.
//!
//! Times are compared with the least that a rate allows, which holds on a machine of any speed.

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSettings, Link, Rate};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::{is_skipped, namespaces};

const BYTES: usize = 1_000_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection between two hosts, each end from a thread in its namespace.
fn connect(lab: &Lab, from: u32, to: u32) -> (TcpStream, TcpStream) {
    let on = |host| {
        let path = format!("/run/netns/{}", lab.host_name(host));
        let namespace = File::open(path).expect("the host is there");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("as root");
    };
    let address = SocketAddr::new(lab.hosts()[to as usize].address, 0);
    thread::scope(|scope| {
        let listen = || {
            on(to);
            TcpListener::bind(address).expect("its own address")
        };
        let listener = scope.spawn(listen).join().expect("listening");
        let address = listener.local_addr().expect("an address");
        let call = move || {
            on(from);
            TcpStream::connect_timeout(&address, TIMEOUT).expect("they can reach each other")
        };
        let stream = scope.spawn(call).join().expect("calling");
        (stream, listener.accept().expect("the call").0)
    })
}

/// How long it takes to send [`BYTES`] from one host to another.
fn time(lab: &Lab, from: u32, to: u32) -> Duration {
    let (mut source, mut target) = connect(lab, from, to);
    target.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || source.write_all(&vec![7; BYTES]).expect("the target reads"));
        target.read_exact(&mut vec![0; BYTES]).expect("all arrives");
    });
    start.elapsed()
}

/// The least time for [`BYTES`] at this rate, after the burst and one more packet of TCP.
fn least(mbit: u64) -> Duration {
    let burst = Link::of_rate(Rate::from_mbit(mbit)).burst_bytes();
    Duration::from_micros((BYTES as u64 - 2 * burst) * 8 / mbit)
}

fn link(mbit: u64) -> Link {
    Link::of_rate(Rate::from_mbit(mbit))
}

/// Racks of two hosts: links are of 80 Mbit/s, uplinks of 20, and host 3's of 10.
fn racks() -> LabSettings {
    LabSettings {
        racks: 3,
        uplink: Some(link(20)),
        slow_hosts: vec!["3:10mbit".parse().expect("a slow host")],
        ..LabSettings::new(6, link(80))
    }
}

#[test]
fn uplinks_and_slow_hosts_have_rates_of_their_own() {
    if is_skipped() {
        return;
    }
    let lab = Lab::create(&racks()).expect("a lab");
    let within = time(&lab, 0, 1);
    assert!(within >= least(80), "{within:?}");
    let across = time(&lab, 0, 4);
    assert!(across >= least(20), "{across:?}");
    for (from, to) in [(2, 3), (3, 2)] {
        let slow = time(&lab, from, to);
        assert!(slow >= least(10), "{slow:?}");
    }
}

#[test]
fn hosts_count_what_they_send() {
    if is_skipped() {
        return;
    }
    for mtu_bytes in [1_500, 4_200] {
        let link = link(80).with_mtu(mtu_bytes);
        let lab = Lab::create(&LabSettings::new(2, link)).expect("a lab");
        time(&lab, 0, 1);
        let sent = lab.sent_bytes().expect("counters");
        let mtu = u64::from(mtu_bytes);
        let least = BYTES as u64 * (mtu + 14) / (mtu - 52);
        assert!((least..least + least / 100).contains(&sent[0]), "MTU {mtu}: {sent:?}, {least}");
        assert!(sent[1] < least / 20, "acknowledgements alone: {sent:?}");
    }
}

#[test]
fn uplinks_count_what_crosses_them() {
    if is_skipped() {
        return;
    }
    let lab = Lab::create(&racks()).expect("a lab");
    let mut before = lab.uplink_bytes().expect("counters");
    assert_eq!(before.len(), 3);
    let mut crossed = |from, to| {
        time(&lab, from, to);
        let now = lab.uplink_bytes().expect("counters");
        let grown = now
            .iter()
            .zip(&before)
            .map(|(now, before)| (now.leaving - before.leaving, now.entering - before.entering));
        let grown: Vec<_> = grown.collect();
        before = now;
        grown
    };
    let is_all = |bytes: u64| (BYTES as u64..BYTES as u64 * 3 / 2).contains(&bytes);
    let is_little = |bytes: u64| bytes < BYTES as u64 / 4;
    let grown = crossed(0, 1);
    assert!(grown.iter().all(|&(leaving, entering)| is_little(leaving) && is_little(entering)));
    let grown = crossed(1, 4);
    assert!(is_all(grown[0].0) && is_little(grown[0].1), "{grown:?}");
    assert!(is_all(grown[2].1) && is_little(grown[2].0), "{grown:?}");
    assert!(is_little(grown[1].0) && is_little(grown[1].1), "{grown:?}");
}

/// What a class of a host's shaper has sent so far: `2:1` is without a limit of its own, `2:2` the first slow one.
fn class_bytes(lab: &Lab, host: u32, class: &str) -> u64 {
    let name = lab.host_name(host);
    let output =
        Command::new("tc").args(["-n", &name, "-s", "class", "show", "dev", "eth0"]).output();
    let text = String::from_utf8(output.expect("tc runs").stdout).expect("text");
    let after = text.split(&format!("class htb {class} ")).nth(1).expect("the class");
    let bytes = after.split("Sent ").nth(1).and_then(|rest| rest.split(' ').next());
    bytes.expect("statistics").parse().expect("a number")
}

#[test]
fn a_slow_link_slows_nothing_else() {
    if is_skipped() {
        return;
    }
    let slow_links = vec!["2-0:10mbit".parse().expect("a slow link")];
    let settings = LabSettings { slow_links, ..LabSettings::new(3, link(80)) };
    let lab = Lab::create(&settings).expect("a lab");
    for (from, to, is_slow) in [(0, 2, true), (0, 1, false), (2, 1, false), (2, 0, true)] {
        let sent = || ["2:1", "2:2"].map(|class| class_bytes(&lab, from, class));
        let before = sent();
        let time = time(&lab, from, to);
        let [fast, slow] = [0, 1].map(|class| sent()[class] - before[class]);
        let (used, unused) = if is_slow { (slow, fast) } else { (fast, slow) };
        assert!(used >= BYTES as u64 && unused < BYTES as u64 / 20, "{from}-{to}: {fast}, {slow}");
        assert!(!is_slow || time >= least(10), "{from}-{to}: {time:?}");
    }
}

#[test]
fn a_temporary_lab_is_removed_when_it_is_dropped_or_its_process_ends() {
    if is_skipped() {
        return;
    }
    // No process has such a number.
    let abandoned = "bench-4294967295-0";
    let host = format!("rdmc-{abandoned}-0");
    assert!(Command::new("ip").args(["netns", "add", &host]).status().expect("ip runs").success());
    let lab = Lab::create(&LabSettings::new(2, link(100).with_small_burst())).expect("a lab");
    assert!(namespaces(abandoned).is_empty());
    let name = lab.name().to_owned();
    assert_eq!((namespaces(&name).len(), lab.hosts().len()), (3, 2));
    assert_eq!(lab.uplink_bytes().expect("none"), []);
    drop(lab);
    assert!(namespaces(&name).is_empty());
}

/// Otherwise packets of a flow overtake each other, which receivers of RoCE take for loss.
#[test]
fn all_links_hand_a_flow_to_one_processor() {
    if is_skipped() {
        return;
    }
    if !Path::new("/sys/class/net/lo/queues/rx-0/rps_cpus").exists() {
        return eprintln!("SKIPPED: a kernel for one processor, which has no RPS");
    }
    let lab = Lab::create(&racks()).expect("a lab");
    for namespace in namespaces(lab.name()) {
        let script = "cd /sys/class/net; grep . eth*/queues/rx-*/rps_cpus port*/queues/rx-*/rps_cpus \
                      in*/queues/rx-*/rps_cpus out*/queues/rx-*/rps_cpus 2>&-; true";
        let mut shell = Command::new("ip");
        shell.args(["netns", "exec", &namespace, "sh", "-c", script]);
        let text = String::from_utf8(shell.output().expect("ip runs").stdout).expect("text");
        let queues: Vec<_> = text.lines().filter_map(|line| line.split_once(':')).collect();
        assert!(!queues.is_empty(), "{namespace}: {text}");
        for (queue, processors) in queues {
            let has_none = processors.trim_matches(['0', ',']).is_empty();
            assert!(!has_none, "{namespace}: {queue}: {processors}");
        }
    }
}
