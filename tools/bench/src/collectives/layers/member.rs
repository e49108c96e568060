//! One of two processes that exchange messages.

use std::{
    env,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    time::Instant,
};

use clap::ValueEnum;
use rdmc::{Context, ContextSettings, Fabric, Protection, Secret, TeamSettings};
use rustix::process::{Signal, set_parent_process_death_signal};
use team::{Team, WriteEnds};
use transport_fabric::{FabricLink, FabricSettings, FabricTransport, Role};
use transport_shm::{OFFER_BYTES, Offer, ShmLink, ShmSettings, ShmTransport};
use transport_tcp::{TcpSettings, TcpTransport};

use super::{
    super::team_member::SECRET,
    pair::{Counted, Pair, TIMEOUT, Wait, measured},
    pairs::{LibraryPair, Sockets, TeamPair},
    writes::Writes,
};
use crate::{outcome::Outcome, peers::meeting};

/// What the line of a result begins with.
pub const PREFIX: &str = "layer ";

/// What exchanges messages, from the system up to the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Layer {
    /// Sockets that block
    BlockingSockets,
    /// Sockets that are polled
    PolledSockets,
    /// Writes that are not reported
    Unreported,
    /// Writes that are reported
    Reported,
    /// The same without letting others run
    ReportedSpinning,
    /// Allreduces that see the last byte of writes
    TeamLastByte,
    /// Allreduces that see words of writes
    TeamWords,
    /// Allreduces, over a fabric by reports
    Team,
    /// The same without letting others run
    TeamSpinning,
    /// Allreduces of the library
    Library,
    /// Writes over shared memory
    SharedWrite,
    /// Allreduces over shared memory
    SharedTeam,
    /// Allreduces of the library over shared memory
    SharedLibrary,
}

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    layer: Layer,
    #[arg(long)]
    fabric: Fabric,
    #[arg(long)]
    rank: u32,
    /// The directory in which both find each other
    #[arg(long)]
    meeting: PathBuf,
    #[arg(long)]
    operations: u32,
}

/// Runs all operations, closes everything, and prints what this member saw: then it may be killed. Members that are killed
/// earlier leave shared memory with their process's number behind, which a later process of that number finds in use.
pub fn run(args: &Args) -> Outcome<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let [other, lifeline] = streams(args)?;
    let pair: Box<dyn Pair> = match (args.layer, &args.fabric) {
        (Layer::Library | Layer::SharedLibrary, _) => Box::new(join(args)?),
        (Layer::SharedWrite | Layer::SharedTeam, _) => {
            let transport = ShmTransport::new(ShmSettings::default())?;
            below_library(args, transport, shared_link(args, &other)?)?
        }
        (layer @ (Layer::BlockingSockets | Layer::PolledSockets), _) => {
            Box::new(Sockets::new(lifeline, layer == Layer::PolledSockets)?)
        }
        (_, Fabric::Tcp) => {
            below_library(args, TcpTransport::new(TcpSettings::default())?, lifeline.into())?
        }
        (_, Fabric::Libfabric { provider, devices }) => {
            let mut settings = FabricSettings::new(provider);
            settings.devices.clone_from(devices);
            settings.near = Some([127, 0, 0, 1].into());
            let transport = FabricTransport::start(settings, TcpSettings::default())?;
            let offer = transport.offers().make()?;
            let theirs = swap(&other, offer.bytes())?;
            let role = if args.rank == 0 { Role::Accept } else { Role::Connect };
            let link = FabricLink::new(lifeline.into(), role, offer, &theirs)?;
            below_library(args, transport, link)?
        }
        (_, other) => return Err(format!("no layers are measured over {other}").into()),
    };
    let seen = measured(args.operations, pair, &other)?;
    let counts: String = seen.counts.iter().map(|count| format!(" {count}")).collect();
    println!("{PREFIX}{} {} {}{counts}", args.rank, seen.us, seen.sleeps);
    Ok(())
}

fn below_library<T: Counted + 'static>(
    args: &Args,
    transport: T,
    link: T::Link,
) -> Outcome<Box<dyn Pair>> {
    let wait = match args.layer {
        Layer::ReportedSpinning | Layer::TeamSpinning => Wait::Spinning,
        _ => Wait::Yielding,
    };
    let ends = match args.layer {
        Layer::Unreported => return Ok(Box::new(Writes::new(transport, link, false, wait)?)),
        Layer::Reported | Layer::ReportedSpinning | Layer::SharedWrite => {
            return Ok(Box::new(Writes::new(transport, link, true, wait)?));
        }
        Layer::TeamLastByte => WriteEnds::LastByte,
        Layer::TeamWords => WriteEnds::Words,
        _ if args.fabric == Fabric::Tcp => WriteEnds::Auto,
        _ => WriteEnds::Reports,
    };
    let mut settings = team::TeamSettings::new(1, 2, args.rank);
    settings.ends = ends;
    let team = Team::new(transport, settings, [(1 - args.rank, link)])?;
    Ok(Box::new(TeamPair { team, wait }))
}

/// Two connections to the other process.
fn streams(args: &Args) -> Outcome<[TcpStream; 2]> {
    let name = "layers";
    let [one, other] = if args.rank == 0 {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        meeting::publish(&args.meeting, name, listener.local_addr()?)?;
        [listener.accept()?.0, listener.accept()?.0]
    } else {
        [meeting::connect_to(&args.meeting, name)?, meeting::connect_to(&args.meeting, name)?]
    };
    for stream in [&one, &other] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
    }
    Ok([one, other])
}

/// Over memory that both processes have mapped.
fn shared_link(args: &Args, mut other: &TcpStream) -> Outcome<ShmLink> {
    if args.rank == 0 {
        let offer = Offer::make()?;
        other.write_all(offer.bytes())?;
        return Ok(offer.accept(TIMEOUT)?);
    }
    let mut offer = [0; OFFER_BYTES];
    other.read_exact(&mut offer)?;
    Ok(ShmLink::connect(&offer)?)
}

/// Gives bytes to the other process, and returns its own.
fn swap(mut stream: &TcpStream, ours: &[u8]) -> Outcome<Vec<u8>> {
    stream.write_all(&u32::try_from(ours.len())?.to_le_bytes())?;
    stream.write_all(ours)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut theirs = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut theirs)?;
    Ok(theirs)
}

/// A member of a team of the library.
fn join(args: &Args) -> Outcome<LibraryPair> {
    let secret = Secret::from_hex(&env::var(SECRET)?)?;
    let mut settings = ContextSettings::new(([127, 0, 0, 1], 0).into(), secret);
    settings.fabric = args.fabric.clone();
    settings.tcp.direct_copies = args.layer == Layer::SharedLibrary;
    settings.protection = Some(Protection::None);
    let context = Context::start(settings)?;
    let name = |rank: u32| format!("member-{rank}");
    meeting::publish(&args.meeting, &name(args.rank), context.address())?;
    let deadline = Instant::now() + meeting::TIMEOUT;
    let members = [0, 1].map(|rank| meeting::find(&args.meeting, &name(rank), deadline));
    let members = members.into_iter().collect::<Outcome<Vec<_>>>()?;
    LibraryPair::new(context, TeamSettings::new(1, members, args.rank))
}
