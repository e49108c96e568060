//! One session, from the first word to the last.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rdmc::{Context, bootstrap::Channel};

use super::{
    bench,
    dispatch::{first, handle},
    error::ReceiveError,
    root_link::RootLink,
    scene::Scene,
    session::{Session, unexpected},
    settings::ReceiverSettings,
};
use crate::{
    control::{Control, silence},
    messages::{Offer, ToReceiver, ToRoot},
};

/// How often the root hears from a receiver.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// How often the root hears whom this receiver waits for.
const WAITING_TOLD: Duration = Duration::from_secs(1);

/// Serves one session to its end, and returns the path of the published copy; none if the root has
/// only measured.
///
/// Blocks as long as the session lasts; a root that falls silent ends it. A temporary file stays
/// behind only where a later session can go on with it ([`ReceiveError::keeps`]).
///
/// Errors: see [`ReceiveError`].
pub fn serve(
    channel: Channel,
    settings: &ReceiverSettings,
) -> Result<Option<PathBuf>, ReceiveError> {
    let root = RootLink::start(channel, settings)?;
    // The context of a session that is measured ends after the last word: its groups fail at the root then, for a
    // reason that says less.
    let measured = OnceLock::new();
    let outcome = session(&root, &measured);
    let last_word = match &outcome {
        Ok(_) => None,
        Err(error) => error.last_word(),
    };
    let hears_more = match last_word {
        Some(last_word) => root.control.send(&last_word).is_ok(),
        None => matches!(outcome, Ok(Some(_))),
    };
    if hears_more {
        root.await_hang_up();
    }
    root.control.hang_up();
    outcome
}

fn session(
    root: &RootLink<'_>,
    measured: &OnceLock<Arc<Context>>,
) -> Result<Option<PathBuf>, ReceiveError> {
    root.tell(&ToRoot::Hello { host: root.settings.host.clone() })?;
    let wanted = loop {
        if let Some(wanted) = first(root.next()?)? {
            break wanted;
        }
    };
    if let ToReceiver::Offer(Offer { terms, .. }) | ToReceiver::Bench(terms) = &wanted {
        root.control.set_failure_deadline(terms.failure_deadline().map_err(ReceiveError::Refused)?);
    }
    // Heartbeats go on while the disk is slow to reserve space, and later to write.
    let (_beating, silenced) = mpsc::channel::<()>();
    let (control, bytes) = (Arc::clone(&root.control), Arc::clone(&root.received_bytes));
    let worked = Arc::clone(&root.worked);
    thread::Builder::new()
        .name("rdmc-heartbeat".into())
        .spawn(move || beat(&control, (&bytes, &worked), &silenced))
        .map_err(|error| ReceiveError::System(format!("cannot start a thread: {error}")))?;
    match wanted {
        ToReceiver::Offer(offer) => replicate(root, offer).map(Some),
        ToReceiver::Bench(terms) => bench::take_part(root, &terms, measured).map(|()| None),
        other => unexpected(other).map(|()| None),
    }
}

fn replicate(root: &RootLink<'_>, offer: Offer) -> Result<PathBuf, ReceiveError> {
    let mut scene = Scene::new(root);
    let outcome = receive(root, &mut scene, offer);
    scene.close(outcome.as_ref().err().is_some_and(ReceiveError::keeps));
    outcome
}

/// Until the copy has its name.
fn receive(
    root: &RootLink<'_>,
    scene: &mut Scene<'_>,
    offer: Offer,
) -> Result<PathBuf, ReceiveError> {
    let mut session = Session::begin(scene, offer)?;
    let path = scene.path().unwrap_or_default();
    let mut told = Instant::now();
    loop {
        if told.elapsed() >= WAITING_TOLD {
            told = Instant::now();
            scene.tell_waiting()?;
        }
        if let Some(event) = root.next_in_time()?
            && handle(&mut session, scene, event)?
        {
            return Ok(path);
        }
    }
}

/// Says how far this receiver is, until the session's end drops the other end of `silenced`.
fn beat(control: &Control, (bytes, worked): (&AtomicU64, &AtomicU64), silenced: &Receiver<()>) {
    let mut told = 0;
    while silenced.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
        let bytes = bytes.load(Ordering::Relaxed);
        let mut sent = control.send(&ToRoot::Progress { bytes });
        let worked = worked.load(Ordering::Relaxed);
        if std::mem::replace(&mut told, worked) != worked {
            sent = sent.and_then(|()| control.send(&ToRoot::Worked { bytes: worked }));
        }
        if sent.is_err() {
            // The reading thread says why.
            return;
        }
    }
}

const _: () = assert!(HEARTBEAT.as_millis() * 10 < silence(Duration::ZERO).as_millis());
