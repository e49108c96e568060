//! Starts and runs an agent.

use std::{
    collections::BTreeMap,
    future::pending,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use control::{
    ControlError, ErrorKind, Incoming, Limits, Most,
    proto::switch_server::SwitchServer,
    serving_failed,
    tls::{self, Trusted},
};
use data_plane::Groups;
use mcrdma::Port;
use session::certificates::Certificates;
use tokio::{sync::oneshot, time::sleep};

use crate::{
    clock::{Clock, Timer},
    downstream::Downstream,
    forwarding::Forwarding,
    liveness::Observer,
    maintenance::Maintenance,
    ports::Ports,
    registry::Registry,
    service::Service,
    settings::{AgentSettings, GROUPS_PER_HOST_MAX, Plane},
};

/// Deadline of calls in progress at shutdown.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Concurrent calls of one connection: a host watches each of its groups.
const CALLS_MAX: u32 = 256 + GROUPS_PER_HOST_MAX as u32;
/// Authenticated callers: a host has a connection for its daemon and one for each push. All connections fit into
/// 1,024 descriptors, with those that have not authenticated and those to other agents.
const LIMITS: Limits = Limits {
    connections: Most { each: 64, all: 512 },
    calls: Most { each: CALLS_MAX as usize, all: 16 * CALLS_MAX as usize },
};
/// Longest request: no group has more, with 64 members and each with 1,024 regions and the longest delegation.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// An agent that is ready to serve.
pub struct Prepared {
    service: Service,
    observer: Observer,
    registry: Arc<Registry>,
    interval: Duration,
}

/// Makes an agent, in the network namespace of this thread, and in the tokio runtime that is to serve it.
/// Serves nothing yet. Leases expire by `clock`.
///
/// Errors: invalid settings, or the kernel's routes cannot be read.
///
/// Panics: this is no thread of a tokio runtime.
pub fn prepare(
    settings: AgentSettings,
    plane: Plane,
    certificates: &Certificates,
    clock: Clock,
) -> Result<Prepared, ControlError> {
    let invalid = |why: String| ControlError::new(ErrorKind::Invalid, why);
    let by_name: BTreeMap<String, Port> = settings.ports.iter().cloned().collect();
    let downstream = Downstream::new(&settings.next, &by_name).map_err(invalid)?;
    let trusted = Trusted::parse(&settings.trusted)?;
    let (forwarding, groups) = match plane {
        Plane::Kernel(groups) => {
            let forwarding = Forwarding::of_kernel(by_name.into_values().collect());
            let failed = |error| ControlError::new(ErrorKind::Failed, format!("{error}"));
            (forwarding.map_err(failed)?, *groups)
        }
        Plane::Userspace(tables) => {
            (Forwarding::of_bridge(tables.clone()), Groups::in_userspace(tables))
        }
    };
    let plane_name = groups.plane_name();
    let interval = forwarding.interval();
    let registry = Registry::new(&settings, downstream, certificates, forwarding, groups, clock)?;
    let registry = Arc::new(registry);
    let observer = Observer::open(Arc::clone(&registry), settings.liveness)?;
    let service = Service {
        registry: Arc::clone(&registry),
        ports: Ports::new(settings.ports),
        plane: plane_name,
        trusted,
        started: Instant::now(),
    };
    Ok(Prepared { service, observer, registry, interval })
}

/// Serves until `stop`, and completes calls in progress. The groups stay in the data plane.
///
/// Errors: the listener fails.
pub async fn serve(
    prepared: Prepared,
    listener: std::net::TcpListener,
    certificates: &Certificates,
    stop: impl Future<Output = ()>,
) -> Result<(), ControlError> {
    let incoming = Incoming::open(listener, certificates, LIMITS)?;
    let Prepared { service, observer, registry, interval } = prepared;
    let maintenance = tokio::spawn(look_after(registry, observer, interval));
    let service = SwitchServer::new(service).max_decoding_message_size(REQUEST_BYTES_MAX);
    let (stopping, is_stopping) = oneshot::channel();
    let stop = async {
        stop.await;
        let _ = stopping.send(());
    };
    let served = tls::server(&incoming, CALLS_MAX)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stop);
    // Connections that stay open are closed.
    let late = async {
        if is_stopping.await.is_ok() {
            sleep(LEAVE_TIMEOUT).await;
        } else {
            pending::<()>().await;
        }
    };
    let served = tokio::select! {
        served = served => served.map_err(serving_failed),
        () = late => Ok(()),
    };
    maintenance.abort();
    served
}

/// Runs the periodic tasks, which do not block each other.
///
/// The timers are made at once, so that they count in an advance of the clock before the tasks are polled.
fn look_after(
    registry: Arc<Registry>,
    observer: Observer,
    follow: Duration,
) -> impl Future<Output = ()> {
    let (stale_after, clock) = (registry.stale_after, registry.clock.clone());
    let follow = Clock::Machine.timer(follow);
    let (sweep, renew) = (clock.timer(stale_after / 6), clock.timer(stale_after / 4));
    let observe = clock.timer(observer.interval());
    let maintenance = Maintenance(registry);
    async move {
        tokio::join!(
            repeat(follow, || maintenance.follow_routes()),
            repeat(sweep, || maintenance.sweep()),
            repeat(renew, || maintenance.renew_downstream()),
            repeat(observe, async || observer.observe()),
        );
    }
}

async fn repeat<F: Future>(mut timer: Timer, task: impl Fn() -> F) {
    loop {
        timer.due().await;
        task().await;
    }
}

/// Binds the address of an agent. Errors: names the address.
pub fn listen(address: SocketAddr) -> Result<std::net::TcpListener, ControlError> {
    std::net::TcpListener::bind(address).map_err(|error| {
        ControlError::new(ErrorKind::Failed, format!("listening on {address}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use control::{HOPS_MAX, delegation::DELEGATION_BYTES_MAX, proto};
    use mcrdma::{MEMBERS_MAX, REGIONS_MAX};
    use prost::Message;

    use super::*;

    #[test]
    fn the_largest_group_fits_into_a_request() {
        let number = u32::MAX >> 8;
        let (start, member_start, bytes, member_key) = (u64::MAX, u64::MAX, u64::MAX, u32::MAX);
        let region = proto::Region { start, bytes, member_start, member_key };
        let address = "f".repeat(39);
        let member = proto::Member {
            address: address.clone(),
            mac: "f".repeat(17),
            qpn: number,
            psn_offset: number,
            regions: vec![region; REGIONS_MAX],
            delegation: vec![0xff; DELEGATION_BYTES_MAX],
        };
        let group = proto::Group {
            key: Some(proto::Key { sender: address.clone(), id: number }),
            sender_qpn: number,
            psn_first: number,
            virtual_address: address,
            virtual_mac: "f".repeat(17),
            sender_mac: "f".repeat(17),
            all_notifications: true,
            members: vec![member; MEMBERS_MAX],
        };
        let request = proto::InsertRequest {
            group: Some(group),
            caller: "c".repeat(255),
            instance: u64::MAX,
            is_first: true,
            hops_left: HOPS_MAX,
        };
        let bytes = request.encoded_len();
        assert!(bytes <= REQUEST_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn the_limits_are_those_of_the_documents() {
        let document = include_str!("../../../docs/decisions/in-switch-control.md");
        let security = include_str!("../../../docs/guide/security.md");
        let (connections, calls) = (LIMITS.connections, LIMITS.calls);
        let thousands = |count: usize| format!("{},{:03}", count / 1000, count % 1000);
        let watched = thousands(calls.each);
        let (most, all) = (connections.each, connections.all);
        let line = format!(
            "take more than {most} of {all} connections, or {watched} of {} calls of an agent",
            thousands(calls.all)
        );
        assert!(security.contains(&line), "docs/guide/security.md lacks: {line}");
        for line in [
            format!("| switches in a row | {HOPS_MAX}: a loop is refused |"),
            format!("At most {} groups of one sender", thousands(GROUPS_PER_HOST_MAX)),
            format!("| request | {} MiB |", REQUEST_BYTES_MAX >> 20),
            format!("| connections | {most} of one certificate, {all} in all |"),
            format!(
                "| calls at a time, streams included | {watched} of one certificate (one for each watched group, and 256), {} in all |",
                thousands(calls.all)
            ),
        ] {
            assert!(document.contains(&line), "docs/decisions/in-switch-control.md lacks: {line}");
        }
    }
}
