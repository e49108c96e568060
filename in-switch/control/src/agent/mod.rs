//! The agent at a switch: its groups, by its own routes.

mod next;
mod registry;
mod service;
mod sight;
mod split;

use std::{
    collections::BTreeMap,
    future::pending,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use certificates::Certificates;
use data_plane::{Groups, UserspaceTables};
use mcrdma::Port;
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval, sleep},
};

pub use next::{At, Next, NoNext};

use crate::{
    ControlError, ErrorKind,
    proto::switch_server::SwitchServer,
    tls::{self, Trusted},
};
use next::Behind;
use registry::Registry;
use service::Service;
use sight::Sight;

/// Groups of which nothing is heard for so long are forgotten, unless something else is said.
pub const STALE_AFTER: Duration = Duration::from_secs(60);
/// Groups of one sender that a switch takes, unless something else is said: 1 in 64 of what it has room for.
pub const GROUPS_PER_HOST_MAX: usize = mcrdma::GROUPS_MAX / 64;
/// Calls that are under way when an agent is to end are answered within this time, or not at all.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Calls of one connection at the same time.
const CALLS_MAX: u32 = 256;
/// A request is no longer than that: a group of 64 members with 16 regions each has less than 64 KiB.
const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// What an agent is told.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// What the switch is called, among others by the agents behind it: unique among them.
    pub name: String,
    /// Its ports, by the names of their interfaces.
    pub ports: Vec<(String, Port)>,
    /// Which agents are behind it.
    pub next: Vec<Next>,
    /// Names (DNS names or IP addresses) whose certificates may ask for groups of any sender: switches
    /// before this one. A host may ask for those that it sends to.
    pub trusted: Vec<String>,
    /// Groups of which nothing is heard for so long are forgotten.
    pub stale_after: Duration,
    /// Groups that there may be of one sender's address: others are to find room, too.
    pub groups_per_host_max: usize,
}

/// What copies the packets.
pub enum Plane {
    /// The program in the kernel; its ports are bridged or routed by the kernel.
    Kernel(Box<Groups>),
    /// The bridge in userspace, that somebody runs meanwhile.
    Userspace(UserspaceTables),
}

/// An agent that can begin.
pub struct Prepared {
    service: Service,
    registry: Arc<Registry>,
    interval: Duration,
}

/// Makes an agent, in the network namespace of this thread, and in the tokio runtime that is to serve it.
/// Nothing is served yet.
///
/// Errors: what it was told makes no sense, or the kernel's routes cannot be read.
///
/// Panics: this is no thread of a tokio runtime.
pub fn prepare(
    settings: AgentSettings,
    plane: Plane,
    certificates: &Certificates,
) -> Result<Prepared, ControlError> {
    let invalid = |why: String| ControlError::new(ErrorKind::Invalid, why);
    let by_name: BTreeMap<String, Port> = settings.ports.iter().cloned().collect();
    let behind = Behind::new(&settings.next, &by_name).map_err(invalid)?;
    let trusted = Trusted::parse(&settings.trusted)?;
    let (plane_name, sight, groups) = match plane {
        Plane::Kernel(groups) => {
            let sight = Sight::of_kernel(by_name.into_values().collect());
            let failed = |error| ControlError::new(ErrorKind::Failed, format!("{error}"));
            ("kernel", sight.map_err(failed)?, *groups)
        }
        Plane::Userspace(tables) => {
            ("userspace", Sight::of_bridge(tables.clone()), Groups::in_userspace(tables))
        }
    };
    let interval = sight.interval();
    let registry = Registry::new(&settings, behind, certificates, (sight, groups))?;
    let registry = Arc::new(registry);
    let service = Service {
        registry: Arc::clone(&registry),
        ports: settings.ports,
        plane: plane_name,
        trusted,
        started: Instant::now(),
    };
    Ok(Prepared { service, registry, interval })
}

/// Serves until `stop`; calls that are under way then are answered. The groups stay in the data plane.
///
/// Errors: the system takes the listener away.
pub async fn serve(
    prepared: Prepared,
    listener: std::net::TcpListener,
    certificates: &Certificates,
    stop: impl Future<Output = ()>,
) -> Result<(), ControlError> {
    let callers = tls::accept(listener, certificates)?;
    let Prepared { service, registry, interval } = prepared;
    let upkeep = tokio::spawn(look_after(registry, interval));
    let service = SwitchServer::new(service).max_decoding_message_size(REQUEST_BYTES_MAX);
    let (tell, told) = oneshot::channel();
    let stop = async {
        stop.await;
        let _ = tell.send(());
    };
    let served =
        tls::server(CALLS_MAX).add_service(service).serve_with_incoming_shutdown(callers, stop);
    // Who does not hang up is hung up on.
    let late = async {
        if told.await.is_ok() {
            sleep(LEAVE_TIMEOUT).await;
        } else {
            pending::<()>().await;
        }
    };
    let served = tokio::select! {
        served = served => served.map_err(tls::serving_failed),
        () = late => Ok(()),
    };
    upkeep.abort();
    served
}

/// What has to be done from time to time, none of which holds the others up.
async fn look_after(registry: Arc<Registry>, follow: Duration) {
    let [mut follow, mut sweep, mut keep] =
        [follow, registry.stale_after / 6, registry.stale_after / 4].map(|every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
    let following = async {
        loop {
            follow.tick().await;
            registry.follow_routes().await;
        }
    };
    let sweeping = async {
        loop {
            sweep.tick().await;
            registry.sweep().await;
        }
    };
    let keeping = async {
        loop {
            keep.tick().await;
            registry.keep_behind().await;
        }
    };
    tokio::join!(following, sweeping, keeping);
}

/// An address for an agent to listen at. Errors: it cannot be had; names it.
pub fn listen(address: SocketAddr) -> Result<std::net::TcpListener, ControlError> {
    std::net::TcpListener::bind(address).map_err(|error| {
        ControlError::new(ErrorKind::Failed, format!("listening on {address}: {error}"))
    })
}
