//! Each data plane under load.

use std::{
    hint::black_box,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use data_plane::{DataPlane, KernelPlane, UserspacePlane, UserspaceTables};
use mcrdma::{Port, Switch};
use packet_socket::{BATCH, Interface, Offload, Outgoing};
use roce::ICRC_BYTES;

use super::{
    args::{Args, Plane},
    group::Case,
    network::{self, Carried, Network},
};
use crate::outcome::Outcome;

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub carried: Carried,
    /// NaN: not known.
    pub ns_per_packet: f64,
}

/// The logic alone takes no network.
pub fn run(args: &Args, case: &Case, network: Option<&Network>) -> Outcome<Run> {
    match (case.plane, network) {
        (Plane::Logic, _) => logic(args, case),
        (Plane::Kernel, Some(network)) => kernel(args, case, network),
        (Plane::Userspace, Some(network)) => userspace(args, case, network),
        (Plane::Sockets, Some(_)) => sockets(args, case),
        (_, None) => Err("a data plane needs a network".into()),
    }
}

/// A switch in the kernel, off its ports and gone when dropped.
struct Kernel {
    plane: Option<KernelPlane>,
    ports: usize,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let Some(mut plane) = self.plane.take() else { return };
        for port in 0..self.ports {
            // The ports go with the network in any case.
            let _ = plane.detach(&Network::port_name(port));
        }
        let _ = plane.unpin();
    }
}

fn kernel(args: &Args, case: &Case, network: &Network) -> Outcome<Run> {
    let name = format!("rdmc-bench-switch-{}", std::process::id());
    let plane = KernelPlane::open(&PathBuf::from("/sys/fs/bpf").join(name))?;
    let mut kernel = Kernel { plane: Some(plane), ports: case.members + 1 };
    let plane = kernel.plane.as_mut().ok_or("it was just opened")?;
    for port in 0..=case.members {
        plane.attach(&Network::port_name(port))?;
    }
    plane.insert(case.key(), &case.replication(network.ports()), None)?;
    let carried = network.load(args, case, || Ok(plane.counters()?))?;
    // Statistics cost time themselves, so that they have a run of their own.
    let _enabled = KernelPlane::enable_statistics()?;
    let before = plane.statistics()?;
    network.load(args, case, || Ok(plane.counters()?))?;
    let after = plane.statistics()?;
    let time = after.time.saturating_sub(before.time);
    let ns_per_packet = time.as_nanos() as f64 / (after.frames - before.frames) as f64;
    Ok(Run { carried, ns_per_packet })
}

/// A switch in userspace, which ends when it is dropped.
struct Userspace {
    tables: UserspaceTables,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Userspace {
    fn start(case: &Case) -> Outcome<Self> {
        let names: Vec<String> = (0..=case.members).map(Network::port_name).collect();
        let mut plane = UserspacePlane::open(names.iter().map(String::as_str))?;
        let (tables, stop) = (plane.tables(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        // Its sockets stay in the network in which they were made. If it fails, `taken` is below 1.
        let thread = thread::spawn(move || drop(plane.run(&stopped)));
        Ok(Self { tables, stop, thread: Some(thread) })
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn userspace(args: &Args, case: &Case, network: &Network) -> Outcome<Run> {
    let running = Userspace::start(case)?;
    let replication = case.replication(network.ports());
    running.tables.lock().tables.insert(case.key(), replication, None)?;
    let carried = network.load(args, case, || Ok(running.tables.lock().tables.counters))?;
    Ok(Run { carried, ns_per_packet: f64::NAN })
}

/// Sends frames of the copies' length in parts of the copies' lengths, the least that a switch on packet sockets does for its
/// copies.
fn sockets(args: &Args, case: &Case) -> Outcome<Run> {
    let open = |port| Interface::open(&Network::port_name(port), true);
    let ports = (1..=case.members).map(open).collect::<Result<Vec<_>, _>>()?;
    let frame = case.frame();
    let (head, rest) = frame.split_at(frame.len() - case.payload_bytes - ICRC_BYTES);
    let (payload, icrc) = rest.split_at(case.payload_bytes);
    let copy = Outgoing { offload: Offload::NONE, parts: [head, payload, icrc] };
    let copies = [copy; BATCH];
    let arrived_before = network::arrived(case.members)?;
    let (mut carried, start) = (Carried::default(), Instant::now());
    while start.elapsed() < Duration::from_secs_f64(args.seconds) {
        for port in &ports {
            let mut refused = 0;
            port.send_many(&copies, |_| refused += 1);
            carried.copies += BATCH as u64 - refused;
            carried.copies_failed += refused;
        }
    }
    carried.seconds = start.elapsed().as_secs_f64();
    thread::sleep(network::SETTLING);
    carried.arrived = network::arrived(case.members)? - arrived_before;
    let packets = carried.copies as f64 / case.members as f64;
    Ok(Run { carried, ns_per_packet: carried.seconds * 1e9 / packets })
}

/// Packets that are copied between two reads of the clock.
const AT_ONCE: u64 = 256;

fn logic(args: &Args, case: &Case) -> Outcome<Run> {
    let ports: Vec<Port> = (1..).take(case.members + 1).collect();
    let mut switch = Switch::new();
    switch.tables.insert(case.key(), case.replication(&ports), None)?;
    let mut frame = case.frame();
    let (mut carried, start) = (Carried::default(), Instant::now());
    while start.elapsed() < Duration::from_secs_f64(args.seconds) {
        for _ in 0..AT_ONCE {
            switch.handle(0, ports[0], black_box(&mut frame), |_, copy| {
                carried.arrived += 1;
                black_box(copy);
                true
            });
        }
        carried.requests += AT_ONCE;
    }
    carried.seconds = start.elapsed().as_secs_f64();
    Ok(Run { carried, ns_per_packet: carried.seconds * 1e9 / carried.requests as f64 })
}
