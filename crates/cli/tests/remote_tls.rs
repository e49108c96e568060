//! `rdmc push https://...`.

use std::{net::SocketAddr, sync::Arc, thread};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use testing::{Authority, Issued, WebAnswer, WebServer};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::Builder,
};
use tokio_rustls::TlsAcceptor;

use crate::common::{Outcome, Place};

/// Passes what comes over TLS on to a server; returns the port. Ends with this process.
fn protect(server: SocketAddr, issued: &Issued) -> u16 {
    let certificate = CertificateDer::from_pem_file(&issued.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&issued.key).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor =
        TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let accept = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // What does not trust the certificate goes away.
                if let Ok(mut protected) = acceptor.accept(stream).await {
                    let mut plain = TcpStream::connect(server).await.unwrap();
                    let _ = copy_bidirectional(&mut protected, &mut plain).await;
                }
            });
        }
    };
    thread::spawn(move || runtime.block_on(accept));
    port
}

#[test]
fn certificates_are_checked_and_redirects_stay_protected() {
    let place = Place::with(10_000_000);
    let contents = place.contents.clone();
    let server = WebServer::start(move |request| match request.target.as_str() {
        "/object" => request.answer(&contents, "\"one\""),
        _ => WebAnswer::status(302).with("Location", "http://127.0.0.1:1/object"),
    });
    let authorities = [(); 2].map(|()| Authority::new("authority"));
    let [issued, other] = [0, 1].map(|number| authorities[number].issue("localhost"));
    let port = protect(server.address(), &issued);
    let push = |target: &str, authorities: Option<&Issued>| {
        let url = format!("https://localhost:{port}{target}");
        let mut command =
            place.rdmc(&["push", &url, "--local", "2", "--dest", "{host}/copy", "--mkdir"]);
        if let Some(issued) = authorities {
            command.env("SSL_CERT_FILE", &issued.authorities);
        }
        Outcome::of(command.output().unwrap())
    };
    let pushed = push("/object", Some(&issued));
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    assert!(place.is_copy("local-1/copy") && place.is_copy("local-2/copy"));
    let redirected = push("/other", Some(&issued));
    assert_eq!(redirected.code, Some(1), "{redirected:?}");
    assert!(redirected.err.contains("from https to what is not protected"), "{redirected:?}");
    // Another authority of the same name.
    let untrusted = push("/object", Some(&other));
    assert_eq!(untrusted.code, Some(1), "{untrusted:?}");
    let is_named = untrusted.err.contains("certificate") && untrusted.err.contains("SSL_CERT_FILE");
    assert!(is_named, "{untrusted:?}");
}
