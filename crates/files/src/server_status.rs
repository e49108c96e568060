//! What a server says of itself: what is fetched from it, and by whom.

use serde::{Deserialize, Serialize};

/// The most hosts in an answer: it has to fit into a message.
const HOSTS_MAX: usize = 20_000;

/// What is fetched from a server now.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Each with at least one host that has come and not left.
    pub objects: Vec<ObjectStatus>,
    /// How many hosts are left out, since they are too many.
    pub omitted: u64,
}

/// An object that is fetched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectStatus {
    /// Its path at the server.
    pub path: String,
    /// Its length; `None` while it is looked at.
    pub bytes: Option<u64>,
    /// In the order in which they came; of those with one name the last.
    pub hosts: Vec<FetchStatus>,
}

/// A host that fetches an object, or has done so since the first of those came that still do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FetchStatus {
    /// Its name, as it has given it.
    pub name: String,
    /// How far it is.
    pub state: FetchState,
    /// Bytes of the object that are there, as it has reported.
    pub received_bytes: u64,
    /// It has not left: it receives, or sends its copy to others.
    pub is_here: bool,
}

/// How far a host is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FetchState {
    /// It looks at what it has.
    Preparing,
    /// It receives.
    Receiving,
    /// It has everything, and compares or publishes it.
    Verifying,
    /// It has a verified copy under its name.
    Published,
    /// It has no copy, for this reason.
    Failed(String),
}

impl ServerStatus {
    /// Of these objects; leaves out hosts beyond the most that an answer may have.
    pub(crate) fn of(objects: impl Iterator<Item = ObjectStatus>) -> Self {
        let (mut left, mut omitted) = (HOSTS_MAX, 0);
        let bounded = objects.map(|mut object| {
            let kept = object.hosts.len().min(left);
            omitted += (object.hosts.len() - kept) as u64;
            object.hosts.truncate(kept);
            left -= kept;
            object
        });
        Self { objects: bounded.collect(), omitted }
    }
}

impl FetchStatus {
    /// Of a host that has come.
    pub(crate) fn new(name: String) -> Self {
        Self { name, state: FetchState::Preparing, received_bytes: 0, is_here: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_a_bounded_number_of_hosts() {
        let object = |hosts: usize| ObjectStatus {
            path: "a".into(),
            bytes: Some(1),
            hosts: vec![FetchStatus::new("host".into()); hosts],
        };
        let status = ServerStatus::of([object(3), object(HOSTS_MAX), object(2)].into_iter());
        let hosts: Vec<usize> = status.objects.iter().map(|object| object.hosts.len()).collect();
        assert_eq!((hosts, status.omitted), (vec![3, HOSTS_MAX - 3, 0], 5));
    }
}
