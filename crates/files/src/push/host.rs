//! One receiver, as the root knows it.

use std::{
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::{Error, bootstrap::Channel};

use super::{Event, HostPlan, HostReport, HostState, system};
use crate::{
    control::{Control, SILENCE},
    messages::ToReceiver,
};

/// How often receivers hear that the root is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

pub(super) struct Host {
    pub(super) plan: HostPlan,
    pub(super) state: HostState,
    control: Option<Arc<Control>>,
    /// Where other members reach it: the address that it was seen at, and its context's port.
    pub(super) ip: Option<IpAddr>,
    pub(super) port: u16,
    /// The fabrics that it could use, once its target is prepared.
    pub(super) fabrics: Option<Vec<String>>,
    /// Where it has seen the root.
    pub(super) own_ip: Option<IpAddr>,
    pub(super) bytes: u64,
    pub(super) replication: Option<Duration>,
    pub(super) compared: Option<bool>,
    pub(super) peak_resident_bytes: Option<u64>,
}

impl Host {
    pub(super) fn new(plan: HostPlan) -> Self {
        Self {
            plan,
            state: HostState::Awaited,
            control: None,
            ip: None,
            port: 0,
            fabrics: None,
            own_ip: None,
            bytes: 0,
            replication: None,
            compared: None,
            peak_resident_bytes: None,
        }
    }

    /// Takes over the control connection, and says what is to come.
    pub(super) fn welcome(
        &mut self,
        index: usize,
        channel: Channel,
        first: &ToReceiver,
        events: &Sender<Event>,
    ) -> Result<Arc<Control>, Error> {
        self.ip = Some(channel.peer().ip().to_canonical());
        let own = channel.local_address().map_err(|error| system("finding an address", error))?;
        self.own_ip = Some(own.ip().to_canonical());
        let events = events.clone();
        let take = move |message| {
            let event = match message {
                Ok(message) => Event::Said(index, message),
                Err(Error::Timeout { .. }) => Event::Gone(
                    index,
                    format!("nothing was heard of it for {} s", SILENCE.as_secs()),
                ),
                Err(error) => Event::Gone(index, error.to_string()),
            };
            events.send(event).is_ok()
        };
        let control = Control::start(channel, take)
            .map_err(|error| system("starting a control connection", error))?;
        control.send(first)?;
        let control = Arc::new(control);
        self.control = Some(Arc::clone(&control));
        Ok(control)
    }

    /// It takes part in the next round, or waits to publish after the last.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, HostState::Ready | HostState::Received)
    }

    /// Its target is not prepared yet.
    pub(super) fn is_unprepared(&self) -> bool {
        self.state == HostState::Preparing && self.fabrics.is_none()
    }

    /// It has neither a copy nor failed.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, HostState::Published | HostState::Failed(_))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.control.is_some()
    }

    /// Says something, if there is a connection; one that is lost reports itself.
    pub(super) fn tell(&self, message: &ToReceiver) {
        if let Some(control) = &self.control {
            let _ = control.send(message);
        }
    }

    pub(super) fn hang_up(&mut self) {
        if let Some(control) = self.control.take() {
            control.hang_up();
        }
    }

    pub(super) fn report(&self) -> HostReport {
        HostReport {
            name: self.plan.name.clone(),
            state: match &self.state {
                state if !self.is_open() => state.clone(),
                _ => HostState::Failed("not reached".into()),
            },
            replication: self.replication,
            peak_resident_bytes: self.peak_resident_bytes,
        }
    }
}

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
