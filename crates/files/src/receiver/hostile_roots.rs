//! What an authorised root that breaks every rule can do to a receiver that listens.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, OnceLock, atomic::Ordering},
    thread,
    time::Duration,
};

use rdmc::{Algorithm, CompletionMode};
use session::Deadline;
use tree::{Attributes, Entry, Kind};

use super::{
    error::ReceiveError,
    evil::{Evil, TIMEOUT, file_offer, pair, settings, terms},
    io::Io,
    limits::RootLimits,
    listing::Listing,
    listings::Listings,
    machine::Effects,
    placement::Placement,
    reception::Reception,
    root_link::RootLink,
    serve::serve_with,
    settings::ReceiverSettings,
};
use crate::{
    group_terms::GroupTerms,
    messages::{Deletion, Offer, RemoteOffer, Start, StreamOffer, ToReceiver, ToRoot, TreeOffer},
    owners::Kept,
    ranges::RangeList,
};

/// Much more than any log may get of one session.
const LINE_BYTES_MAX: usize = 2000;

fn offer(destination: &str) -> ToReceiver {
    ToReceiver::Offer(Box::new(file_offer(destination)))
}

/// Of a tree without contents that goes into `copy`.
fn tree_offer(tree: TreeOffer) -> Offer {
    let mut offer = file_offer("copy");
    offer.manifest.bytes = 0;
    Offer { tree: Some(tree), ..offer }
}

/// A group of the root, this address and the receiver, which connects to the one before it.
fn start(receiver: SocketAddr, third: SocketAddr) -> ToReceiver {
    let root = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let group = GroupTerms {
        number: 7,
        rank: 2,
        addresses: vec![root, third, receiver],
        racks: vec![0; 3],
        algorithm: Algorithm::Chain.code(),
        block_bytes: 10,
        window_receives: 1,
        window_sends: 1,
        messages_in_flight: 1,
        offload: false,
    };
    ToReceiver::Start(Start { group, ranges: RangeList::default(), reads: false })
}

#[test]
fn what_a_root_sends_is_not_repeated_in_logs() {
    let long = || "\u{e9}".repeat(1 << 20);
    let listing = ToReceiver::Listing { part: vec![7; 20 << 20] };
    let destination = offer(&format!("x/{}", long()));
    let mut protection = terms();
    protection.protection = long();
    let stream = StreamOffer { destination: long(), mode: None, command: None, terms: protection };
    let mut network = (offer("a"), ToReceiver::Use { fabric: long(), has: RangeList::default() });
    for (messages, words) in [
        (vec![listing], "unexpected message from the root: part of a list of files"),
        (vec![destination], ""),
        (vec![ToReceiver::Stream(stream)], "protection"),
        (vec![network.0.clone(), network.1.clone()], "fabric"),
    ] {
        let mut evil = Evil::connect();
        messages.iter().for_each(|message| evil.send(message));
        let (told, logged) = evil.end();
        assert!(told.contains(words), "{told}");
        assert!(told.len() < LINE_BYTES_MAX, "{} bytes were told", told.len());
        // The command shortens that once more.
        assert!(crate::shortened(&logged).len() < LINE_BYTES_MAX, "{} bytes", logged.len());
    }
    network.1 = ToReceiver::Abort { reason: long(), keep: true };
    let mut evil = Evil::connect();
    evil.send(&network.1);
    let logged = evil.receiver.join().unwrap().unwrap_err().to_string();
    assert!(logged.len() < LINE_BYTES_MAX, "{} bytes", logged.len());
}

#[test]
fn a_root_has_no_urls_read() {
    let service = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    service.set_nonblocking(true).unwrap();
    let url = format!("http://{}/latest/meta-data", service.local_addr().unwrap());
    let remote = Some(RemoteOffer { url, as_hub_cache: false, version: [0; 32] });
    let mut evil = Evil::connect();
    evil.send(&ToReceiver::Offer(Box::new(Offer { remote, ..file_offer("copy") })));
    let (told, _) = evil.end();
    assert!(told.contains("reads no URLs for a root"), "{told}");
    assert!(service.accept().is_err(), "it was connected to");
}

#[test]
fn a_receiver_that_cannot_read_urls_says_why() {
    let remote = RemoteOffer { url: "s3://b/k".into(), as_hub_cache: false, version: [0; 32] };
    let offer = || Offer { remote: Some(remote.clone()), ..file_offer("copy") };
    let mut own = ReceiverSettings::new("host".into(), Placement::Anywhere);
    let refused = |own: &ReceiverSettings| own.accept(offer()).unwrap_err().to_string();
    assert!(refused(&own).contains("built without the feature remote"), "{}", refused(&own));
    own.limits = Some(RootLimits::default());
    assert!(refused(&own).contains("listens or joins"), "{}", refused(&own));
    assert!(own.accept(file_offer("copy")).is_ok());
}

#[test]
fn a_root_is_not_told_what_answers_at_other_addresses() {
    let service = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let third = service.local_addr().unwrap();
    let answering = thread::spawn(move || {
        // A service of another protocol.
        let (mut stream, _) = service.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut evil = Evil::connect();
    evil.send(&offer("copy"));
    evil.await_message(|message| matches!(message, ToRoot::Prepared { .. }).then_some(()));
    evil.send(&ToReceiver::Use { fabric: "tcp".into(), has: RangeList::default() });
    let port = evil.await_message(|message| match message {
        ToRoot::Ready { port } => Some(port),
        _ => None,
    });
    evil.send(&start((Ipv4Addr::LOCALHOST, port).into(), third));
    // The root keeps the connection alive, as an honest one does.
    let told = loop {
        let deadline = Deadline::after(TIMEOUT);
        match evil.root.receive::<ToRoot>(deadline).unwrap() {
            ToRoot::GroupFailed { detail, .. } => break detail,
            _ => evil.send(&ToReceiver::Alive),
        }
    };
    assert_eq!(told, RootLimits::UNREACHABLE);
    let record = evil.reception.take_record();
    assert!(record.notes.iter().any(|note| note.contains(&third.to_string())), "{record:?}");
    assert_eq!(record.destination.as_deref(), Some("copy"));
    evil.send(&ToReceiver::Abort { reason: "over".into(), keep: false });
    assert!(evil.receiver.join().unwrap().is_err());
    answering.join().unwrap();
}

#[test]
fn a_session_ends_when_its_receiver_says_so_and_the_root_is_told() {
    let evil = Evil::connect();
    evil.reception.end("another push needs the place");
    let (told, logged) = evil.end();
    assert_eq!(
        (&*told, &*logged),
        ("another push needs the place", "another push needs the place")
    );
}

#[test]
fn only_what_moves_the_push_forward_is_progress() {
    let mut evil = Evil::connect();
    evil.send(&offer("copy"));
    evil.await_message(|message| matches!(message, ToRoot::Prepared { .. }).then_some(()));
    let prepared = evil.reception.progress();
    assert_eq!(prepared, 2, "the offer, and what was prepared");
    evil.send(&ToReceiver::Use { fabric: "tcp".into(), has: RangeList::default() });
    let port = evil.await_message(|message| match message {
        ToRoot::Ready { port } => Some(port),
        _ => None,
    });
    assert_eq!(evil.reception.progress(), prepared + 1, "the copy was begun");
    // What a root can send as often as it likes.
    for _ in 0..5 {
        evil.send(&ToReceiver::Alive);
        evil.send(&ToReceiver::Leave { group: 99 });
        evil.send(&ToReceiver::Digest { digest: [0; 32] });
    }
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    evil.send(&start((Ipv4Addr::LOCALHOST, port).into(), nobody));
    evil.send(&ToReceiver::Leave { group: 7 });
    evil.send(&ToReceiver::Publish);
    let (reception, (told, _)) = (Arc::clone(&evil.reception), evil.end());
    assert!(told.contains("unverified copy"), "{told}");
    assert_eq!(reception.progress(), prepared + 1);
}

#[test]
fn bytes_that_trickle_in_are_little_progress() {
    let reception = Reception::default();
    (0..100).for_each(|_| reception.advanced(10));
    assert_eq!(reception.progress(), 0);
    reception.advanced(1 << 20);
    assert_eq!(reception.progress(), 16);
}

#[test]
fn lists_of_all_sessions_share_their_room() {
    let listings = Arc::new(Listings::new(100));
    let connect = || {
        let listings = Arc::clone(&listings);
        Evil::connect_to(|settings| settings.listings = listings)
    };
    let offer = |listing_bytes, relayed| {
        let tree = TreeOffer { listing_bytes, relayed, ..TreeOffer::default() };
        ToReceiver::Offer(Box::new(tree_offer(tree)))
    };
    let refused = |offer: ToReceiver| {
        let mut evil = connect();
        evil.send(&offer);
        let (told, _) = evil.end();
        assert!(told.contains("larger --max-lists"), "{told}");
    };
    refused(offer(101, None));
    refused(offer(101, Some([1; 32])));
    let mut first = connect();
    first.send(&offer(60, Some([1; 32])));
    first.await_message(|message| matches!(message, ToRoot::NeedsListing { .. }).then_some(()));
    refused(offer(60, None));
    refused(offer(60, Some([1; 32])));
    first.send(&ToReceiver::Abort { reason: "over".into(), keep: false });
    assert!(first.receiver.join().unwrap().is_err());
    let mut last = connect();
    last.send(&offer(100, Some([1; 32])));
    last.await_message(|message| matches!(message, ToRoot::NeedsListing { .. }).then_some(()));
}

#[test]
fn attributes_count_for_the_longest_object() {
    let extended = vec![(b"user.a".to_vec(), vec![7; 600])];
    let attributes = Attributes { extended, ..Attributes::default() };
    let entry = |name: &str| Entry {
        path: name.into(),
        kind: Kind::Directory,
        mode: 0o755,
        modified_ns: 0,
    };
    let listing = tree::Listing::new(vec![entry("a"), entry("b")]).unwrap();
    let listing = listing.with_attributes([attributes.clone(), attributes.clone()]).unwrap();
    let part = listing.encode().unwrap();
    let own = Attributes::default();
    let kept = Kept { extended: true, own, ..Kept::default() };
    let tree = TreeOffer { listing_bytes: part.len() as u64, ..TreeOffer::default() };
    let tree = Offer { kept: Some(kept.clone()), ..tree_offer(tree) };
    let file = Offer { kept: Some(Kept { own: attributes, ..kept }), ..file_offer("copy") };
    for (offer, part, accepted) in [(tree, Some(part), 1211), (file, None, 615)] {
        let mut evil = Evil::connect_to(|settings| settings.bytes_max = Some(accepted));
        evil.send(&ToReceiver::Offer(Box::new(offer)));
        part.into_iter().for_each(|part| evil.send(&ToReceiver::Listing { part }));
        let (told, _) = evil.end();
        assert!(told.contains("larger --max-size"), "{told}");
    }
}

#[test]
fn a_lost_root_interrupts_what_takes_its_time() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("copy")).unwrap();
    fs::write(directory.path().join("copy/extra"), "").unwrap();
    let encoded = tree::Listing::new(Vec::new()).unwrap().encode().unwrap();
    let deletion = Deletion { at_top: true, prefix: Vec::new(), patterns: Vec::new() };
    let listing_bytes = encoded.len() as u64;
    let tree = TreeOffer { listing_bytes, deletion: Some(deletion), ..TreeOffer::default() };
    for aborts in [false, true] {
        let (settings, (own, mut root)) = (settings(directory.path()), pair());
        let link = RootLink::start(own, &settings).unwrap();
        if aborts {
            let abort = ToReceiver::Abort { reason: "over".into(), keep: true };
            root.send(&abort, Deadline::after(TIMEOUT)).unwrap();
        }
        drop(root);
        let deadline = Deadline::after(TIMEOUT);
        while !link.interrupted.load(Ordering::Relaxed) && !deadline.left().is_zero() {
            thread::yield_now();
        }
        let mut listing = Listing::offered(&tree, &settings.listings).unwrap();
        assert!(listing.add(&encoded).unwrap());
        let mut io = Io::new(&link, tree_offer(tree.clone()), Some(listing));
        let error = io.prepare().unwrap_err();
        assert!(error.keeps_partial(), "{error}");
        assert_eq!(matches!(error, ReceiveError::Aborted { .. }), aborts, "{error}");
        assert_eq!(matches!(error, ReceiveError::Root(_)), !aborts, "{error}");
    }
}

#[test]
fn the_receiver_chooses_how_it_waits_and_in_how_many_groups_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (settings, (own, _root)) = (settings(directory.path()), pair());
    let link = RootLink::start(own, &settings).unwrap();
    let context = link.context_settings("tcp", &terms()).unwrap();
    assert_eq!(context.completion, CompletionMode::EventOnly);
    let joining: Vec<_> = std::iter::from_fn(|| link.join(0).ok()).take(1000).collect();
    assert_eq!(joining.len(), 64);
    drop(joining);
    assert!(link.join(63).is_ok() && link.join(64).is_err(), "joined ones count, too");
    link.disconnect();
}

#[test]
fn a_receiver_that_takes_its_time_is_not_filled() {
    static GIVEN_UP: OnceLock<()> = OnceLock::new();
    let directory = tempfile::tempdir().unwrap();
    let (settings, (own, mut root)) = (settings(directory.path()), pair());
    let receiver = thread::spawn(move || {
        serve_with(own, &settings, |session| {
            assert!(session.is_limited());
            GIVEN_UP.wait();
            Err(ReceiveError::Stopped)
        })
    });
    root.send(&ToReceiver::Gather(terms()), Deadline::after(TIMEOUT)).unwrap();
    let chosen = ToReceiver::Use { fabric: "tcp".into(), has: RangeList::default() };
    root.send(&chosen, Deadline::after(TIMEOUT)).unwrap();
    let long = ToReceiver::Application(vec![7; 8 << 20]);
    let soon = || Deadline::after(Duration::from_secs(2));
    let sent = (0..100).take_while(|_| root.send(&long, soon()).is_ok()).count();
    // 32 MiB are queued, and a message waits; more are in the buffers of sockets.
    assert!(sent < 20, "{sent} messages of 8 MiB were taken");
    drop(root);
    GIVEN_UP.set(()).unwrap();
    assert!(receiver.join().unwrap().is_err());
}
