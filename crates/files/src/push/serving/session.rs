//! The session of one object at a server, on a thread of its own.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
};

use super::shared::{ServerEvent, Shared};
use crate::{
    Source,
    push::{
        effects::Effects,
        inbox::{Event, Input},
        io::Io,
        prepared::Prepared,
        run,
        settings::PushError,
    },
};

/// A session that begins.
pub(super) struct Run {
    pub(super) server: Arc<Shared>,
    pub(super) path: PathBuf,
    pub(super) events: Sender<Input>,
}

impl Run {
    /// Until no host is left.
    pub(super) fn serve(self, inbox: Receiver<Input>) {
        let path: Arc<Path> = self.path.as_path().into();
        (self.server.observe)(ServerEvent::Opened { path: Arc::clone(&path) });
        self.server.board.open(&path, None);
        let mut sent_bytes = 0;
        let error = match self.open() {
            Ok(source) => self.run(source, inbox, &path, &mut sent_bytes),
            Err(error) => {
                self.refuse_all(&inbox, &error.to_string());
                Some(error)
            }
        };
        let error = error.map(|error| error.to_string());
        (self.server.observe)(ServerEvent::Closed { path, sent_bytes, error });
    }

    fn open(&self) -> Result<Source, PushError> {
        let paths = [self.path.clone()];
        let source = Source::of(&paths, &self.server.settings.options)?;
        self.server.settings.session.check_values(source.manifest().bytes)?;
        Ok(source)
    }

    /// Refuses hosts until no more come.
    fn refuse_all(&self, inbox: &Receiver<Input>, reason: &str) {
        while let Some(input) = self.server.end(&self.path, inbox) {
            if let Input::Event(Event::JoinRequested { connection, .. }) = input {
                crate::push::io::reject(connection, reason);
            }
        }
    }

    /// Returns why it has ended early.
    fn run(
        &self,
        source: Source,
        inbox: Receiver<Input>,
        path: &Arc<Path>,
        sent_bytes: &mut u64,
    ) -> Option<PushError> {
        let (settings, events) = (self.server.session_settings(), self.events.clone());
        let prepared = settings.map_err(PushError::from).and_then(|settings| {
            Prepared::served(Arc::new(source), settings, self.server.address, events, inbox)
        });
        let prepared = match prepared {
            Ok(prepared) => prepared,
            // The inbox is gone, and with it who has asked.
            Err(error) => {
                self.server.lock().by_path.remove(&self.path);
                self.server.board.close(&self.path);
                self.server.ended.notify_all();
                return Some(error);
            }
        };
        self.server.board.open(path, Some(prepared.bytes()));
        let mut observe = |event| {
            if let Some((name, state)) = self.server.board.note(path, event) {
                (self.server.observe)(ServerEvent::Host { path: Arc::clone(path), name, state });
            }
        };
        let is_tree = prepared.is_tree();
        let all = [(0, prepared.bytes())].into_iter().collect();
        // Of a tree only what hosts lack, once that is known.
        let digest = |io: &mut Io<'_>| if is_tree { Ok(()) } else { io.digest_source(&all) };
        let mut run = run::Run::new(&prepared, &mut observe);
        let outcome = run.serve(digest, || self.server.end(&self.path, &prepared.inbox));
        run.io.stop.store(true, Ordering::Relaxed);
        run.io.close();
        *sent_bytes = run.io.sent.load(Ordering::Relaxed);
        outcome.err()
    }
}
