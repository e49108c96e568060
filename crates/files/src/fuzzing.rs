//! Entry points of fuzzers (`./dev fuzz`): messages of roots and receivers, and destinations.

use std::{fs, io, os::unix::fs::symlink, sync::OnceLock};

use serde::{Serialize, de::DeserializeOwned};

use tempfile::TempDir;

use crate::{
    claim::{Claim, Owner},
    copy::Temporary,
    group_terms::GroupTerms,
    messages::{ToReceiver, ToRoot},
    receiver::Placement,
};

/// Decodes a message to the root if the first byte is 0, else to a receiver, with the checks that precede any
/// write. True if it is valid.
pub fn messages(bytes: &[u8]) -> bool {
    let Some((&kind, body)) = bytes.split_first() else { return false };
    if kind == 0 {
        let Some(message) = decoded::<ToRoot>(body) else { return false };
        if let ToRoot::Prepared { changes, .. } = message {
            drop(changes.settled(1 << 16, |entry| entry % 2 == 0));
        }
        return true;
    }
    let Some(message) = decoded::<ToReceiver>(body) else { return false };
    match &message {
        ToReceiver::Offer(offer) => drop(offer.manifest.modified()),
        ToReceiver::Start(start) => group(&start.group),
        _ => {}
    }
    true
}

/// Opens a destination at a receiver confined to a directory with links. True if it is accepted; then it must be below
/// that directory.
pub fn places(bytes: &[u8]) -> bool {
    static SANDBOX: OnceLock<TempDir> = OnceLock::new();
    let sandbox = SANDBOX.get_or_init(|| sandbox().expect("a directory for temporary files"));
    let Ok(destination) = std::str::from_utf8(bytes) else { return false };
    let inside = sandbox.path().join("in");
    let Ok(place) = Placement::Below(inside.clone()).place(destination, false) else {
        return false;
    };
    let directory = place.real_directory().expect("it is open");
    assert!(directory.starts_with(&inside), "{destination:?} is in {}", directory.display());
    assert!(!destination.contains(|character: char| character.is_control()), "{destination:?}");
    let Ok(claim) = Claim::take(&place, &Owner::of_no_push("")) else { return false };
    Temporary::open(&place, b"", None, &claim).is_ok()
}

/// A directory `in` with links that stay inside and links that lead out.
fn sandbox() -> io::Result<TempDir> {
    let sandbox = tempfile::tempdir()?;
    // The directory for temporary files may be a link.
    let inside = sandbox.path().canonicalize()?.join("in");
    fs::create_dir_all(inside.join("a/b"))?;
    fs::create_dir(sandbox.path().join("out"))?;
    fs::write(inside.join("file"), "")?;
    symlink("a/b", inside.join("near"))?;
    symlink("../out", inside.join("far"))?;
    symlink("..", inside.join("a/up"))?;
    symlink(sandbox.path(), inside.join("top"))?;
    symlink("ring", inside.join("ring"))?;
    Ok(sandbox)
}

/// Valid terms must make a group whose neighbours are members.
fn group(terms: &GroupTerms) {
    if let Ok(settings) = terms.settings() {
        let schedule = settings.make_schedule().expect("it was made before");
        let members = schedule.members();
        assert_eq!(members as usize, terms.addresses.len());
        assert!(schedule.neighbours(settings.rank).all(|neighbour| neighbour < members));
    }
}

/// Decoding, encoding and decoding again must give the same message.
fn decoded<M: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    let message: M = postcard::from_bytes(bytes).ok()?;
    let encoded = postcard::to_stdvec(&message).expect("it was decoded");
    let again: M = postcard::from_bytes(&encoded).expect("it was encoded here");
    assert_eq!(postcard::to_stdvec(&again).expect("it was decoded"), encoded);
    Some(message)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{
        FetchState, FetchStatus, Manifest, ObjectStatus, ServerStatus,
        changes::{Change, Changes},
        messages::{
            Blamed, Deletion, Introduction, Offer, RemoteOffer, Start, StreamOffer, Terms, Top,
            TreeOffer, Wanted,
        },
        owners::Kept,
        ranges::{RangeList, Ranges},
        resume::ChunkDigests,
        stream_message::StreamMessage,
    };

    fn seed(kind: u8, message: &impl Serialize) -> Vec<u8> {
        [vec![kind], postcard::to_stdvec(message).unwrap()].concat()
    }

    #[test]
    fn the_corpus_of_places_passes() {
        let seeds = ["x", "a/b/x", "./near/x", "a/up/x"].map(|path| (path, path.into()));
        let seeds = seeds.map(|(path, bytes): (&str, Vec<u8>)| (path.rsplit('/').nth(1), bytes));
        let seeds = seeds.map(|(name, bytes)| (name.unwrap_or("name"), bytes));
        testing::replay("files_places", &seeds, places);
        for out in ["far/x", "top/x", "ring/x", "file/x", "../x", "a/up/../x", "/x"] {
            assert!(!places(out.as_bytes()), "{out}");
        }
    }

    fn ranges() -> Ranges {
        [(0, 5), (1 << 20, 1 << 40)].into_iter().collect()
    }

    fn start() -> Start {
        let group = GroupTerms {
            number: 1,
            rank: 1,
            addresses: vec![SocketAddr::from(([10, 0, 0, 1], 7)); 3],
            racks: vec![0, 0, 1],
            algorithm: 3,
            block_bytes: 65_536,
            window_receives: 2,
            window_sends: 2,
            messages_in_flight: 2,
            offload: false,
        };
        Start { group, ranges: RangeList::from(&ranges()), reads: true }
    }

    #[test]
    fn the_corpus_of_messages_passes() {
        let text = || "event".to_owned();
        let secret = || rdmc::Secret::from_bytes([9; 32]);
        let manifest =
            Manifest { name: "object".into(), bytes: 1 << 40, mode: 0o644, modified_ns: -1 };
        let terms = || Terms {
            join_timeout_ms: 15_000,
            ports: "7000-7100".parse().ok(),
            root: ([10, 0, 0, 1], 7001).into(),
            streams: 1,
            completion: text(),
            protection: text(),
            failure_deadline_ms: 5_000,
            rate_max: Some(1 << 30),
            secret: secret(),
        };
        let destination = "a/b".into();
        let offer = Offer {
            manifest,
            tree: Some(TreeOffer {
                listing_bytes: 1_000,
                relayed: Some([6; 32]),
                is_file: false,
                top: Some(Top { mode: 0o755, modified_ns: -1 }),
                by_contents: true,
                atomic: false,
                deletion: Some(Deletion {
                    at_top: true,
                    prefix: b"a/".to_vec(),
                    patterns: vec![(false, "*.tmp".into())],
                }),
                lists_changes: true,
            }),
            kept: Some(Kept {
                access: true,
                names: vec![(tree::Holder::User, 1_000, text())],
                own: tree::Attributes { user: Some(1_000), ..tree::Attributes::default() },
                ..Kept::default()
            }),
            destination,
            probe: [3; 32],
            has_holes: true,
            dry_run: false,
            by_links: true,
            remote: Some(RemoteOffer {
                url: "s3://bucket/key".into(),
                as_hub_cache: true,
                version: [3; 32],
            }),
            terms: terms(),
        };
        let has = RangeList::from(&ranges());
        let blamed = Some(Blamed { member: 2, noticed_by: Some(1) });
        let failed = ToRoot::GroupFailed {
            group: 1,
            blamed,
            unconnected: vec![0, 3],
            detail: text(),
            has: has.clone(),
        };
        let digests = Some(ChunkDigests::made_up());
        let mut changes = Changes::new(true);
        changes.add(0, Change::New);
        changes.add_if_equal(1, Change::Kept);
        changes.remove(b"old");
        let gather = ToReceiver::Gather(terms());
        let (destination, mode) = ("a/b".into(), Some(0o644));
        let stream = ToReceiver::Stream(StreamOffer {
            destination,
            mode,
            command: Some(text()),
            terms: terms(),
        });
        let (host, names) = (text(), vec![text()]);
        let (address, token) = (([10, 0, 0, 1], 7000).into(), Some(secret()));
        let wants = Some(Wanted::Object { path: text(), shares: true });
        let asking = Introduction {
            host: text(),
            names: Vec::new(),
            address: ([10, 0, 0, 1], 7000).into(),
            token: None,
            wants: Some(Wanted::Status),
        };
        let failed_host =
            FetchStatus { state: FetchState::Failed(text()), ..FetchStatus::new(text()) };
        let object = ObjectStatus { path: text(), bytes: Some(7), hosts: vec![failed_host] };
        let status = ServerStatus { objects: vec![object], omitted: 1 };
        let introduction = Introduction { host, names, address, token, wants };
        let seeds = [
            ("hello", seed(0, &ToRoot::Hello(introduction))),
            ("needs-listing", seed(0, &ToRoot::NeedsListing { fabrics: vec![text()] })),
            (
                "prepared",
                seed(
                    0,
                    &ToRoot::Prepared {
                        fabrics: vec![text()],
                        kept: RangeList::default(),
                        digests,
                        changes,
                    },
                ),
            ),
            ("progress", seed(0, &ToRoot::Progress { bytes: 1 << 40 })),
            ("compared", seed(0, &ToRoot::Compared { equal: true })),
            ("group-failed", seed(0, &failed)),
            (
                "published",
                seed(0, &ToRoot::Published { peak_resident_bytes: Some(5), was_there: true }),
            ),
            ("offer", seed(1, &ToReceiver::Offer(Box::new(offer)))),
            ("gather", seed(1, &gather)),
            ("application", seed(1, &ToReceiver::Application(vec![1, 2, 3]))),
            ("answer", seed(0, &ToRoot::Application(vec![1, 2, 3]))),
            ("stream", seed(1, &stream)),
            ("announce", seed(1, &ToReceiver::Announce(StreamMessage::of(7, b"contents")))),
            ("chunks", seed(1, &ToReceiver::Chunks(ChunkDigests::made_up()))),
            ("leaving", seed(0, &ToRoot::Leaving)),
            ("asking", seed(0, &ToRoot::Hello(asking))),
            ("status", seed(1, &ToReceiver::Status(status))),
            ("store", seed(1, &ToReceiver::Store)),
            ("stored", seed(0, &ToRoot::Stored)),
            ("said", seed(0, &ToRoot::Said { line: text() })),
            ("altered", seed(0, &ToRoot::Altered { group: 1, at: 7 })),
            ("listing", seed(1, &ToReceiver::Listing { part: vec![1, 2, 3] })),
            ("start", seed(1, &ToReceiver::Start(start()))),
            ("use", seed(1, &ToReceiver::Use { fabric: text(), has })),
            ("abort", seed(1, &ToReceiver::Abort { reason: text(), keep: true })),
        ];
        testing::replay("files_messages", &seeds, messages);
    }
}
