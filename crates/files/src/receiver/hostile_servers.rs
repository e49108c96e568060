//! What servers, and hosts that send in links, can do to one that fetches.

use std::{fs, net::Ipv4Addr, sync::Arc, thread, time::Duration};

use rdmc::{Algorithm, Context, ContextSettings, Group, Region};

use super::{
    error::ReceiveError,
    evil::{Evil, TIMEOUT, file_offer, terms},
    settings::Fetch,
};
use crate::{
    group_terms::GroupTerms,
    messages::{
        Deletion, Offer, RemoteOffer, Start, StreamOffer, ToReceiver, ToRoot, TreeOffer, Wanted,
    },
    ranges::{RangeList, Ranges},
    resume::ChunkDigests,
};

/// Length of a chunk of a short object.
const CHUNK_BYTES: usize = 64 << 10;

/// A server, and a host that fetches `wanted` as `copy`.
fn server() -> Evil {
    Evil::connect_to(|settings| {
        let (path, destination) = ("wanted".to_owned(), "copy".to_owned());
        settings.fetch = Some(Fetch { path, destination, shares: None, reports_files: true });
    })
}

fn offer() -> Offer {
    Offer { by_links: true, ..file_offer("/etc/passwd") }
}

fn refused(message: &ToReceiver) -> String {
    let mut server = server();
    server.send(message);
    server.end().0
}

#[test]
fn a_server_brings_what_was_asked_for_and_nothing_else() {
    let of = |offer: Offer| refused(&ToReceiver::Offer(Box::new(offer)));
    let deletion = Deletion { at_top: true, prefix: Vec::new(), patterns: Vec::new() };
    let tree = |tree: TreeOffer| Offer { tree: Some(tree), ..offer() };
    for other in [
        Offer { by_links: false, ..offer() },
        Offer {
            remote: Some(RemoteOffer {
                url: "s3://b/k".into(),
                as_hub_cache: false,
                version: [0; 32],
            }),
            ..offer()
        },
        Offer { dry_run: true, ..offer() },
        tree(TreeOffer { deletion: Some(deletion), ..TreeOffer::default() }),
        tree(TreeOffer { atomic: true, ..TreeOffer::default() }),
    ] {
        let told = of(other);
        assert!(told.contains("something else"), "{told}");
    }
    let (destination, mode, command) = ("copy".into(), None, Some("rm -r /".into()));
    let stream = StreamOffer { destination, mode, command, terms: terms() };
    for other in [ToReceiver::Stream(stream), ToReceiver::Gather(terms())] {
        let told = refused(&other);
        assert!(told.contains("something else"), "{told}");
    }
    let mut server = server();
    let wanted = server.await_message(|message| match message {
        ToRoot::Hello(own) => Some(own.wants),
        _ => None,
    });
    let expected = Wanted::Object { path: "wanted".to_owned(), shares: false };
    assert_eq!(wanted, Some(expected));
    // One that was told to take what a push brings.
    let mut evil = Evil::connect();
    evil.send(&ToReceiver::Offer(Box::new(offer())));
    assert!(evil.end().0.contains("nobody has asked for"));
}

#[test]
fn digests_of_parts_have_to_be_of_the_object_and_stay_the_same() {
    let digest = |byte: u8| *blake3::hash(&[byte]).as_bytes();
    for (digests, words) in [
        (vec![(1, digest(1))], "parts that there are not"),
        (vec![(u32::MAX, digest(1))], "parts that there are not"),
        (vec![(0, digest(1)), (0, digest(2))], "parts that there are not"),
    ] {
        let mut link = Link::begin(10);
        link.server.send(&ToReceiver::Chunks(ChunkDigests(digests)));
        let told = link.server.end().0;
        assert!(told.contains(words), "{told}");
    }
    let mut early = server();
    early.send(&ToReceiver::Offer(Box::new(offer())));
    early.send(&ToReceiver::Chunks(ChunkDigests(vec![(0, digest(1))])));
    assert!(early.end().0.contains("unexpected message"));
}

/// A server whose host is ready to receive an object.
struct Link {
    server: Evil,
    context: Arc<Context>,
    port: u16,
    bytes: u64,
    groups: u64,
}

impl Link {
    fn begin(bytes: u64) -> Self {
        let mut server = server();
        let mut offer = offer();
        offer.manifest.bytes = bytes;
        server.send(&ToReceiver::Offer(Box::new(offer)));
        server.await_message(|message| matches!(message, ToRoot::Prepared { .. }).then_some(()));
        server.send(&ToReceiver::Use { fabric: "tcp".into(), has: RangeList::default() });
        let port = server.await_message(|message| match message {
            ToRoot::Ready { port } => Some(port),
            _ => None,
        });
        let mut settings = ContextSettings::new((Ipv4Addr::LOCALHOST, 0).into(), terms().secret);
        // Bytes are altered here, not in memory that both share.
        settings.tcp.direct_copies = false;
        let context = Arc::new(Context::start(settings).unwrap());
        Self { server, context, port, bytes, groups: 0 }
    }

    /// The sender's end of a further link.
    fn join(&mut self) -> Group {
        self.groups += 1;
        let own = self.context.address();
        let group = GroupTerms {
            number: self.groups,
            rank: 0,
            addresses: vec![own, (Ipv4Addr::LOCALHOST, self.port).into()],
            racks: vec![0; 2],
            algorithm: Algorithm::Chain.code(),
            block_bytes: 65_536,
            window_receives: 4,
            window_sends: 4,
            messages_in_flight: 8,
            offload: false,
        };
        let all: Ranges = [(0, self.bytes)].into_iter().collect();
        let start = Start { group, ranges: RangeList::from(&all), reads: false };
        let told = start.told_from(1).unwrap().next().unwrap();
        self.server.send(&ToReceiver::Start(told));
        self.context.create_group(start.link_settings().unwrap()).unwrap()
    }

    /// Receives until this message, as an honest root does.
    fn await_message<T>(&mut self, wanted: impl Fn(&ToRoot) -> Option<T>) -> T {
        self.server.await_message(|message| {
            if let ToRoot::Failed { reason } = &message {
                panic!("{reason}");
            }
            wanted(&message)
        })
    }
}

fn send(group: &Group, message: &[u8]) {
    // One that has failed is what the test is about.
    let _ = group.send(Region::from_vec(message.to_vec()), TIMEOUT);
}

#[test]
fn what_a_sender_makes_up_ends_its_link_and_is_not_written() {
    let contents: Vec<u8> = (0..CHUNK_BYTES + 10).map(|at| (at % 251) as u8).collect();
    let (first, last) = contents.split_at(CHUNK_BYTES);
    let mut link = Link::begin(contents.len() as u64);
    let digests = [first, last].map(|chunk| *blake3::hash(chunk).as_bytes());
    let digests = (0..).zip(digests).collect();
    link.server.send(&ToReceiver::Chunks(ChunkDigests(digests)));
    let number = |number: u32| number.to_le_bytes().to_vec();
    let mut altered = last.to_vec();
    altered[3] ^= 1;
    for messages in [
        vec![vec![0; 3]],
        vec![vec![0; CHUNK_BYTES]],
        vec![number(2), last.to_vec()],
        vec![number(u32::MAX), last.to_vec()],
        vec![number(1), first.to_vec()],
        vec![number(0), last.to_vec()],
        vec![number(1)],
    ] {
        let group = link.join();
        messages.iter().for_each(|message| send(&group, message));
        let _ = group.start_close();
        let number = link.groups;
        let has = link.await_message(|message| match message {
            ToRoot::GroupFailed { group, has, .. } if *group == number => Some(has.clone()),
            _ => None,
        });
        assert!(has.is_empty(), "{has:?}");
    }
    let group = link.join();
    send(&group, &number(1));
    send(&group, &altered);
    let at = link.await_message(|message| match message {
        ToRoot::Altered { at, .. } => Some(*at),
        _ => None,
    });
    assert_eq!(at, CHUNK_BYTES as u64);
    assert_eq!(link.server.reception.take_verified_file(), None);
    // The right ones, in any order, one of them twice.
    let group = link.join();
    for (chunk, bytes) in [(1, last), (1, last), (0, first)] {
        send(&group, &number(chunk));
        send(&group, bytes);
    }
    group.close(TIMEOUT).unwrap();
    link.await_message(|message| matches!(message, ToRoot::Complete).then_some(()));
    // It can be read before anything is published.
    let file = link.server.reception.take_verified_file().unwrap();
    let copy = link.server.directory.path().join("copy");
    assert_eq!((&file.destination, file.bytes), (&copy, contents.len() as u64));
    assert!(fs::read(&file.at).unwrap() == contents && !copy.exists());
    let digest = *blake3::hash(&contents).as_bytes();
    link.server.send(&ToReceiver::Digest { digest });
    let is_equal = link.await_message(|message| match message {
        ToRoot::Compared { equal } => Some(*equal),
        _ => None,
    });
    assert!(is_equal);
    link.server.send(&ToReceiver::Publish);
    link.await_message(|message| matches!(message, ToRoot::Published { .. }).then_some(()));
    link.server.send(&ToReceiver::Finish);
    let Evil { receiver, reception, directory, .. } = link.server;
    assert!(matches!(receiver.join().unwrap(), Ok::<_, ReceiveError>(Some(_))));
    assert_eq!(fs::read(directory.path().join("copy")).unwrap(), contents);
    assert_eq!(reception.take_verified_file(), None, "once");
}

#[test]
fn a_link_that_waits_for_digests_can_be_left() {
    let mut link = Link::begin(10);
    let group = link.join();
    send(&group, &0_u32.to_le_bytes());
    send(&group, &[0; 10]);
    // Everything has arrived, and nothing of it counts.
    group.close(TIMEOUT).unwrap();
    // The receiver's end of the group closes meanwhile, so that it cannot be aborted any more.
    thread::sleep(Duration::from_millis(200));
    link.server.send(&ToReceiver::Leave { group: 1 });
    let has = link.await_message(|message| match message {
        ToRoot::GroupFailed { group: 1, has, .. } => Some(has.clone()),
        _ => None,
    });
    assert!(has.is_empty(), "{has:?}");
}
