//! One member of a peer that is part of this program: what all of these do around a transfer.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use clap::ValueEnum;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{
    meeting::{connect_to, publish},
    multicast::{Udpcast, Uftp},
    site::{Load, Site},
    sockets::Sockets,
    times::Times,
    transfer::{Args, Transfer, Way},
    turn::Launch,
    workspace::Workspace,
};
use crate::{
    clock::{ClockId, now_ns},
    contents::{check, fill},
    outcome::Outcome,
};

/// Opens connections and their windows before the time starts.
const WARM_UP_BYTES: usize = 8 << 20;

/// One process for each member; they meet in a directory.
pub fn launches(
    way: Way,
    site: &Site,
    workspace: &mut Workspace,
    load: &Load,
) -> Outcome<Vec<Launch>> {
    let program = std::env::current_exe()?;
    let meeting = workspace.meeting()?.display().to_string();
    let memory = workspace.memory()?.display().to_string();
    let has_children = way.needs().is_some();
    let rate_kbit = site.link.map_or(0, |link| link.rate.bits_per_s() / 1_000);
    let way = way.to_possible_value().ok_or("no such way")?.get_name().to_owned();
    let mut launches = Vec::new();
    for (rank, host) in site.hosts.iter().enumerate() {
        let options = [
            ("--way", way.clone()),
            ("--rank", rank.to_string()),
            ("--members", site.hosts.len().to_string()),
            ("--address", host.address.to_string()),
            ("--device", site.device.to_owned()),
            ("--meeting", meeting.clone()),
            ("--memory", memory.clone()),
            ("--rate-kbit", rate_kbit.to_string()),
            ("--bytes", load.bytes.to_string()),
            ("--repeats", load.repeats.to_string()),
        ];
        let mut arguments = vec!["peer".to_owned()];
        arguments.extend(options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        launches.push(Launch {
            enter: host.enter.clone(),
            program: program.clone(),
            arguments,
            environment: Vec::new(),
            has_children,
        });
    }
    Ok(launches)
}

/// Takes part in all transfers, and prints the times.
pub fn run(args: &Args) -> Outcome<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Touched, since page faults would take longer than a transfer.
    let mut object = vec![1; args.bytes.max(WARM_UP_BYTES)];
    let mut barrier = Barrier::meet(args)?;
    let mut way: Box<dyn Transfer> = match args.way {
        Way::Copies | Way::Chain => {
            let mut sockets = Sockets::connect(args)?;
            sockets.transfer(&mut object[..WARM_UP_BYTES])?;
            Box::new(sockets)
        }
        Way::Udpcast => Box::new(Udpcast::new(args)),
        Way::Uftp => Box::new(Uftp::new(args)?),
    };
    for repeat in 0..args.repeats {
        let seed = u64::from(repeat + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        if args.rank == 0 {
            fill(&mut object[..args.bytes], seed);
        }
        way.prepare(&object[..args.bytes])?;
        barrier.wait()?;
        let cpu_ns = way.cpu_ns()?;
        let started_ns = way.transfer(&mut object[..args.bytes])?;
        let ended_ns = now_ns(ClockId::Monotonic);
        let cpu_ns = way.cpu_ns()? - cpu_ns;
        // Checking takes processor time, which would delay members that still receive.
        barrier.wait()?;
        way.finish(&mut object[..args.bytes])?;
        check(&object[..args.bytes], seed)?;
        println!("{}", Times { repeat, rank: args.rank, started_ns, ended_ns, cpu_ns });
    }
    // A member of a chain may still be needed by the next.
    barrier.wait()
}

/// Connections between the root and all other members.
struct Barrier {
    streams: Vec<TcpStream>,
    is_root: bool,
}

impl Barrier {
    fn meet(args: &Args) -> Outcome<Self> {
        let is_root = args.rank == 0;
        let mut streams = Vec::new();
        if is_root {
            let listener = TcpListener::bind((args.address, 0))?;
            publish(&args.meeting, "barrier", listener.local_addr()?)?;
            for _ in 1..args.members {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                streams.push(stream);
            }
        } else {
            streams.push(connect_to(&args.meeting, "barrier")?);
        }
        Ok(Self { streams, is_root })
    }

    /// Blocks until all members have called it.
    fn wait(&mut self) -> Outcome<()> {
        if !self.is_root {
            self.streams[0].write_all(&[1])?;
        }
        for stream in &mut self.streams {
            stream.read_exact(&mut [0])?;
        }
        if self.is_root {
            for stream in &mut self.streams {
                stream.write_all(&[1])?;
            }
        }
        Ok(())
    }
}
