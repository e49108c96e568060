//! Messages of a group that wait for their place in the copy.
//!
//! A group that has failed ends although storage has not answered yet: what it was writing stays leased. The group after it, whose
//! messages have the same place, gets memory for them once that is done.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdmc::{LeaseError, Region};

/// How long storage may take. Shorter than the stall timeout of groups, so that this receiver ends first, and with the cause.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(45);

/// Messages that were offered memory for later. Clones share them: the callbacks of groups add messages, and the session's own
/// thread takes them.
#[derive(Clone, Default)]
pub struct Deferred(Arc<Mutex<Vec<Waiting>>>);

/// A message whose place is in use.
struct Waiting {
    group: u64,
    message: u64,
    region: Region,
    /// When it was seen first.
    since: Option<Duration>,
}

/// A message whose place is free.
#[derive(Debug)]
pub struct Free {
    /// Its group.
    pub group: u64,
    /// Its number in the group.
    pub message: u64,
    /// Its place.
    pub region: Region,
}

impl Deferred {
    /// Whether a part of this place is in use, so that a group that would receive into it would fail.
    pub(super) fn is_in_use(region: &Region) -> bool {
        let all = 0..region.len();
        let lease = match region.is_stored() {
            true => region.write_stored(all).map(drop),
            false => region.write(all).map(drop),
        };
        // A group reports other errors itself.
        matches!(lease, Err(LeaseError::InUse { .. }))
    }

    /// Adds a message.
    pub(super) fn add(&self, group: u64, message: u64, region: Region) {
        self.lock().push(Waiting { group, message, region, since: None });
    }

    /// Removes what waits in a group, which has ended.
    pub fn forget(&self, group: u64) {
        self.lock().retain(|waiting| waiting.group != group);
    }

    /// Takes messages of groups that are joined whose place is free now. Called several times a second, with the time since any
    /// moment that stays the same.
    ///
    /// Errors: storage has not answered for 45 s; names what is stored there.
    pub fn take_free(
        &self,
        now: Duration,
        is_joined: impl Fn(u64) -> bool,
    ) -> Result<Vec<Free>, String> {
        let (mut free, mut late) = (Vec::new(), None);
        self.lock().retain_mut(|waiting| {
            if !is_joined(waiting.group) {
                return true;
            }
            let Waiting { group, message, region, .. } = waiting;
            if !Self::is_in_use(region) {
                free.push(Free { group: *group, message: *message, region: region.clone() });
                return false;
            }
            let waited = now.saturating_sub(*waiting.since.get_or_insert(now));
            if waited >= STORAGE_TIMEOUT && late.is_none() {
                let name = waiting.region.stored_name().unwrap_or_else(|| "memory".into());
                let s = waited.as_secs();
                late = Some(format!(
                    "its storage does not answer: a write of an earlier group to {name} has not ended after {s} s; check that \
                     file system and its disk"
                ));
            }
            true
        });
        late.map_or(Ok(free), Err)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deferred({} messages)", self.lock().len())
    }
}
