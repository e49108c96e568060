//! A network namespace with a switch's ports: a sender at the first, counters at the others' ends.

use std::{
    fs, io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use mcrdma::{Counter, Counters, Port};
use packet_socket::{Interface, Offload};

use super::{args::Args, group::Case};
use crate::outcome::Outcome;

const MTU_BYTES: u32 = 9000;
/// Within this time copies of packets that were sent arrive.
pub const SETTLING: Duration = Duration::from_millis(20);
/// Counters that have not changed for this long do not change any more: the switch could not take all packets.
const UNCHANGED: Duration = Duration::from_millis(500);
/// The longest wait for counters that still change.
const SETTLING_MAX: Duration = Duration::from_secs(10);

/// Ports `s0` on of a switch that is not yet started, and their other ends, `h0` on. It is removed with the thread that
/// makes it, which moves into it.
pub struct Network {
    sender: Interface,
    /// Interface numbers of the switch's ends.
    ports: Vec<Port>,
}

/// What was counted under one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    pub seconds: f64,
    /// Packets that the sender's port took.
    pub sent: u64,
    /// Packets that the switch took.
    pub requests: u64,
    pub copies: u64,
    pub copies_failed: u64,
    /// Copies that came out at the ports' other ends.
    pub arrived: u64,
}

impl Network {
    /// Moves this thread into it. Needs root, and iproute2.
    pub fn enter(members: usize) -> Outcome<Self> {
        lab::enter_own_network()?;
        for port in 0..=members {
            lab::ip(&format!("link add s{port} type veth peer name h{port}"))?;
            lab::quiet(&format!("s{port}"), MTU_BYTES)?;
            lab::quiet(&format!("h{port}"), MTU_BYTES)?;
        }
        let sender = Interface::open("h0", false)?;
        let number = |port| rustix::net::netdevice::name_to_index(&sender, &Self::port_name(port));
        let ports = (0..=members).map(number).collect::<Result<_, _>>()?;
        Ok(Self { sender, ports })
    }

    /// The switch's end of a port; the sender is at port 0.
    pub fn port_name(port: usize) -> String {
        format!("s{port}")
    }

    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Sends packets of a group for a while, as fast as possible or at a given rate, and counts their copies.
    pub fn load(
        &self,
        args: &Args,
        case: &Case,
        counters: impl Fn() -> Outcome<Counters>,
    ) -> Outcome<Carried> {
        let (counted_before, arrived_before) = (counters()?, arrived(case.members)?);
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        let sent = thread::scope(|scope| {
            let sender = scope.spawn(|| self.send(&case.frame(), args.packets_per_s, &stop));
            thread::sleep(Duration::from_secs_f64(args.seconds));
            stop.store(true, Ordering::Relaxed);
            sender.join().map_err(|_| "the sender has failed")
        })??;
        let seconds = start.elapsed().as_secs_f64();
        let all = counted_before.counted(Counter::Request) + sent;
        // At a given rate it can take all.
        let timeout = args.packets_per_s.map_or(UNCHANGED, |_| SETTLING_MAX);
        let counted = settled(&counters, all, timeout)?;
        let since = |counter| counted.counted(counter) - counted_before.counted(counter);
        Ok(Carried {
            seconds,
            sent,
            requests: since(Counter::Request),
            copies: since(Counter::Copy),
            copies_failed: since(Counter::CopyFailed),
            arrived: arrived(case.members)? - arrived_before,
        })
    }

    /// Answers how many frames its port took.
    fn send(&self, frame: &[u8], packets_per_s: Option<u64>, stop: &AtomicBool) -> io::Result<u64> {
        const NO_ROOM: Option<i32> = Some(rustix::io::Errno::NOBUFS.raw_os_error());
        let start = Instant::now();
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            if let Some(rate) = packets_per_s
                && sent as f64 >= start.elapsed().as_secs_f64() * rate as f64
            {
                thread::sleep(Duration::from_micros(50));
                continue;
            }
            match self.sender.send(Offload::NONE, frame) {
                Ok(()) => sent += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.raw_os_error() == NO_ROOM => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }
}

/// The counters, when they have all of this many packets, or have not changed for this long.
fn settled(
    counters: &impl Fn() -> Outcome<Counters>,
    requests: u64,
    timeout: Duration,
) -> Outcome<Counters> {
    let deadline = Instant::now() + SETTLING_MAX;
    let (mut last, mut changed) = (counters()?, Instant::now());
    loop {
        thread::sleep(SETTLING);
        let counted = counters()?;
        let is_unchanged = counted == last;
        let has_all = counted.counted(Counter::Request) >= requests;
        if is_unchanged && (has_all || changed.elapsed() > timeout) || Instant::now() > deadline {
            return Ok(counted);
        }
        if !is_unchanged {
            (last, changed) = (counted, Instant::now());
        }
    }
}

/// Frames that have come out at the members' ends.
pub fn arrived(members: usize) -> Outcome<u64> {
    // Where /sys is mounted it shows another network.
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let received = |member: usize| {
        let name = format!("h{member}:");
        let fields = table.lines().find_map(|line| line.trim_start().strip_prefix(&name))?;
        fields.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    (1..=members)
        .map(|member| received(member).ok_or_else(|| format!("h{member} is not there").into()))
        .sum()
}
