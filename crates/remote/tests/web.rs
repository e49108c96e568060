//! Files on a web server, with faults of servers and networks.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use remote::{Kind, Location, Remote, RemoteError, Settings};
use testing::{WebAnswer, WebRequest, WebServer};

const PATIENCE: Duration = Duration::from_secs(3);

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
}

fn open(url: &str) -> Result<Remote, RemoteError> {
    open_with(url, PATIENCE)
}

fn open_with(url: &str, patience: Duration) -> Result<Remote, RemoteError> {
    let settings = Settings { patience, ..Settings::default() };
    Remote::open(&Location::parse(url).unwrap(), &settings)
}

fn read(remote: &Remote, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
    let mut read = Vec::new();
    remote.read(0, range, &mut |bytes| read.extend_from_slice(bytes)).map(|()| read)
}

/// A server of one file. `fault` may answer instead; it gets how often ranges beyond the first byte were requested before.
fn server(
    bytes: usize,
    fault: impl Fn(&WebRequest, usize) -> Option<WebAnswer> + Send + Sync + 'static,
) -> WebServer {
    let (contents, requests) = (contents(bytes), AtomicUsize::new(0));
    WebServer::start(move |request| {
        let is_first = request.range() == Some((0, 1));
        let before = if is_first { 0 } else { requests.fetch_add(1, Ordering::Relaxed) };
        let answer = if is_first { None } else { fault(request, before) };
        answer.unwrap_or_else(|| request.answer(&contents, "\"one\""))
    })
}

#[test]
fn ranges_are_read_by_several_threads() {
    let server = server(100_000, |_, _| None);
    let remote = open(&server.url("/dir/object?signature=secret")).unwrap();
    let [entry] = remote.entries() else { panic!("{:?}", remote.entries()) };
    assert_eq!(entry.kind, Kind::File { bytes: 100_000, checksum: None });
    assert_eq!(entry.modified_ns, 1_788_264_000_000_000_000);
    assert!(!remote.is_directory() && remote.shown().ends_with("/dir/object"));
    let all = contents(100_000);
    thread::scope(|scope| {
        for start in (0..100_000).step_by(12_500) {
            let (remote, all) = (&remote, &all);
            scope.spawn(move || {
                let range = start..start + 12_500;
                let expected = &all[start as usize..range.end as usize];
                assert_eq!(read(remote, range).unwrap(), expected);
            });
        }
    });
    // Connections are used again.
    for start in 0..20 {
        read(&remote, start * 1000..start * 1000 + 1).unwrap();
    }
    assert!(server.connections() <= 9, "{} connections", server.connections());
    assert!(read(&remote, 7..7).unwrap().is_empty());
    remote.look_again().unwrap();
    assert_eq!(server.sent(), 100_000 + 20 + 2);
    assert!(read(&remote, 99_999..100_001).is_err());
}

#[test]
fn an_empty_file() {
    let server = WebServer::start(|request| request.answer(b"", "\"one\""));
    let remote = open(&server.url("/empty")).unwrap();
    assert_eq!(remote.entries()[0].kind, Kind::File { bytes: 0, checksum: None });
    remote.look_again().unwrap();
}

/// Errors of one attempt do not show: what has come is kept, and the rest is requested again.
#[test]
fn what_a_cut_connection_has_brought_is_not_read_again() {
    let server = server(100_000, |request, before| {
        let answer = request.answer(&contents(100_000), "\"one\"");
        let cut = WebAnswer { cut_after: Some(30_000), ..answer.clone() };
        let longer = WebAnswer { claimed_bytes: Some(answer.body.len() + 10), ..answer.clone() };
        match before {
            0 | 1 => Some(cut),
            2 => Some(WebAnswer::status(500)),
            3 => Some(WebAnswer::status(429).with("Retry-After", "1")),
            4 => Some(longer),
            _ => None,
        }
    });
    let remote = open(&server.url("/object")).unwrap();
    assert_eq!(read(&remote, 0..100_000).unwrap(), contents(100_000));
    assert_eq!(server.sent(), 100_000 + 1);
    let starts: Vec<usize> =
        server.requests().iter().filter_map(|request| Some(request.range()?.0)).collect();
    assert_eq!(starts, [0, 0, 30_000, 60_000, 60_000, 60_000]);
}

#[test]
fn slow_bytes_are_waited_for_and_none_are_not() {
    let slow = server(40_000, |request, _| {
        let answer = request.answer(&contents(40_000), "\"one\"");
        Some(WebAnswer { pause: Duration::from_millis(20), ..answer })
    });
    assert_eq!(read(&open(&slow.url("/a")).unwrap(), 0..40_000).unwrap(), contents(40_000));
    let silent = server(40_000, |request, _| {
        let answer = request.answer(&contents(40_000), "\"one\"");
        Some(WebAnswer { pause: Duration::from_secs(20), ..answer })
    });
    let error = read(&open(&silent.url("/a?secret")).unwrap(), 0..40_000).unwrap_err();
    assert!(matches!(error, RemoteError::Unreachable { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("/a: no byte of it came") && !error.contains("secret"), "{error}");
}

#[test]
fn a_server_that_only_fails_is_given_up() {
    let failing = server(1000, |_, _| Some(WebAnswer::status(503)));
    let error = read(&open(&failing.url("/a")).unwrap(), 0..1000).unwrap_err().to_string();
    assert!(error.contains("503"), "{error}");
    let busy = server(1000, |_, _| Some(WebAnswer::status(429).with("Retry-After", "3600")));
    let before = std::time::Instant::now();
    let error = read(&open(&busy.url("/a")).unwrap(), 0..1000).unwrap_err().to_string();
    assert!(error.contains("429") && before.elapsed() < Duration::from_secs(30), "{error}");
    // No other test listens at such a port.
    let error = open("http://127.0.0.1:9/a").unwrap_err().to_string();
    assert!(error.contains("onnect"), "{error}");
}

#[test]
fn a_version_is_never_mixed_with_another() {
    type Other = fn(&WebRequest) -> WebAnswer;
    let others: [(Other, &str); 5] = [
        (|_| WebAnswer::status(412), "the server has another version"),
        // A server that ignores If-Match.
        (
            |request| {
                WebRequest { headers: without_condition(request), ..request.clone() }
                    .answer(&contents(1000), "\"two\"")
            },
            "its ETag was \"one\" and is \"two\"",
        ),
        (|request| request.answer(&contents(1001), "\"one\""), "it had 1000 bytes and has 1001"),
        (|request| request.answer(&contents(3), "\"one\""), "it had 1000 bytes and has 3"),
        (|_| WebAnswer::status(404), "it was removed"),
    ];
    for (other, expected) in others {
        let server = server(1000, move |request, before| (before > 0).then(|| other(request)));
        let remote = open(&server.url("/object?secret")).unwrap();
        assert_eq!(read(&remote, 0..500).unwrap(), contents(1000)[..500]);
        let error = read(&remote, 500..1000).unwrap_err();
        assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("/object changed") && error.contains(expected), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

fn without_condition(request: &WebRequest) -> std::collections::BTreeMap<String, String> {
    let headers = request.headers.iter().filter(|(name, _)| *name != "if-match");
    headers.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[test]
fn another_version_is_found_by_a_last_look() {
    let now = Arc::new(AtomicUsize::new(0));
    let version = Arc::clone(&now);
    let server = WebServer::start(move |request| {
        let tag = ["\"one\"", "\"two\""][version.load(Ordering::Relaxed)];
        request.answer(&contents(1000), tag)
    });
    let remote = open(&server.url("/object")).unwrap();
    remote.look_again().unwrap();
    assert_eq!(remote.version(0), "\"one\"");
    now.store(1, Ordering::Relaxed);
    assert!(matches!(remote.look_again(), Err(RemoteError::Changed { .. })));
}

#[test]
fn what_cannot_be_read_in_ranges_of_one_version_is_refused_with_a_remedy() {
    type Answer = fn(&WebRequest) -> WebAnswer;
    let cases: [(Answer, &str); 6] = [
        (
            |_| WebAnswer::text("whole").with("ETag", "\"a\""),
            "ranges of it, in which rdmc reads; send it as a stream: curl",
        ),
        (
            |request| WebAnswer {
                headers: vec![("Content-Range".into(), "bytes 0-0/5".into())],
                ..request.answer(b"whole", "")
            },
            "neither ETag nor Last-Modified",
        ),
        (
            |request| request.answer(b"whole", "\"a\"").with("Content-Encoding", "gzip"),
            "compressed (gzip)",
        ),
        (|_| WebAnswer::status(404), "404 Not Found; check the spelling"),
        (|_| WebAnswer::status(403), "needs credentials"),
        (|_| WebAnswer::status(302).with("Location", "/again"), "too many redirects"),
    ];
    for (answer, expected) in cases {
        let server = WebServer::start(answer);
        let error = open(&server.url("/object?secret")).unwrap_err().to_string();
        assert!(error.contains("/object: ") && error.contains(expected), "{error}");
        assert!(!error.contains("secret") && !error.contains("again"), "{error}");
    }
}

#[test]
fn redirects_are_followed_and_remembered() {
    let other = Arc::new(server(1000, |_, _| None));
    let target = other.url("/signed?secret");
    let server = WebServer::start(move |_| WebAnswer::status(302).with("Location", &target));
    let remote = open(&server.url("/object")).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&remote, 0..1000).unwrap(), contents(1000));
    }
    // The first look, and the first read.
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_redirect_that_has_expired_is_asked_for_again() {
    let other = server(1000, |request, before| {
        (before == 1 && request.range() != Some((0, 1))).then(|| WebAnswer::status(403))
    });
    let target = other.url("/signed");
    let server = WebServer::start(move |_| WebAnswer::status(302).with("Location", &target));
    let remote = open(&server.url("/object")).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&remote, 0..1000).unwrap(), contents(1000));
    }
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn reading_can_be_stopped() {
    let silent = server(40_000, |request, _| {
        let answer = request.answer(&contents(40_000), "\"one\"");
        Some(WebAnswer { pause: Duration::from_secs(20), ..answer })
    });
    let remote = open_with(&silent.url("/a"), Duration::from_secs(600)).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&remote, 0..40_000));
        while silent.sent() < 4000 {
            thread::sleep(Duration::from_millis(1));
        }
        remote.stop();
        assert_eq!(reader.join().unwrap(), Err(RemoteError::Stopped));
    });
    assert_eq!(read(&remote, 0..1), Err(RemoteError::Stopped));
}
