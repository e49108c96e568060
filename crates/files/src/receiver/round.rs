//! One attempt to receive: a group, and what its callbacks tell.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
    },
    thread,
};

use rdmc::{Application, Context, Error, Failure, Group, Memory, Region};

use super::Event;
use crate::{
    Target, Verified,
    hash::{InPlace, PrefixHasher},
    messages::{CONTENTS, DIGEST, DIGEST_BYTES, Start},
};

/// A group that is being joined or has been, until it ends.
pub(super) struct Round {
    pub(super) number: u64,
    /// There once it is joined; then this receiver only waits for the root to close it.
    pub(super) group: Option<Group>,
    /// Hashes what has come; ends with the round.
    _hasher: PrefixHasher,
    pub(super) own_digest: Option<blake3::Hash>,
    pub(super) root_digest: Option<blake3::Hash>,
}

/// What happens in a round.
#[derive(Debug)]
pub(super) enum RoundEvent {
    Joined(Result<Group, Error>),
    Received,
    RootDigest([u8; DIGEST_BYTES]),
    OwnDigest(std::io::Result<blake3::Hash>),
    Failed(Failure),
}

impl Round {
    /// Starts to join, on a thread that ends by the context's own deadline for that.
    ///
    /// Errors: terms that make no group; no thread or descriptor can be had.
    pub(super) fn start(
        start: Start,
        target: &Target,
        context: &Arc<Context>,
        received_bytes: &Arc<AtomicU64>,
        events: &Sender<Event>,
    ) -> Result<Self, String> {
        let number = start.round;
        let mut settings = start.group_settings().map_err(|error| error.to_string())?;
        settings.report_blocks = true;
        let file = target.file().map_err(|error| error.to_string())?;
        let bytes = target.manifest().bytes;
        let hashed = tell(events, number, RoundEvent::OwnDigest);
        let (hasher, in_place) = PrefixHasher::start(file, bytes, hashed)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        received_bytes.store(0, Ordering::Relaxed);
        let receiving = Receiving {
            round: number,
            contents: target.region(),
            digest: Region::zeroed(DIGEST_BYTES),
            received_bytes: Arc::clone(received_bytes),
            in_place,
            events: events.clone(),
        };
        let (context, joined) = (Arc::clone(context), tell(events, number, RoundEvent::Joined));
        let join = move || joined(context.create_group(settings, &start.addresses, receiving));
        thread::Builder::new()
            .name("rdmc-join".into())
            .spawn(join)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        let (own_digest, root_digest) = (None, None);
        Ok(Self { number, group: None, _hasher: hasher, own_digest, root_digest })
    }

    /// Whether the copy is what the root sent; `None` until both digests are known.
    pub(super) fn compare(&self) -> Option<Result<Verified, crate::TargetError>> {
        Some(Verified::compare(self.own_digest?, self.root_digest?))
    }
}

/// A function that reports to the session, if there still is one.
fn tell<T>(
    events: &Sender<Event>,
    round: u64,
    wrap: fn(T) -> RoundEvent,
) -> impl FnOnce(T) + Send + 'static
where
    T: 'static,
{
    let events = events.clone();
    move |outcome| drop(events.send(Event::Round(round, wrap(outcome))))
}

/// The group's callbacks.
struct Receiving {
    round: u64,
    contents: Region,
    digest: Region,
    received_bytes: Arc<AtomicU64>,
    in_place: InPlace,
    events: Sender<Event>,
}

impl Receiving {
    fn tell(&self, event: RoundEvent) {
        // A session that has ended wants to hear no more.
        let _ = self.events.send(Event::Round(self.round, event));
    }
}

impl Application for Receiving {
    fn incoming(&mut self, message: u64, bytes: u64) -> Memory {
        let region = match message {
            CONTENTS => &self.contents,
            DIGEST => &self.digest,
            _ => return Memory::Refuse("a file has two messages".into()),
        };
        if bytes != region.len() as u64 {
            return Memory::Refuse(format!("{} bytes were offered, not {bytes}", region.len()));
        }
        Memory::Region(region.clone())
    }

    fn block(&mut self, message: u64, offset: u64, bytes: u64) {
        if message == CONTENTS {
            self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
            // Hashing has ended early only if it failed, which is reported there.
            let _ = self.in_place.send((offset, bytes));
        }
    }

    fn received(&mut self, message: u64) {
        if message == CONTENTS {
            return self.tell(RoundEvent::Received);
        }
        let mut digest = [0; DIGEST_BYTES];
        if let Ok(lease) = self.digest.read(0..DIGEST_BYTES) {
            digest.copy_from_slice(&lease);
            self.tell(RoundEvent::RootDigest(digest));
        }
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.tell(RoundEvent::Failed(failure.clone()));
    }
}
