//! A receiver that connects to other members for its root.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use files::receiver::{GatheringReceiver, ReceiveError};
use rdmc::Error;

use super::groups::answer;
use crate::{
    messages::Answer,
    reach::{Reach, cause},
};

/// Connections that are being made; no further one is once this is dropped.
pub(super) struct Reaching {
    stop: Arc<AtomicBool>,
}

impl Drop for Reaching {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Connects to the members, on a thread that ends by its own deadline. If that is impossible, it is reported to the root.
///
/// Errors: the root is lost.
pub(super) fn take_part(
    reach: Reach,
    session: &GatheringReceiver<'_>,
) -> Result<Option<Reaching>, ReceiveError> {
    let number = reach.number;
    match start(reach, session) {
        Ok(reaching) => Ok(Some(reaching)),
        Err(detail) => answer(&session.sender(), &Answer::Failed { number, detail }).map(|()| None),
    }
}

/// Errors: not what this receiver accepts, or no thread.
fn start(reach: Reach, session: &GatheringReceiver<'_>) -> Result<Reaching, String> {
    reach.check()?;
    session.check_members(&reach.addresses, reach.rank)?;
    let joining = session.joining()?;
    let (sender, secret, is_limited) =
        (session.sender(), session.secret().clone(), session.is_limited());
    let stop = Arc::new(AtomicBool::new(false));
    let reaching = Reaching { stop: Arc::clone(&stop) };
    let run = move || {
        let _joining = joining;
        // A root without rights on this host is not told what answers where.
        let explain = |error: &Error| if is_limited { sender.explain(error) } else { cause(error) };
        let number = reach.number;
        let message = match reach.connect_to_all(&secret, &stop) {
            Ok(failed) => {
                let unreachable =
                    failed.iter().map(|(rank, error)| (*rank, files::shortened(&explain(error))));
                Answer::Reached { number, unreachable: unreachable.collect() }
            }
            Err(detail) => Answer::Failed { number, detail },
        };
        // Fails only if the session has ended.
        let _ = answer(&sender, &message);
    };
    let thread = thread::Builder::new().name("rdmc-reach".into()).spawn(run);
    thread.map(|_| reaching).map_err(|error| format!("cannot start a thread: {error}"))
}
