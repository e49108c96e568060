//! The root's sign of life.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::Error;

use super::system;
use crate::{control::Control, messages::ToReceiver};

/// How often receivers hear that the root is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Tells all connected receivers regularly that the root is alive, whatever it is doing.
#[derive(Default)]
pub(super) struct Heartbeat {
    controls: Arc<Mutex<Vec<Arc<Control>>>>,
    stop: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Heartbeat {
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let (sender, stopped) = mpsc::channel::<()>();
        let controls = Arc::clone(&self.controls);
        let beat = move || {
            while stopped.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                let mut controls = controls.lock().unwrap_or_else(PoisonError::into_inner);
                // Lost connections report themselves; they need no more heartbeats.
                controls.retain(|control| control.send(&ToReceiver::Alive).is_ok());
            }
        };
        let thread = thread::Builder::new()
            .name("rdmc-heartbeat".into())
            .spawn(beat)
            .map_err(|error: io::Error| system("starting a thread", error))?;
        self.stop = Some((sender, thread));
        Ok(())
    }

    pub(super) fn add(&self, control: &Arc<Control>) {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(control));
    }

    pub(super) fn stop(&mut self) {
        if let Some((sender, thread)) = self.stop.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}
