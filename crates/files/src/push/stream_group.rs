//! One group of a stream, at the root.

use std::{collections::BTreeSet, time::Duration};

use rdmc::{Error, Group, GroupSettings, Region};

use crate::messages::{Blamed, Start};

/// One group of the stream.
pub(super) struct StreamGroup {
    pub(super) number: u64,
    /// By rank, from 1 on.
    pub(super) hosts: Vec<usize>,
    pub(super) group: Option<Group>,
    pub(super) joined: BTreeSet<usize>,
    /// Hosts that have reported that it failed.
    pub(super) reported: BTreeSet<usize>,
    pub(super) failure: Option<String>,
    pub(super) blamed: Option<usize>,
    /// The place in the stream where it began.
    pub(super) from: u64,
    /// The root sends to all hosts itself, up to this place in the stream.
    pub(super) direct_until: Option<u64>,
    /// Hosts that got other bytes than those that were sent.
    pub(super) altered: BTreeSet<usize>,
}

impl StreamGroup {
    /// A group that begins at a place in the stream; see [`Self::direct_until`].
    pub(super) fn new(number: u64, hosts: Vec<usize>, place: (u64, Option<u64>)) -> Self {
        Self {
            number,
            hosts,
            group: None,
            joined: BTreeSet::new(),
            reported: BTreeSet::new(),
            failure: None,
            blamed: None,
            from: place.0,
            direct_until: place.1,
            altered: BTreeSet::new(),
        }
    }

    pub(super) fn fail(&mut self, why: String, blamed: Option<usize>) {
        self.failure.get_or_insert(why);
        self.blamed = self.blamed.or(blamed);
    }

    /// Sends a message if the root is a member.
    pub(super) fn send(&mut self, region: Region) {
        if let Some(Err(error)) = self.group.as_ref().map(|group| group.try_send(region)) {
            self.fail(error.to_string(), None);
        }
    }

    /// The root and all hosts are members.
    pub(super) fn is_joined(&self) -> bool {
        self.group.is_some() && self.joined.len() == self.hosts.len()
    }

    /// The host that a member blames.
    pub(super) fn host_of(&self, blamed: Option<Blamed>) -> Option<usize> {
        let rank = blamed?.member.checked_sub(1)?;
        self.hosts.get(rank as usize).copied()
    }
}

/// The group's settings at any member.
pub(crate) fn stream_settings(start: &Start) -> Result<GroupSettings, Error> {
    let mut settings = start.group_settings()?;
    // A consumer may pause for as long as it likes; members that die are noticed all the same.
    settings.stall_timeout = Duration::MAX;
    settings.receive_bytes_max = RECEIVE_BYTES_MAX;
    Ok(settings)
}

/// What a receiver holds of messages that its consumer has not taken.
const RECEIVE_BYTES_MAX: u64 = 64 << 20;
