//! Questions to the worker.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use session::Deadline;

use crate::{
    Error,
    caller::Caller,
    commands::{Command, Commands},
};

/// How long a call waits for the worker's reply. The worker replies much sooner unless the network
/// or memory that it uses does not respond.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the worker, on behalf of a call that waits for the answer.
pub(crate) struct Asking<'a> {
    pub(crate) commands: &'a Commands,
    /// With [`crate::Progress::Caller`].
    pub(crate) caller: Option<&'a Caller>,
}

impl Asking<'_> {
    /// Blocks while the worker is busy, for [`ANSWER_TIMEOUT`] at most.
    ///
    /// Errors: it is busy for longer; the context is closed or has failed.
    pub(crate) fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = bounded(1);
        self.commands.give(command(reply))?;
        self.await_answer(&answer, Deadline::after(ANSWER_TIMEOUT))
    }

    /// Waits until the worker has carried out a command. Errors: as [`Asking::ask`].
    pub(crate) fn await_answer<T>(
        &self,
        answer: &Receiver<T>,
        deadline: Deadline,
    ) -> Result<T, Error> {
        if let Some(caller) = self.caller {
            caller.take_commands();
        }
        answer.recv_timeout(deadline.left()).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                deadline.missed("this context's progress is busy, and its reply").into()
            }
            RecvTimeoutError::Disconnected => self.commands.ended(),
        })
    }
}
