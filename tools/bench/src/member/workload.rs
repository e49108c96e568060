//! What is sent in more groups than one.

use rdmc::{Algorithm, Schedule};
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// Groups, and what is sent in them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// The number of the first group; none is used twice.
    pub number: u64,
    pub algorithm: String,
    pub block_bytes: u64,
    pub window: u32,
    /// The members of each group; the first of each is the root of all.
    pub groups: Vec<[u32; 4]>,
    pub objects: Vec<Object>,
    /// How many may be in flight at the same time.
    pub in_flight: usize,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// An index into [`Workload::groups`].
    pub group: usize,
    pub bytes: u64,
}

impl Workload {
    /// Members of a group that receive.
    pub const TARGETS: usize = 3;

    /// The objects of one group, in the order in which they are sent.
    pub fn objects_of(&self, group: usize) -> impl Iterator<Item = usize> {
        let indexed = self.objects.iter().enumerate();
        indexed.filter(move |(_, object)| object.group == group).map(|(index, _)| index)
    }

    pub fn takes_part(&self, rank: u32, object: &Object) -> bool {
        self.groups.get(object.group).is_some_and(|members| members.contains(&rank))
    }
}

/// Groups, and the one message in each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Together {
    /// The number of the first group; none is used twice.
    pub number: u64,
    pub algorithm: String,
    pub block_bytes: u64,
    pub window: u32,
    pub message_bytes: u64,
    /// The root of each group.
    pub roots: Vec<u32>,
}

impl Together {
    /// The schedule of each group.
    pub fn schedules(&self, members: u32) -> Outcome<Vec<Schedule>> {
        let algorithm: Algorithm = self.algorithm.parse()?;
        let schedule = |&root: &u32| Schedule::new(algorithm, members, root);
        Ok(self.roots.iter().map(schedule).collect::<Result<_, _>>()?)
    }
}
