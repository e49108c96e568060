//! A group of the library's: one root sends messages of any length, all others receive them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use pyo3::prelude::*;
use rdmc::{Error, Group, GroupSettings, Scheduling};

use crate::{
    errors::{invalid, raise},
    guard::{Process, lock},
    message::Message,
    pending::{Answer, Pending},
    region::given,
};

/// A group at one member.
#[pyclass(frozen, module = "rdmc._rdmc")]
pub(crate) struct Messages {
    group: Mutex<Option<Arc<Group>>>,
    process: Process,
}

/// What the application sets; the class of this name in Python.
#[derive(FromPyObject)]
pub(crate) struct MessagesSettings {
    root: u32,
    algorithm: String,
    message_bytes: Option<u64>,
    block_bytes: Option<u64>,
    /// Messages wait for memory that is given.
    posted: bool,
    verify: bool,
}

impl MessagesSettings {
    /// Errors: no algorithm has this name.
    pub(crate) fn of_group(
        self,
        py: Python<'_>,
        number: u64,
        members: Vec<SocketAddr>,
        rank: u32,
    ) -> PyResult<GroupSettings> {
        let schedule = self.algorithm.parse::<Scheduling>().map_err(|error| raise(py, &error))?;
        let mut settings = GroupSettings::new(number, members, rank).root(self.root);
        settings = settings.schedule(schedule).verify(self.verify);
        (settings.message_bytes, settings.block_bytes) = (self.message_bytes, self.block_bytes);
        if self.posted {
            settings = settings.receive_bytes_max(0);
        }
        Ok(settings)
    }
}

impl Messages {
    pub(crate) fn new(group: Group) -> Self {
        Self { group: Mutex::new(Some(Arc::new(group))), process: Process::this() }
    }

    /// Errors: it was dropped; the process is a fork.
    fn group(&self, py: Python<'_>) -> PyResult<Arc<Group>> {
        self.process.check(py)?;
        lock(&self.group).clone().ok_or_else(|| invalid(py, "these messages are closed"))
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // In a fork: the connections are the parent's.
            std::mem::forget(lock(&self.group).take());
        }
    }
}

#[pymethods]
impl Messages {
    /// The name of the algorithm that the root took.
    #[getter]
    fn algorithm(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.group(py)?.schedule().algorithm().name())
    }

    /// The length of a block that the root took.
    #[getter]
    fn block_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.group(py)?.block_bytes())
    }

    /// Queues an object's bytes as the next message; its number.
    fn send(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let (group, region) = (self.group(py)?, given(object, false)?);
        Ok(Pending::new("queueing a message", async move {
            Ok(Some(Answer::new(group.send_async(region).await?.message())))
        }))
    }

    /// The next message; none if the root has closed and all were received.
    fn receive(&self, py: Python<'_>) -> PyResult<Pending> {
        let group = self.group(py)?;
        Ok(Pending::new("the next message", async move {
            let message = group.receive_async().await?;
            Ok(message.map(|message| Answer::new(Message::new(message))))
        }))
    }

    /// Gives memory for one of the next messages.
    fn post(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let (group, region) = (self.group(py)?, given(array, true)?);
        group.post_receive_buffer(region).map_err(|error| raise(py, &error))
    }

    /// Waits until this member is done with this many messages.
    fn wait_complete(&self, py: Python<'_>, count: u64) -> PyResult<Pending> {
        let group = self.group(py)?;
        Ok(Pending::new("the end of messages", async move {
            group.wait_complete_async(count).await.map(|()| None)
        }))
    }

    /// Waits, at the root, until every member has this many messages.
    fn wait_delivered(&self, py: Python<'_>, count: u64) -> PyResult<Pending> {
        let group = self.group(py)?;
        Ok(Pending::new("messages at every member", async move {
            group.wait_delivered_async(count).await.map(|()| None)
        }))
    }

    /// How many messages every member has, as far as the root knows.
    #[getter]
    fn delivered(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.group(py)?.delivered())
    }

    /// Closes: at the root no more messages are sent. Ends when all members have closed and have all messages.
    fn close(&self, py: Python<'_>) -> PyResult<Pending> {
        let group = self.group(py)?;
        Ok(Pending::new("closing", async move {
            match group.close_async().await {
                // The root has closed it, and all is there.
                Err(Error::Closed(_)) if group.failure().is_none() => Ok(None),
                outcome => outcome.map(|()| None),
            }
        }))
    }

    /// Makes the group fail at all members.
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.group(py)?.abort(reason);
        Ok(())
    }

    /// Frees it; if it is not closed, that is a failure at all members.
    fn drop(&self) {
        let group = lock(&self.group).take();
        if !self.process.is_this() {
            std::mem::forget(group);
        }
    }
}
