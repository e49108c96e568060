//! Connections to agents, and between daemons: TLS 1.3, with certificates at both ends.

use std::{io, iter::once, net::IpAddr, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
};
use session::certificates::{Certificates, is_certificate_for};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::{
    Request,
    transport::{Channel, Endpoint, Server, Uri},
};
use tower::layer::util::{Identity, Stack};

use crate::{
    ControlError, ErrorKind,
    call_limit::CallLimit,
    incoming::{Caller, Incoming, PROTOCOL},
};

/// Timeout for connecting, with the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// HTTP/2 keepalive interval; its timeout is half of it.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A channel to an agent or a daemon at `HOST:PORT`, which has to have a certificate for HOST. It connects
/// on first use, and again when it has broken.
pub fn channel(peer: &str, certificates: &Certificates) -> Result<Channel, ControlError> {
    let no_peer = |why: &str| {
        ControlError::new(ErrorKind::Invalid, format!("\"{peer}\" is not HOST:PORT: {why}"))
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
            let stream = connector.connect(name, stream).await?;
            io::Result::Ok(TokioIo::new(stream))
        }
    };
    Ok(Endpoint::from(uri)
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE / 2)
        .connect_with_connector_lazy(tower::service_fn(connect)))
}

/// A server for these connections, with a limit of concurrent streams of a connection. Connections without
/// keepalives are closed.
pub fn server(incoming: &Incoming, streams_max: u32) -> Server<Stack<CallLimit, Identity>> {
    Server::builder()
        .max_concurrent_streams(streams_max)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE / 2))
        .layer(CallLimit(Arc::clone(&incoming.calls)))
}

/// Names that are authorized for any address. Other certificates are authorized for their own addresses.
pub struct Trusted(Vec<ServerName<'static>>);

impl Trusted {
    /// Parses DNS names and IP addresses. Errors: one is neither.
    pub fn parse(names: &[String]) -> Result<Self, ControlError> {
        let parse = |name: &String| {
            let why = || format!("\"{name}\" is not the name or address of a host");
            let parsed = ServerName::try_from(name.clone());
            parsed.map_err(|_| ControlError::new(ErrorKind::Invalid, why()))
        };
        names.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the caller's certificate is authorized for this address.
    pub fn authorizes<T>(&self, request: &Request<T>, address: IpAddr) -> bool {
        let caller = request.extensions().get::<Caller>();
        caller.is_some_and(|caller| self.is_for(&caller.certificate(), address))
    }

    fn is_for(&self, certificate: &CertificateDer<'_>, address: IpAddr) -> bool {
        let address = ServerName::IpAddress(address.into());
        once(&address).chain(&self.0).any(|name| is_certificate_for(certificate, name))
    }
}
