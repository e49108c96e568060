//! Sessions of an application above this crate: hosts gather as for a push, then exchange messages with the root whose
//! contents only the application knows.

use std::{net::SocketAddr, sync::Arc};

use rdmc::Context;
use session::Deadline;

use super::{
    effects::Effects,
    inbox::{Event, Events, Input, PushHandle},
    io::new_number,
    prepared::Prepared,
    run::Run,
    settings::{HostState, PushError, PushEvent, PushSettings},
};
use crate::messages::{ToReceiver, ToRoot};

/// A session of an application that is ready to run and listens for receivers. They take part by
/// [`crate::receiver::serve_with`].
pub struct Gathering {
    prepared: Prepared,
}

impl Gathering {
    /// Starts to listen for receivers. The hosts' destinations are ignored. `bytes`: the longest message of a group.
    ///
    /// Errors: a setting is out of range, or lets hosts join or return later; too few file descriptors for this many hosts; the
    /// system refuses.
    pub fn open(settings: PushSettings, bytes: u64) -> Result<Self, PushError> {
        if settings.admission.is_some() || settings.retries > 0 {
            let what = "hosts cannot join a session of an application or return to it".to_owned();
            return Err(PushError::Setting(what));
        }
        settings.check(bytes)?;
        Ok(Self { prepared: Prepared::listen(None, settings)? })
    }

    /// The TCP port that receivers connect to.
    pub fn control_port(&self) -> u16 {
        self.prepared.control_port()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        self.prepared.handle()
    }

    /// Ends waits from other threads.
    pub fn waker(&self) -> GatheringWaker {
        GatheringWaker { events: self.prepared.events.clone() }
    }

    /// The settings that it was opened with.
    pub fn settings(&self) -> &PushSettings {
        &self.prepared.settings
    }

    /// The root's context; `None` before a network is chosen.
    pub fn context(&self) -> Option<&Arc<Context>> {
        self.prepared.context.get()
    }

    /// The root's end of the session, which calls `observe` on its thread.
    pub fn root<'a>(&'a self, observe: &'a mut dyn FnMut(PushEvent)) -> GatheringRoot<'a> {
        GatheringRoot { run: Run::new(&self.prepared, observe) }
    }
}

/// Ends a wait of [`GatheringRoot::next`], for an application that queues events of its own.
#[derive(Clone, Debug)]
pub struct GatheringWaker {
    events: Events,
}

impl GatheringWaker {
    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // Fails only if the session has ended.
        let _ = self.events.send(Input::Woken);
    }
}

/// The root's end of a running session. Hosts are identified by their index in [`PushSettings::hosts`].
pub struct GatheringRoot<'a> {
    run: Run<'a>,
}

impl GatheringRoot<'_> {
    /// Connects to hosts that listen, and blocks until every host is ready or has failed and the network is chosen.
    ///
    /// Errors: those that end the session, such as [`PushHandle::cancel`].
    pub fn gather(&mut self) -> Result<(), PushError> {
        self.run.gather()
    }

    /// The hosts that take part.
    pub fn ready(&self) -> Vec<usize> {
        let hosts = &self.run.core.hosts;
        (0..hosts.len()).filter(|&host| hosts[host].is_ready()).collect()
    }

    /// Whether this host takes part.
    pub fn is_ready(&self, host: usize) -> bool {
        self.run.core.hosts[host].is_ready()
    }

    /// The state of one host.
    pub fn state(&self, host: usize) -> HostState {
        self.run.core.hosts[host].state()
    }

    /// The states of all hosts.
    pub fn states(&self) -> Vec<HostState> {
        self.run.core.hosts.iter().map(|host| host.state()).collect()
    }

    /// The addresses of the contexts of the root and of these hosts, in this order.
    pub fn addresses(&self, hosts: &[usize]) -> Vec<SocketAddr> {
        let all = &self.run.core.hosts;
        let address = |&host: &usize| all[host].ip.map(|ip| SocketAddr::new(ip, all[host].port));
        let own = all.own_address(self.run.io.address());
        [own].into_iter().chain(hosts.iter().filter_map(address)).collect()
    }

    /// A random number, for a group or a team.
    ///
    /// Errors: the system has none.
    pub fn number(&self) -> Result<u64, PushError> {
        Ok(new_number()?)
    }

    /// Queues a message to a host. [`GatheringRoot::next`] notices a connection that is lost.
    pub fn send(&mut self, host: usize, message: Vec<u8>) {
        self.run.io.send_message(host, &ToReceiver::Application(message));
    }

    /// Waits for a message of a host. `None`: a host may have failed, [`GatheringWaker::wake`] was called, or the deadline has
    /// passed.
    ///
    /// Errors: those that end the session, as of [`GatheringRoot::gather`].
    pub fn next(&mut self, deadline: Deadline) -> Result<Option<(usize, Vec<u8>)>, PushError> {
        match self.run.next(Some(deadline)) {
            Some(Input::Event(Event::Message {
                host,
                connection,
                message: ToRoot::Application(message),
            })) => Ok(self.run.io.is_current(host, connection).then_some((host, message))),
            Some(Input::Event(event)) => self.run.handle(event).map(|()| None),
            Some(Input::Woken) | None => Ok(None),
        }
    }

    /// Gives a host up for this reason, and tells it.
    pub fn fail(&mut self, host: usize, reason: &str) {
        self.run.core.fail(&mut self.run.io, host, reason);
    }

    /// Gives all hosts up for this reason, and tells them.
    pub fn stop(&mut self, error: PushError) {
        self.run.core.stop(&mut self.run.io, error);
    }

    /// Sends the last message to all hosts, and waits a short time for them to disconnect. Returns the error that the
    /// session was stopped by.
    pub fn end(&mut self) -> Option<PushError> {
        self.run.end();
        self.run.core.outcome().err()
    }
}
