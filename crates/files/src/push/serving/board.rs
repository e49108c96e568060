//! What is fetched from a server, and how far each host is.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    push::settings::{HostState, PushEvent},
    reason::shortened,
    server_status::{FetchState, FetchStatus, ObjectStatus, ServerStatus},
};

/// Objects by their paths. Sessions write what happens; whoever asks gets a copy.
#[derive(Default)]
pub(super) struct Board(Mutex<BTreeMap<PathBuf, Entry>>);

#[derive(Default)]
struct Entry {
    bytes: Option<u64>,
    /// By the index that they have in their session.
    hosts: Vec<FetchStatus>,
}

impl Board {
    /// A session begins, of an object of this length if that is known.
    pub(super) fn open(&self, path: &Path, bytes: Option<u64>) {
        self.lock().entry(path.to_owned()).or_default().bytes = bytes;
    }

    /// The session has ended.
    pub(super) fn close(&self, path: &Path) {
        self.lock().remove(path);
    }

    /// Something has happened in a session. Returns a host whose state has changed, with its name and state.
    pub(super) fn note(&self, path: &Path, event: PushEvent) -> Option<(String, HostState)> {
        let mut objects = self.lock();
        let Entry { bytes: length, hosts } = objects.get_mut(path)?;
        match event {
            PushEvent::Joined { name, .. } => {
                hosts.push(FetchStatus::new(name.clone()));
                Some((name, HostState::Preparing))
            }
            PushEvent::Host { host, state } => {
                let known = hosts.get_mut(host)?;
                known.state = state_of(&state);
                if state == HostState::Published {
                    known.received_bytes = length.unwrap_or(known.received_bytes);
                }
                known.is_here &= !matches!(known.state, FetchState::Failed(_));
                (state != HostState::Preparing).then(|| (known.name.clone(), state))
            }
            PushEvent::Progress { host, bytes } => {
                hosts.get_mut(host)?.received_bytes = bytes;
                None
            }
            PushEvent::Left { host } => {
                hosts.get_mut(host)?.is_here = false;
                None
            }
            _ => None,
        }
    }

    /// What is fetched now. Of hosts with one name the last that came counts.
    pub(super) fn status(&self) -> ServerStatus {
        let objects = self.lock();
        let of = |(path, Entry { bytes, hosts }): (&PathBuf, &Entry)| {
            let last: BTreeMap<&str, usize> =
                (0..).zip(hosts).map(|(index, host)| (&*host.name, index)).collect();
            let is_last = |&(index, host): &(usize, &FetchStatus)| last[&*host.name] == index;
            let hosts = (0..).zip(hosts).filter(is_last).map(|(_, host)| host.clone()).collect();
            ObjectStatus { path: path.to_string_lossy().into_owned(), bytes: *bytes, hosts }
        };
        ServerStatus::of(objects.iter().map(of))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn state_of(state: &HostState) -> FetchState {
    match state {
        HostState::Ready => FetchState::Receiving,
        HostState::Received => FetchState::Verifying,
        HostState::Published => FetchState::Published,
        HostState::Failed(reason) | HostState::Unknown(reason) => {
            FetchState::Failed(shortened(reason))
        }
        _ => FetchState::Preparing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_board_has_the_last_state_of_each_host_until_the_session_ends() {
        let (board, path) = (Board::default(), Path::new("/a"));
        let joined = |name: &str| PushEvent::Joined { host: 0, name: name.into() };
        let host = |host, state| PushEvent::Host { host, state };
        assert_eq!(board.note(path, joined("one")), None, "nobody has opened it");
        board.open(path, None);
        board.open(path, Some(9));
        assert_eq!(board.note(path, joined("one")), Some(("one".into(), HostState::Preparing)));
        assert_eq!(board.note(path, host(0, HostState::Preparing)), None);
        board.note(path, joined("two"));
        board.note(path, host(1, HostState::Ready));
        board.note(path, PushEvent::Progress { host: 1, bytes: 5 });
        board.note(path, host(0, HostState::Published));
        board.note(path, PushEvent::Left { host: 0 });
        board.note(path, host(7, HostState::Ready));
        board.note(path, joined("three"));
        board.note(path, host(2, HostState::Failed("no space".into())));
        let status = board.status();
        let [object] = &status.objects[..] else { panic!("{status:?}") };
        assert_eq!((&*object.path, object.bytes), ("/a", Some(9)));
        let shown = |host: &FetchStatus| (host.name.clone(), host.received_bytes, host.is_here);
        let hosts: Vec<_> = object.hosts.iter().map(shown).collect();
        let expected = [("one", 9, false), ("two", 5, true), ("three", 0, false)];
        assert_eq!(hosts, expected.map(|(name, bytes, is_here)| (name.into(), bytes, is_here)));
        assert_eq!(object.hosts[2].state, FetchState::Failed("no space".into()));
        assert_eq!(object.hosts[0].state, FetchState::Published);
        // It comes again.
        board.note(path, joined("one"));
        let names =
            board.status().objects[0].hosts.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names, ["two", "three", "one"]);
        board.close(path);
        assert_eq!(board.status(), ServerStatus::default());
    }
}
