//! Connections of callers: how they are authenticated, and the limits on them.

use std::{
    fmt::Display,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rustls::{ServerConfig, pki_types::CertificateDer};
use session::certificates::Certificates;
use session::{Handshake, Listener};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    runtime::Handle,
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::{codegen::tokio_stream::Stream, transport::server::Connected};

use crate::{
    ControlError, ErrorKind,
    counter::{Counter, Counting, Holder, Most},
};

/// ALPN protocol of gRPC.
pub(crate) const PROTOCOL: &[u8] = b"h2";
/// Handshake timeout, after the hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Authenticated connections that the server has not taken yet.
const WAITING_MAX: usize = 16;

/// The error of a server that has stopped by itself.
pub fn serving_failed(error: impl Display) -> ControlError {
    ControlError::new(ErrorKind::Failed, format!("serving: {error}"))
}

/// Limits on authenticated callers of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections.
    pub connections: Most,
    /// Calls in progress, streams among them.
    pub calls: Most,
}

/// Authenticated connections, for a server. Dropping it ends handshakes.
///
/// Unauthenticated peers are limited as at all listeners of rdmc ([`Listener`]): the oldest one makes way for another.
pub struct Incoming {
    admitted: mpsc::Receiver<io::Result<Connection>>,
    _listener: Listener,
    pub(crate) calls: Arc<Counter>,
}

impl Incoming {
    /// Starts to accept. Handshakes run concurrently on this thread's runtime.
    ///
    /// Errors: no thread or descriptor is left.
    ///
    /// Panics: this is no thread of a tokio runtime.
    pub fn open(
        socket: std::net::TcpListener,
        certificates: &Certificates,
        limits: Limits,
    ) -> Result<Self, ControlError> {
        let mut config = ServerConfig::clone(&certificates.listening());
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let (admit, admitted) = mpsc::channel(WAITING_MAX);
        let accepting = Accepting {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            connections: Counter::new(limits.connections, "connections"),
            admit,
        };
        let runtime = Handle::current();
        let listener = Listener::before_tls(socket, move |stream, handshake| {
            runtime.spawn(accepting.clone().authenticate(stream, handshake));
        });
        let calls = Counter::new(limits.calls, "calls");
        Ok(Self { admitted, _listener: listener.map_err(serving_failed)?, calls })
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.admitted.poll_recv(context)
    }
}

#[derive(Clone)]
struct Accepting {
    acceptor: TlsAcceptor,
    connections: Arc<Counter>,
    admit: mpsc::Sender<io::Result<Connection>>,
}

impl Accepting {
    async fn authenticate(self, stream: std::net::TcpStream, handshake: Handshake) {
        let peer = stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
        let accepted = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
        let accepted = match accepted {
            Ok(stream) => timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream)).await,
            Err(error) => Ok(Err(error)),
        };
        let accepted = accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        // From here on it counts as one of its certificate.
        drop(handshake);
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(peer, %error, "refused: handshake failed"),
        };
        let Some(certificate) = caller_certificate(&stream) else { return };
        match self.connections.start(&certificate) {
            Ok(counting) => {
                let caller = Caller { certificate };
                let connection = Connection { stream, caller, _counting: counting };
                let _ = self.admit.send(Ok(connection)).await;
            }
            Err(why) => tracing::warn!(peer, why, "refused a connection"),
        }
    }
}

fn caller_certificate(stream: &TlsStream<TcpStream>) -> Option<Holder> {
    let chain = stream.get_ref().1.peer_certificates()?;
    Some(Holder::from(&**chain.first()?))
}

/// Who calls, as services find it in a request's extensions.
#[derive(Clone, Debug)]
pub struct Caller {
    certificate: Holder,
}

impl Caller {
    pub(crate) fn certificate(&self) -> CertificateDer<'_> {
        CertificateDer::from(&*self.certificate)
    }

    #[cfg(test)]
    pub(crate) fn holding(certificate: &[u8]) -> Self {
        Self { certificate: Holder::from(certificate) }
    }

    pub(crate) const fn holder(&self) -> &Holder {
        &self.certificate
    }
}

/// An authenticated connection.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    caller: Caller,
    _counting: Counting,
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
