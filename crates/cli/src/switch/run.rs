//! `rdmc switch run`: the agent at a switch.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use agent::{AgentSettings, Liveness, NextAgent, Plane};
use clap::ValueEnum;
use data_plane::{Groups, KernelPlane, UserspacePlane};

use super::setup;
use crate::{
    credentials::CredentialFiles,
    failure::{Failure, print_message},
    help::{EXPERTS, REPORTS, USUAL},
    interrupt::Interrupt,
    logging,
    this_machine::own_name,
};

/// The default directory for the maps of the kernel program.
pub const DIRECTORY: &str = "/sys/fs/bpf/rdmc";

const EXAMPLES: &str = "\
Example, for a top-of-rack switch with two hosts, and behind swp3 a spine that also copies:
  rdmc switch run --ports swp1,swp2,swp3 --next swp3=spine:4790 --listen 0.0.0.0:4790 \\
      --cert tor-a.pem --key tor-a.key --ca ca.pem --trust spine

If spines only forward, name the switch that copies for remote addresses:
  rdmc switch run --ports swp1,swp2,swp3 --next 10.2.0.0/16=tor-b:4790 ...

The kernel forwards as before, by its bridges and routes, which the agent follows. Groups are kept in the kernel:
they continue when the agent ends or restarts. `rdmc switch detach` removes them.
A host may request only groups that it sends to: its certificate must be for the address that it sends from
(subjectAltName). --trust names peers that may request any group, such as agents of other switches.";

/// Serve groups at this switch (needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN)
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, next_help_heading = USUAL)]
pub struct Args {
    /// Ports of the switch: its interfaces to hosts and other switches
    #[arg(long, value_name = "NAME,...", required = true, value_delimiter = ',')]
    ports: Vec<String>,

    /// Listen for requests on this address
    ///
    /// Port 0 selects a free port, which is printed.
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,

    /// Data plane
    ///
    /// kernel: a program in the kernel, beside its bridges and routes; userspace: a bridge in userspace, whose ports must
    /// have no addresses and no other bridge.
    #[arg(long, value_enum, default_value = "kernel")]
    plane: PlaneKind,

    /// Name of the switch [default: its host name]
    #[arg(long, value_name = "NAME", help_heading = EXPERTS)]
    name: Option<String>,

    /// Another agent: behind a port (swp3=spine:4790), or on the path to some addresses (10.2.0.0/16=tor-b:4790)
    ///
    /// May be given several times.
    #[arg(long, value_name = "WHERE=HOST:PORT")]
    next: Vec<NextAgent>,

    /// Certificate name of a peer that may request groups of any sender
    ///
    /// May be given several times.
    #[arg(long, value_name = "NAME")]
    trust: Vec<String>,

    /// Remove groups that had no packets or requests for this time
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=3600),
          help_heading = EXPERTS)]
    stale_after: u64,

    /// Suspect receivers that lag behind the acknowledgements of others for this time
    ///
    /// Their hosts are queried before they are removed. An RDMA device gives up after about a second.
    #[arg(long, value_name = "MS", default_value_t = Liveness::default().silent_after.as_millis() as u64,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000), help_heading = EXPERTS)]
    silent_after_ms: u64,

    /// Treat receivers as lost if their ports have had no carrier for this time
    #[arg(long, value_name = "MS", default_value_t = Liveness::default().carrier_lost_after.as_millis() as u64,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000), help_heading = EXPERTS)]
    carrier_lost_after_ms: u64,

    /// Maximum number of groups of one sending host
    #[arg(long, value_name = "COUNT", default_value_t = agent::GROUPS_PER_HOST_MAX as u32, value_parser = clap::value_parser!(u32).range(1..=65_536),
          help_heading = EXPERTS)]
    groups_per_host: u32,

    /// Directory in a BPF file system for the groups; each switch needs its own
    #[arg(long, value_name = "DIR", default_value = DIRECTORY, help_heading = EXPERTS)]
    pin: PathBuf,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Log to stderr (RUST_LOG sets the level)
    #[arg(short, long, help_heading = REPORTS)]
    verbose: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PlaneKind {
    Kernel,
    Userspace,
}

/// Serves groups until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let certificates = setup::certificates(&args.credentials)?;
    let stop = Interrupt::catch(false)?.begin().flag();
    logging::start(args.verbose, None);
    let name = args.name.clone().unwrap_or_else(own_name);
    let listener = agent::listen(args.listen).map_err(Failure::because)?;
    let address = listener.local_addr().map_err(Failure::while_doing("listening"))?;
    let (ports, plane, bridge) = match args.plane {
        PlaneKind::Kernel => in_kernel(&args.ports, &args.pin)?,
        PlaneKind::Userspace => in_userspace(&args.ports, &stop)?,
    };
    let settings = AgentSettings {
        name,
        ports,
        next: args.next.clone(),
        trusted: args.trust.clone(),
        stale_after: Duration::from_secs(args.stale_after),
        groups_per_host_max: args.groups_per_host as usize,
        liveness: Liveness {
            carrier_lost_after: Duration::from_millis(args.carrier_lost_after_ms),
            silent_after: Duration::from_millis(args.silent_after_ms),
            ..Liveness::default()
        },
    };
    let served = setup::runtime()?.block_on(async {
        let stopped = setup::until(|| {
            stop.load(Ordering::Relaxed) || bridge.as_ref().is_some_and(Bridge::is_finished)
        });
        let prepared = agent::prepare(settings, plane, &certificates, agent::Clock::Machine)?;
        print_message(format_args!("switch agent at {address}, ports {}", args.ports.join(", ")));
        agent::serve(prepared, listener, &certificates, stopped).await
    });
    stop.store(true, Ordering::Relaxed);
    match bridge {
        Some(bridge) => {
            bridge.join()?;
            print_message("ended; forwarding has stopped");
        }
        None => {
            let pin = args.pin.display();
            print_message(format_args!(
                "ended; groups in {pin} continue (`rdmc switch detach` removes them)"
            ));
        }
    }
    served.map_err(Failure::because)
}

type Opened = (Vec<(String, mcrdma::Port)>, Plane, Option<Bridge>);

fn in_kernel(names: &[String], pin: &Path) -> Result<Opened, Failure> {
    let mut groups = Groups::in_kernel(pin).map_err(Failure::because)?;
    let mut ports = Vec::new();
    for name in names {
        ports.push((name.clone(), KernelPlane::port_number(name).map_err(Failure::because)?));
        if let Some(plane) = groups.kernel() {
            plane.attach(name).map_err(Failure::because)?;
        }
    }
    Ok((ports, Plane::Kernel(Box::new(groups)), None))
}

fn in_userspace(names: &[String], stop: &Arc<AtomicBool>) -> Result<Opened, Failure> {
    let plane = UserspacePlane::open(names.iter().map(String::as_str)).map_err(Failure::because)?;
    let ports = names.iter().cloned().zip(plane.ports()).collect();
    let tables = plane.tables();
    Ok((ports, Plane::Userspace(tables), Some(Bridge::start(plane, Arc::clone(stop))?)))
}

/// The bridge in userspace, on a thread of its own.
struct Bridge(JoinHandle<std::io::Result<()>>);

impl Bridge {
    fn start(mut plane: UserspacePlane, stop: Arc<AtomicBool>) -> Result<Self, Failure> {
        let run = move || plane.run(&stop);
        let thread = thread::Builder::new().name("rdmc-bridge".into()).spawn(run);
        thread.map(Self).map_err(Failure::while_doing("starting the bridge"))
    }

    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    fn join(self) -> Result<(), Failure> {
        match self.0.join() {
            Ok(ended) => ended.map_err(Failure::while_doing("forwarding")),
            Err(_) => Err(Failure::Failed("the bridge has crashed".into())),
        }
    }
}
