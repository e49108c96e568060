//! Carries out the decisions of a session that receives a stream: its sink, its fabric, groups.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, atomic::Ordering},
    thread,
};

use rdmc::{Context, Error, Group};

use super::{
    announced::Announced,
    error::ReceiveError,
    machine::Effects,
    membership::MemberEvent,
    root_link::{Event, RootLink},
    sink::Sink,
    writing::{Writing, Written, lock},
};
use crate::{
    Verified,
    changes::Changes,
    messages::{Start, StreamOffer, ToRoot},
    ranges::Ranges,
    resident::peak_resident_bytes,
    resume::ChunkDigests,
    sending::own_failure,
    stream_message::StreamMessage,
};

pub(super) struct StreamIo<'a> {
    root: &'a RootLink<'a>,
    offer: &'a StreamOffer,
    /// Outlives this, so that groups end after the last message, which has the cause.
    context: &'a OnceLock<Arc<Context>>,
    /// Until it is published.
    sink: Option<Sink>,
    written: Option<Arc<Mutex<Written>>>,
    announced: Arc<Announced>,
    /// Groups that are being joined or are joined, each with the place in the stream where its first message begins.
    groups: BTreeMap<u64, (u64, Option<Arc<Group>>)>,
    /// The root has told it to publish; its command has not ended.
    is_publishing: bool,
    /// Of a file that is published.
    pub(super) path: Option<PathBuf>,
}

impl<'a> StreamIo<'a> {
    pub(super) fn new(
        root: &'a RootLink<'a>,
        offer: &'a StreamOffer,
        context: &'a OnceLock<Arc<Context>>,
    ) -> Self {
        Self {
            root,
            offer,
            context,
            sink: None,
            written: None,
            announced: Arc::default(),
            groups: BTreeMap::new(),
            is_publishing: false,
            path: None,
        }
    }

    /// Looks after a command: one that has failed ends this session at once; one that has succeeded publishes.
    pub(super) fn poll(&mut self) -> Result<Option<Event>, ReceiveError> {
        let Some(sink) = &self.sink else { return Ok(None) };
        if !sink.has_ended()? || !self.is_publishing {
            return Ok(None);
        }
        if let Some(line) = self.sink.take().and_then(Sink::finish) {
            self.root.send(&ToRoot::Said { line })?;
        }
        Ok(Some(Event::Published(false)))
    }
}

impl Effects for StreamIo<'_> {
    type Group = Group;

    fn add_group(&mut self, number: u64, group: Group) {
        if let Some((_, joined)) = self.groups.get_mut(&number) {
            *joined = Some(Arc::new(group));
        }
    }

    fn discard_group(&mut self, number: u64, _group: Group) {
        // Dropping it ends it.
        self.groups.remove(&number);
    }

    fn remove_group(&mut self, number: u64) {
        self.groups.remove(&number);
    }

    fn send_message(&mut self, message: &ToRoot) -> Result<(), Error> {
        self.root.control.send(message)
    }

    fn add_listing(&mut self, _part: &[u8]) -> Result<bool, ReceiveError> {
        Err(ReceiveError::System("a stream has no list of files".into()))
    }

    fn take_relayed_listing(&mut self) -> bool {
        false
    }

    fn prepare(&mut self) -> Result<(Ranges, Option<ChunkDigests>), ReceiveError> {
        let mut sink = Sink::open(self.root.settings, self.offer)?;
        let writer = sink.writer().map_err(ReceiveError::Sink)?;
        self.sink = Some(sink);
        let written = Written {
            sink: writer,
            digest: blake3::Hasher::new(),
            bytes: Arc::clone(&self.root.received_bytes),
            bytes_max: self.root.settings.bytes_max,
        };
        self.written = Some(Arc::new(Mutex::new(written)));
        self.root.settings.reception.stepped();
        Ok((Ranges::default(), None))
    }

    fn changes(&self) -> Changes {
        Changes::default()
    }

    fn fabrics(&self) -> Vec<String> {
        self.root.fabrics()
    }

    fn start_fabric(&mut self, fabric: &str) -> Result<u16, ReceiveError> {
        let context = Arc::new(self.root.start_context(fabric, &self.offer.terms)?);
        Ok(self.context.get_or_init(|| context).address().port())
    }

    fn start_copy(&mut self, _has: &Ranges) -> Result<bool, ReceiveError> {
        self.root.settings.reception.stepped();
        Ok(false)
    }

    fn has(&self) -> Ranges {
        [(0, self.root.received_bytes.load(Ordering::Relaxed))].into_iter().collect()
    }

    fn check_storage(&self) -> Result<(), ReceiveError> {
        // The thread that writes reports that.
        Ok(())
    }

    fn explain(&mut self, error: &Error) -> String {
        self.root.explainer().explain(error)
    }

    /// Joins on a thread that ends by the context's own deadline.
    fn join(&mut self, start: Start) -> Result<(), String> {
        let Some(context) = self.context.get().cloned() else {
            return Err("no fabric is started".into());
        };
        self.root.check_group(&self.offer.terms, &start.group)?;
        let joined = self.groups.values().filter(|(_, group)| group.is_some()).count();
        let joining = self.root.join(joined)?;
        let settings = start.stream_settings().map_err(|error| error.to_string())?;
        let Some((from, _)) = start.ranges.within(u64::MAX).iter().next() else {
            return Err("the root has not said where the group begins in the stream".into());
        };
        let (number, events) = (start.group.number, self.root.events.clone());
        let join = move || {
            let joined = context.create_group(settings);
            drop(joining);
            // Fails only if the session has ended.
            let _ = events.send(Event::Joined(number, joined));
        };
        let thread = thread::Builder::new().name("rdmc-join".into()).spawn(join);
        thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))?;
        self.groups.insert(number, (from, None));
        Ok(())
    }

    fn send_ranges(&mut self, _group: u64, _ranges: &Ranges) -> Result<(), Error> {
        // Of a stream only the root sends; a group in which nobody does ends when the root leaves it.
        Ok(())
    }

    /// Writes its messages out until the root closes it.
    fn await_close(&mut self, number: u64) {
        let Some((from, Some(group))) = self.groups.get(&number) else { return };
        let Some(written) = &self.written else { return };
        // A group that has failed is noticed by the thread.
        let _ = group.start_close();
        let writing = Writing {
            group: Arc::clone(group),
            from: *from,
            written: Arc::clone(written),
            announced: Arc::clone(&self.announced),
            control: Arc::clone(&self.root.control),
            events: self.root.events.clone(),
        };
        if let Err(error) = writing.start() {
            let _ = self.root.events.send(Event::Failed(error));
        }
    }

    fn abort(&mut self, number: u64, reason: &str) {
        let Some((_, Some(group))) = self.groups.get(&number) else { return };
        group.abort(reason);
        // Its thread may be in a write that waits for the consumer.
        let failure = own_failure(group.settings(), &reason);
        let _ = self.root.events.send(Event::Group(MemberEvent::Ended(number, Err(failure))));
    }

    fn announce(&mut self, message: StreamMessage) -> Result<(), ReceiveError> {
        let announced = self.announced.add(message);
        announced.map_err(|what| ReceiveError::System(format!("the root announced {what}")))
    }

    fn written_digest(&self) -> Option<blake3::Hash> {
        self.written.as_ref().map(|written| lock(written).digest.finalize())
    }

    fn publish(&mut self, proof: &Verified) -> Result<Option<bool>, ReceiveError> {
        self.root.settings.reception.verified(proof.digest());
        if let Some(written) = &self.written {
            lock(written).sink.close();
        }
        match self.sink.take() {
            Some(sink @ Sink::Command(_)) => {
                self.sink = Some(sink);
                self.is_publishing = true;
                Ok(None)
            }
            Some(sink) => {
                self.path = sink.publish(proof)?;
                Ok(Some(false))
            }
            None => Err(ReceiveError::System("there is nothing to publish".into())),
        }
    }

    fn peak_resident_bytes(&self) -> Option<u64> {
        peak_resident_bytes()
    }
}
