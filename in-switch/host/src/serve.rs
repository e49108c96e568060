//! Starts and runs a daemon.

use std::{path::PathBuf, sync::Arc, time::Duration};

use control::{
    Agent, ControlError, Incoming, Limits, Most,
    proto::{host_server::HostServer, peer_server::PeerServer},
    serving_failed,
    tls::{self, Trusted},
    watcher::Probing,
};
use session::certificates::Certificates;
use tokio::{sync::watch, time::sleep};
use tonic::transport::Server;

use crate::{
    daemon::{Daemon, Shutdown},
    groups::Quota,
    service::{ForApplications, ForDaemons},
    socket::Socket,
};

/// Groups that applications of a host send to.
const SENDING_MAX: u32 = 1024;
/// Deadline for removing all groups at shutdown; after it their leases expire.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(8);
/// Deadline for connections to close after that.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Streams of one connection.
const STREAMS_MAX: u32 = 1024;
/// Memberships and offers: a sender's daemon has a connection and a call for each.
const MEMBERSHIPS: Most = Most { each: SENDING_MAX as usize, all: 4096 };
/// Other daemons.
const LIMITS: Limits = Limits { connections: MEMBERSHIPS, calls: MEMBERSHIPS };
/// Longest message.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Default of [`DaemonSettings::delegation_lasts`].
pub const DELEGATION_LASTS: Duration = Duration::from_secs(600);

/// Settings of a daemon.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    /// HOST:PORT of the agent at this host's first switch.
    pub agent: String,
    /// Path of the Unix socket for its applications.
    pub socket: PathBuf,
    /// Permissions of that socket, such as 0o600.
    pub socket_mode: u32,
    /// Names (DNS names or IP addresses) whose certificates may invite members for any sender. Other daemons
    /// may for the addresses that their certificates are for.
    pub trusted: Vec<String>,
    /// How long switches may copy to members of this host without hearing of them again; renewed three times as
    /// often. The clocks of hosts and switches have to agree better than that.
    pub delegation_lasts: Duration,
    /// How hosts of members are asked that the switch suspects.
    pub probing: Probing,
}

/// A daemon that is ready to serve. Applications can connect, and wait.
pub struct Prepared {
    daemon: Arc<Daemon>,
    socket: Socket,
    leave: watch::Sender<bool>,
}

/// Makes a daemon and its socket. Has to be called within a tokio runtime; serves nothing yet.
///
/// Errors: invalid settings, or the socket cannot be made.
pub fn prepare(
    settings: &DaemonSettings,
    certificates: &Certificates,
) -> Result<Prepared, ControlError> {
    let (leave, shutdown) = watch::channel(false);
    let daemon = Daemon {
        agent: Agent::new(&settings.agent, certificates)?,
        certificates: certificates.clone(),
        trusted: Trusted::parse(&settings.trusted)?,
        listeners: Arc::default(),
        groups: Arc::default(),
        sending: Quota::new(SENDING_MAX, "groups to send to"),
        memberships: Quota::new(MEMBERSHIPS.all as u32, "memberships"),
        delegation_lasts: settings.delegation_lasts,
        probing: settings.probing,
        shutdown: Shutdown(shutdown),
    };
    let socket = Socket::bind(&settings.socket, settings.socket_mode)?;
    Ok(Prepared { daemon: Arc::new(daemon), socket, leave })
}

/// Serves until `stop`; then removes its groups from the switches and notifies members and applications,
/// within ten seconds.
///
/// Errors: the listener or the socket fails.
pub async fn serve(
    prepared: Prepared,
    listener: std::net::TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), ControlError> {
    let Prepared { daemon, mut socket, leave } = prepared;
    let callers = Incoming::open(listener, &daemon.certificates, LIMITS)?;
    let (close, closed) = watch::channel(false);
    let [mut first, mut second] = [Shutdown(closed.clone()), Shutdown(closed)];
    let applications = ForApplications(Arc::clone(&daemon));
    let applications = HostServer::new(applications).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let applications = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .add_service(applications)
        .serve_with_incoming_shutdown(socket.accept()?, async move { first.requested().await });
    let daemons = ForDaemons(Arc::clone(&daemon));
    let daemons = PeerServer::new(daemons).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let daemons = tls::server(&callers, STREAMS_MAX)
        .add_service(daemons)
        .serve_with_incoming_shutdown(callers, async move { second.requested().await });
    let ending = async {
        stop.await;
        leave.send_replace(true);
        tokio::join!(
            daemon.sending.wait_until_unused(LEAVE_TIMEOUT),
            daemon.memberships.wait_until_unused(LEAVE_TIMEOUT)
        );
        close.send_replace(true);
        sleep(CLOSE_TIMEOUT).await;
    };
    tokio::select! {
        served = async { tokio::try_join!(applications, daemons) } => {
            served.map(drop).map_err(serving_failed)
        }
        () = ending => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use control::host::terms::{APPLICATION_DATA_BYTES_MAX, REASON_BYTES_MAX};

    use super::*;
    use crate::listeners::{OFFERS_MAX, SERVICES_MAX};

    #[test]
    fn the_limits_are_those_of_the_documents() {
        let security = include_str!("../../../docs/guide/security.md");
        let document = include_str!("../../../docs/decisions/in-switch-control.md");
        let thousands = |count: usize| format!("{},{:03}", count / 1000, count % 1000);
        let Limits { connections, calls } = LIMITS;
        assert_eq!((connections, calls), (MEMBERSHIPS, MEMBERSHIPS));
        let [each, all] = [MEMBERSHIPS.each, MEMBERSHIPS.all].map(thousands);
        let line = format!("of an agent (of a daemon {each} of {all})");
        assert!(security.contains(&line), "docs/guide/security.md lacks: {line}");
        for line in [
            format!("| listening applications | {SERVICES_MAX}, with {OFFERS_MAX} offers each |"),
            format!("| application data in an offer | {} KiB |", APPLICATION_DATA_BYTES_MAX >> 10),
            format!("| reasons | {} bytes |", thousands(REASON_BYTES_MAX)),
            format!("| message | {} KiB |", MESSAGE_BYTES_MAX >> 10),
            format!("| groups sent to | {} |", thousands(SENDING_MAX as usize)),
            format!(
                "| memberships and offers, each a connection and a call of the sender's daemon | {each} of one certificate, {all} in all |"
            ),
            format!("every {} s while", DELEGATION_LASTS.as_secs() / 3),
        ] {
            assert!(document.contains(&line), "docs/decisions/in-switch-control.md lacks: {line}");
        }
    }
}
