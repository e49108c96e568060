//! Connections to agents, and between daemons: TLS 1.3, with certificates at both ends.

use std::{io, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use rdmc::bootstrap::{Certificates, is_certificate_for};
use rustls::{ClientConfig, ServerConfig, pki_types::ServerName};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, server::TlsStream as Accepted};
use tonic::{
    Request,
    codegen::tokio_stream::wrappers::ReceiverStream,
    transport::{
        Channel, Endpoint, Uri,
        server::{TcpConnectInfo, TlsConnectInfo},
    },
};

use crate::{ControlError, ErrorKind};

/// What gRPC is called in a handshake.
const PROTOCOL: &[u8] = b"h2";
/// A handshake ends within this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes at the same time. Others wait.
const HANDSHAKES_MAX: usize = 64;
/// Who is silent is asked whether it lives, and has to answer within half of this time.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// What cannot be accepted now, as for want of descriptors, is tried again after this time.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A channel to an agent or a daemon at `HOST:PORT`. It is connected when it is used first, and again when it has
/// broken. Who answers has to have a certificate for HOST.
pub(crate) fn channel(peer: &str, certificates: &Certificates) -> Result<Channel, ControlError> {
    let no_peer = |why: &str| {
        ControlError::new(ErrorKind::Invalid, format!("\"{peer}\" is no HOST:PORT: {why}"))
    };
    let uri: Uri = format!("http://{peer}").parse().map_err(|_| no_peer("it is no address"))?;
    let (Some(host), Some(port)) = (uri.host(), uri.port_u16()) else {
        return Err(no_peer("the port is missing"));
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    let name =
        ServerName::try_from(host.clone()).map_err(|_| no_peer("no certificate can be for it"))?;
    let mut config = ClientConfig::clone(&certificates.connecting());
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let connect = move |_: Uri| {
        let (host, name, connector) = (host.clone(), name.clone(), connector.clone());
        async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            io::Result::Ok(TokioIo::new(connector.connect(name, stream).await?))
        }
    };
    Ok(Endpoint::from(uri)
        .connect_timeout(HANDSHAKE_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE / 2)
        .connect_with_connector_lazy(tower::service_fn(connect)))
}

/// Callers that have shown a certificate. Who does not, or is slow to, is hung up on; nobody waits for
/// others' handshakes.
pub(crate) fn accept(
    listener: TcpListener,
    certificates: &Certificates,
) -> ReceiverStream<io::Result<Accepted<TcpStream>>> {
    let mut config = ServerConfig::clone(&certificates.listening());
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (admit, admitted) = mpsc::channel(HANDSHAKES_MAX);
    let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    tokio::spawn(async move {
        while !admit.is_closed() {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = admit.closed() => return,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let (acceptor, admit) = (acceptor.clone(), admit.clone());
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => drop(admit.send(Ok(stream)).await),
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "turned away"),
                    Err(_) => tracing::debug!(%peer, "turned away: no handshake"),
                }
                drop(place);
            });
        }
    });
    ReceiverStream::new(admitted)
}

/// Whether who asks has shown a certificate for one of these names.
pub(crate) fn is_from<T>(request: &Request<T>, names: &[ServerName<'_>]) -> bool {
    let shown = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>();
    let certificates = shown.and_then(TlsConnectInfo::peer_certs);
    let own = certificates.as_ref().and_then(|chain| chain.first());
    own.is_some_and(|own| names.iter().any(|name| is_certificate_for(own, name)))
}
