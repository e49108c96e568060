//! Commands from handles to the worker.

use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crossbeam_channel::{Receiver, SendError, Sender, unbounded};
use transport::{Region, Reservation, Waker};

use crate::{
    Counters, Error, Waited,
    creation::steps::Step,
    network::{Link, TcpLink},
    outlet::Outlet,
};

/// A command from a handle to the worker.
pub(crate) enum Command {
    Add {
        settings: Box<engine::GroupSettings>,
        links: Vec<(u32, Link)>,
        outlet: Box<dyn Outlet>,
        reply: Sender<Result<(), Error>>,
    },
    Send {
        group: u64,
        region: Region,
        /// Until the engine has reserved the region itself.
        reservation: Reservation,
    },
    Accept {
        group: u64,
        message: u64,
        region: Region,
    },
    /// The application has copied the message out of its slot, and is done with it.
    Taken {
        group: u64,
        message: u64,
    },
    /// Asks the root's engine to report until every member has this many messages.
    AskDelivered {
        group: u64,
        count: u64,
    },
    Close {
        group: u64,
    },
    Abort {
        group: u64,
        reason: String,
    },
    /// For groups and teams that are being created.
    Create(Box<Step>),
    /// Gives back a reserved channel of a shared connection.
    Release {
        link: TcpLink,
    },
    Register {
        region: Region,
        reply: Sender<Result<(), Error>>,
    },
    Counters {
        reply: Sender<Counters>,
    },
    Waited {
        reply: Sender<Vec<(u64, Vec<Waited>)>>,
    },
    /// Asks for the network's descriptor, to be waited for.
    Watch {
        reply: Sender<Result<OwnedFd, Error>>,
    },
    /// Makes all groups fail, and ends the worker when they have failed and their neighbours have
    /// received the reason, or `timeout` has passed.
    Stop {
        timeout: Duration,
    },
}

/// Sends commands to the worker and wakes it.
#[derive(Clone)]
pub(crate) struct Commands {
    sender: Sender<Command>,
    waker: Waker,
    /// Why the worker has failed, if it has.
    failed: Arc<OnceLock<String>>,
}

/// The receiving end.
pub(crate) struct CommandReceiver {
    pub(crate) receiver: Receiver<Command>,
    /// Set by the worker when it fails.
    pub(crate) failed: Arc<OnceLock<String>>,
}

impl Commands {
    /// Returns the sending and the receiving end; `waker` ends the wait of the worker.
    pub(crate) fn new(waker: Waker) -> (Self, CommandReceiver) {
        let (sender, receiver) = unbounded();
        let failed = Arc::new(OnceLock::new());
        (Self { sender, waker, failed: Arc::clone(&failed) }, CommandReceiver { receiver, failed })
    }

    pub(crate) fn give(&self, command: Command) -> Result<(), Error> {
        self.leave(command)?;
        self.wake();
        Ok(())
    }

    /// As [`Commands::give`], but returns the command if the worker has ended.
    pub(crate) fn try_give(&self, command: Command) -> Result<(), Box<Command>> {
        self.sender.send(command).map_err(|SendError(command)| Box::new(command))?;
        self.wake();
        Ok(())
    }

    /// Leaves a command to the worker without waking it: it is executed before the worker waits again.
    pub(crate) fn leave(&self, command: Command) -> Result<(), Error> {
        self.sender.send(command).map_err(|_| self.ended())
    }

    /// Ends the wait of the worker.
    pub(crate) fn wake(&self) {
        (self.waker)();
    }

    /// Errors: the worker has failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.failed.get().is_some() { Err(self.ended()) } else { Ok(()) }
    }

    /// Returns why the worker has ended.
    pub(crate) fn ended(&self) -> Error {
        let failed = self.failed.get();
        failed.map_or(Error::ContextClosed, |cause| Error::ContextFailed(cause.clone()))
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commands")
    }
}
