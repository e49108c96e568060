//! An agent from its beginning to its end.

use std::{
    collections::BTreeMap,
    future::pending,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use certificates::Certificates;
use control::{
    ControlError, ErrorKind,
    proto::switch_server::SwitchServer,
    tls::{self, Trusted},
};
use data_plane::Groups;
use mcrdma::Port;
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    next::Behind,
    registry::Registry,
    service::Service,
    settings::{AgentSettings, Plane},
    sight::Sight,
    upkeep::Upkeep,
};

/// Calls that are under way when an agent is to end are answered within this time, or not at all.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Calls of one connection at the same time.
const CALLS_MAX: u32 = 256;
/// A request is no longer than that: a group of 64 members with 16 regions each has less than 64 KiB.
const REQUEST_BYTES_MAX: usize = 256 * 1024;

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
    let stale_after = registry.stale_after;
    let upkeep = Upkeep(registry);
    let [mut follow, mut sweep, mut keep] =
        [follow, stale_after / 6, stale_after / 4].map(|every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
    let following = async {
        loop {
            follow.tick().await;
            upkeep.follow_routes().await;
        }
    };
    let sweeping = async {
        loop {
            sweep.tick().await;
            upkeep.sweep().await;
        }
    };
    let keeping = async {
        loop {
            keep.tick().await;
            upkeep.keep_behind().await;
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
