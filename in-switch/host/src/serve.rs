//! A daemon from its beginning to its end.

use std::{path::PathBuf, sync::Arc, time::Duration};

use certificates::Certificates;
use control::{
    Agent, ControlError,
    proto::{host_server::HostServer, peer_server::PeerServer},
    tls::{self, Trusted},
};
use tokio::{sync::watch, time::sleep};
use tonic::transport::Server;

use crate::{
    daemon::{Daemon, Leaving},
    groups::Places,
    service::{ForApplications, ForDaemons},
    socket::Socket,
};

/// Groups that applications of a host send to at the same time.
const SENDING_MAX: u32 = 1024;
/// Groups of others' that applications of a host are offered or members of at the same time.
const MEMBERSHIPS_MAX: u32 = 4096;
/// A daemon that is to end has taken its groups back within this time, or leaves them to the agents.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(8);
/// Who does not hang up then is hung up on after this time.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Streams of one connection at the same time.
const STREAMS_MAX: u32 = 1024;
/// A message is no longer than that.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// What a daemon is told.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    /// HOST:PORT of the agent at this host's first switch.
    pub agent: String,
    /// Where its applications reach it.
    pub socket: PathBuf,
    /// Who may: the permissions of that file, as 0o600.
    pub socket_mode: u32,
    /// Names (DNS names or IP addresses) whose certificates may ask for members of any sender's
    /// groups. Other daemons may for groups of the addresses that their certificates are for.
    pub trusted: Vec<String>,
}

/// A daemon that can begin. Applications can connect, and wait.
pub struct Prepared {
    daemon: Arc<Daemon>,
    socket: Socket,
    leave: watch::Sender<bool>,
}

/// Makes a daemon and its socket. Has to be called within a tokio runtime; nothing is served yet.
///
/// Errors: what it was told makes no sense, or the socket cannot be had.
pub fn prepare(
    settings: &DaemonSettings,
    certificates: &Certificates,
) -> Result<Prepared, ControlError> {
    let (leave, leaving) = watch::channel(false);
    let daemon = Daemon {
        agent: Agent::new(&settings.agent, certificates)?,
        certificates: certificates.clone(),
        trusted: Trusted::parse(&settings.trusted)?,
        listeners: Arc::default(),
        groups: Arc::default(),
        sending: Places::new(SENDING_MAX, "groups to send to"),
        memberships: Places::new(MEMBERSHIPS_MAX, "memberships"),
        leaving: Leaving(leaving),
    };
    let socket = Socket::bind(&settings.socket, settings.socket_mode)?;
    Ok(Prepared { daemon: Arc::new(daemon), socket, leave })
}

/// Serves until `stop`; then groups are taken out of the switches, and members and applications are
/// told, all within some ten seconds.
///
/// Errors: the system takes the listener or the socket away.
pub async fn serve(
    prepared: Prepared,
    listener: std::net::TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), ControlError> {
    let Prepared { daemon, mut socket, leave } = prepared;
    let callers = tls::accept(listener, &daemon.certificates)?;
    let (close, closed) = watch::channel(false);
    let [mut first, mut second] = [Leaving(closed.clone()), Leaving(closed)];
    let applications = ForApplications(Arc::clone(&daemon));
    let applications = HostServer::new(applications).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let applications = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .add_service(applications)
        .serve_with_incoming_shutdown(socket.accept()?, async move { first.told().await });
    let daemons = ForDaemons(Arc::clone(&daemon));
    let daemons = PeerServer::new(daemons).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let daemons = tls::server(STREAMS_MAX)
        .add_service(daemons)
        .serve_with_incoming_shutdown(callers, async move { second.told().await });
    let ending = async {
        stop.await;
        leave.send_replace(true);
        tokio::join!(daemon.sending.empty(LEAVE_TIMEOUT), daemon.memberships.empty(LEAVE_TIMEOUT));
        close.send_replace(true);
        sleep(CLOSE_TIMEOUT).await;
    };
    tokio::select! {
        served = async { tokio::try_join!(applications, daemons) } => {
            served.map(drop).map_err(tls::serving_failed)
        }
        () = ending => Ok(()),
    }
}
