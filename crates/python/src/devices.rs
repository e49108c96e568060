//! Arrays in memory of GPUs.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::PathBuf,
    sync::Mutex,
    time::Duration,
};

use gpu::{Device, DeviceMemory, Driver, Error, Stream, TeamStaging, TeamStagingSettings};
use rdmc::{Op, Team, Type};

use crate::guard::lock;

/// Where an array is: the device's number, the address, the length in bytes, and the stream whose order is to be kept; without
/// one the operation ends only when its copies do.
pub(crate) type Place = (u32, u64, u64, Option<usize>);

/// An operation of a team on an array.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Broadcast { root: u32 },
    AllReduce { element: Type, op: Op },
}

/// The devices that a member has used, with its pinned memory for each.
#[derive(Default)]
pub(crate) struct Devices {
    stagings: Mutex<HashMap<u32, TeamStaging>>,
}

impl Devices {
    /// Frees what was allocated. Waits for copies, within bounds.
    pub(crate) fn close(&self) {
        lock(&self.stagings).clear();
    }

    /// Runs an operation; it opens the driver (`library`, or the machine's) and the device at first.
    ///
    /// # Safety
    /// The place is that of an array which stays until the operation has ended, or what is queued on its stream by then.
    pub(crate) unsafe fn run(
        &self,
        team: &Team,
        library: Option<PathBuf>,
        (ordinal, address, bytes, stream): Place,
        operation: Operation,
        timeout: Duration,
    ) -> Result<(), Error> {
        let mut stagings = lock(&self.stagings);
        let staging = match stagings.entry(ordinal) {
            Entry::Occupied(staging) => staging.into_mut(),
            Entry::Vacant(place) => {
                let driver =
                    library.map_or_else(Driver::open, |path| Driver::open_library(&path))?;
                let device = Device::open(&driver, ordinal)?;
                place.insert(TeamStaging::new(&device, TeamStagingSettings::default())?)
            }
        };
        let device = staging.device().clone();
        // SAFETY: of this function.
        let memory = unsafe { DeviceMemory::from_raw(&device, address, bytes) }?;
        let queue = match stream {
            // SAFETY: a stream that the application uses for the array lives as long as this.
            Some(handle) => unsafe { Stream::from_raw(&device, handle) },
            None => Stream::default_of(&device),
        };
        match operation {
            Operation::Broadcast { root } => {
                staging.broadcast(team, root, &memory, &queue, timeout)
            }
            Operation::AllReduce { element, op } => {
                staging.all_reduce(team, &memory, element, op, &queue, timeout)
            }
        }?;
        if stream.is_none() { staging.settle(timeout) } else { Ok(()) }
    }
}
