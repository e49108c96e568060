//! Roots and receivers that authenticate each other by certificates.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, date_time_ymd};
use session::{CertificateFiles, Certificates, Channel, Credentials, Deadline, Error, Secret};

/// An authority whose certificates are files as the library takes them.
struct Authority(testing::Authority);

impl Authority {
    fn new(name: &str) -> Self {
        Self(testing::Authority::new(name))
    }

    fn issue(&self, names: &str) -> CertificateFiles {
        self.issue_with(names, |_| {})
    }

    fn issue_with(
        &self,
        names: &str,
        change: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> CertificateFiles {
        let issued = self.0.issue_with(names, change);
        issued.into_files(|certificate, key, authorities| CertificateFiles {
            certificate,
            key,
            authorities,
        })
    }
}

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(50);

fn deadline() -> Deadline {
    Deadline::after(PATIENCE)
}

fn with(files: &CertificateFiles, allowed: &[&str]) -> Credentials {
    let allowed: Vec<String> = allowed.iter().map(|&name| name.to_owned()).collect();
    Credentials::Certificates(Certificates::read(files, &allowed).unwrap())
}

/// Connects a root to a listener that it names `host`. The listener receives 7 from the root if
/// they accept each other. The root waits for the listener's message first, as in a push.
fn meet(
    host: &str,
    listener: &Credentials,
    root: &Credentials,
) -> (Result<u32, Error>, Result<u32, Error>) {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::scope(|scope| {
        let listening = scope.spawn(move || {
            let stream = socket.accept().unwrap().0;
            let mut channel = Channel::accept_from(stream, listener, deadline())?;
            channel.send(&6_u32, deadline())?;
            channel.receive(deadline())
        });
        let connecting = || {
            let mut channel = Channel::connect_to(host, address, root, deadline())?;
            let received = channel.receive(deadline())?;
            channel.send(&7_u32, deadline()).map(|()| received)
        };
        let at_the_root = connecting();
        (listening.join().unwrap(), at_the_root)
    })
}

/// Checks that the errors of both ends contain these words.
#[track_caller]
fn assert_refused(
    host: &str,
    listener: &Credentials,
    root: &Credentials,
    [at_listener, at_root]: [&str; 2],
) {
    let (received, at_the_root) = meet(host, listener, root);
    for (error, words) in
        [(received.unwrap_err(), at_listener), (at_the_root.unwrap_err(), at_root)]
    {
        assert!(error.to_string().contains(words), "no \"{words}\" in: {error}");
    }
}

#[test]
fn peers_with_certificates_of_the_same_authority_connect() {
    let authority = Authority::new("one");
    let listener = with(&authority.issue("node1,127.0.0.1"), &[]);
    let root = with(&authority.issue("root"), &[]);
    for host in ["node1", "127.0.0.1"] {
        let (received, at_the_root) = meet(host, &listener, &root);
        assert_eq!((received.unwrap(), at_the_root.unwrap()), (7, 6));
    }
}

#[test]
fn roots_and_receivers_may_have_authorities_of_their_own() {
    let (roots, receivers) = (Authority::new("roots"), Authority::new("receivers"));
    let trusting = |files: CertificateFiles, other: &Authority| {
        with(&CertificateFiles { authorities: other.issue("any").authorities, ..files }, &[])
    };
    let listener = trusting(receivers.issue("node1"), &roots);
    let root = trusting(roots.issue("root"), &receivers);
    let (received, at_the_root) = meet("node1", &listener, &root);
    assert_eq!((received.unwrap(), at_the_root.unwrap()), (7, 6));
    // A receiver's certificate is not accepted as a root's.
    let other = trusting(receivers.issue("node2"), &receivers);
    let words = ["no authority that is trusted here", "does not trust the authority"];
    assert_refused("node1", &listener, &other, words);
}

#[test]
fn another_authority_is_refused_by_the_end_that_checks_first() {
    // Another authority may have the same name.
    for name in ["two", "one"] {
        let (one, other) = (Authority::new("one"), Authority::new(name));
        let (listener, root) = (with(&one.issue("node1"), &[]), with(&other.issue("root"), &[]));
        let words = ["does not trust the authority", "no authority that is trusted here"];
        assert_refused("node1", &listener, &root, words);
    }
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new("one");
    let (listener, root) =
        (with(&authority.issue("node1"), &[]), with(&authority.issue("root"), &[]));
    let words = ["not for the name by which", "not for node2; address the host by a name"];
    assert_refused("node2", &listener, &root, words);
    let words = ["not for the name by which", "not for 127.0.0.1"];
    assert_refused("127.0.0.1", &listener, &root, words);
}

#[test]
fn certificates_outside_their_validity_period_are_refused() {
    let authority = Authority::new("one");
    let good = |name| with(&authority.issue(name), &[]);
    let expired =
        authority.issue_with("old", |params| params.not_after = date_time_ymd(2020, 1, 1));
    let expired = with(&expired, &[]);
    let early =
        authority.issue_with("young", |params| params.not_before = date_time_ymd(4000, 1, 1));
    let early = with(&early, &[]);
    let refused = "expired, or is not valid yet";
    assert_refused("old", &expired, &good("root"), [refused, "has expired; issue a new one"]);
    assert_refused("node1", &good("node1"), &expired, ["has expired; issue a new one", refused]);
    assert_refused("node1", &good("node1"), &early, ["are the clocks", refused]);
}

#[test]
fn certificates_for_another_usage_are_refused() {
    let authority = Authority::new("one");
    let only = |name, purpose| {
        let change = |params: &mut rcgen::CertificateParams| {
            params.extended_key_usages = vec![purpose];
        };
        with(&authority.issue_with(name, change), &[])
    };
    let listener = only("node1", ExtendedKeyUsagePurpose::ServerAuth);
    let root = only("root", ExtendedKeyUsagePurpose::ClientAuth);
    assert!(meet("node1", &listener, &root).1.is_ok());
    let words = ["roots need clientAuth", "another purpose (extended key usage)"];
    assert_refused("node1", &listener, &listener, words);
    // An authority's certificate is refused as a host's own.
    let is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = with(&authority.issue_with("root", |params| params.is_ca = is_ca), &[]);
    assert_refused("node1", &listener, &root, ["CA:FALSE", "that host reports why"]);
}

#[test]
fn only_allowed_roots_are_accepted() {
    let authority = Authority::new("one");
    let listener = with(&authority.issue("node1"), &["root-a", "root-b"]);
    for root in ["root-a", "other,root-b", "*.root-b,root-a"] {
        assert!(meet("node1", &listener, &with(&authority.issue(root), &[])).0.is_ok(), "{root}");
    }
    for root in ["root-c", "root-a.example", "10.0.0.1"] {
        let root = with(&authority.issue(root), &[]);
        let words = [
            "none of the names that are allowed here: root-a, root-b",
            "may allow only other names",
        ];
        assert_refused("node1", &listener, &root, words);
    }
}

#[test]
fn a_peer_with_a_secret_and_one_with_certificates_are_refused() {
    let authority = Authority::new("one");
    let certificates = with(&authority.issue("node1"), &[]);
    let secret = Credentials::from(Secret::from_bytes([1; 32]));
    let words = ["one end has a secret and the other certificates"; 2];
    assert_refused("node1", &certificates, &secret, words);
    assert_refused("node1", &secret, &certificates, words);
}

/// TLS without a certificate, by rustls itself.
#[test]
fn a_peer_without_a_certificate_is_refused() {
    use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs, pki_types};
    use std::io::{Read, Write};

    let authority = Authority::new("one");
    let files = authority.issue("node1");
    let listener = with(&files, &[]);
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let mut roots = RootCertStore::empty();
    let pem = fs::read(&files.authorities).unwrap();
    roots.add(pki_types::pem::PemObject::from_pem_slice(&pem).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let refused = thread::scope(|scope| {
        let accept = || Channel::accept_from(socket.accept().unwrap().0, &listener, deadline());
        let accepting = scope.spawn(move || accept().unwrap_err());
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut greeting = [0; 6];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&greeting).unwrap();
        let name = "node1".try_into().unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        while tls.complete_io(&mut stream).is_ok() {}
        accepting.join().unwrap()
    });
    assert!(refused.to_string().contains("it has no certificate"), "{refused}");
}

#[test]
fn files_that_do_not_fit_are_named_with_the_remedy() {
    let authority = Authority::new("one");
    let (good, other) = (authority.issue("a"), authority.issue("b"));
    let junk = good.certificate.with_file_name("junk");
    fs::write(&junk, "-----BEGIN CERTIFICATE-----\n@@@\n-----END CERTIFICATE-----\n").unwrap();
    let encrypted = good.certificate.with_file_name("encrypted");
    let text = fs::read_to_string(&good.key).unwrap();
    fs::write(&encrypted, text.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")).unwrap();
    let missing = good.certificate.with_file_name("missing");
    let error = |files: CertificateFiles| Certificates::read(&files, &[]).unwrap_err().to_string();
    let cases = [
        ("missing: No such file", CertificateFiles { certificate: missing, ..good.clone() }),
        ("junk: is not in the PEM", CertificateFiles { authorities: junk, ..good.clone() }),
        (
            "a.key: no certificate in it",
            CertificateFiles { certificate: good.key.clone(), ..good.clone() },
        ),
        (
            "a.pem: no private key in it",
            CertificateFiles { key: good.certificate.clone(), ..good.clone() },
        ),
        ("openssl pkey", CertificateFiles { key: encrypted, ..good.clone() }),
        (
            "b.key: is not the key of the certificate in",
            CertificateFiles { key: other.key, ..good.clone() },
        ),
    ];
    for (words, files) in cases {
        let error = error(files);
        assert!(error.contains(words), "no \"{words}\" in: {error}");
    }
    let error = Certificates::read(&good, &["no host".into()]).unwrap_err().to_string();
    assert!(error.contains("\"no host\" is not the name"), "{error}");
    assert_eq!(format!("{:?}", Certificates::read(&good, &[]).unwrap()), "Certificates(..)");
}
