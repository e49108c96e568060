//! Peers that were refused, as they did not authenticate: why members may be missing.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many addresses are remembered; strangers may use more.
const ADDRESSES_MAX: usize = 64;

/// The last refusal of each address, until a peer there authenticates.
#[derive(Default)]
pub(crate) struct Refusals {
    causes: Mutex<HashMap<IpAddr, String>>,
}

impl Refusals {
    /// A peer was refused. `cause`: what it does or has, as the predicate of a sentence.
    pub(crate) fn add(&self, address: IpAddr, cause: &str) {
        let mut causes = self.lock();
        if causes.len() < ADDRESSES_MAX || causes.contains_key(&address) {
            causes.insert(address, cause.to_owned());
        }
    }

    /// A peer has authenticated.
    pub(crate) fn remove(&self, address: IpAddr) {
        self.lock().remove(&address);
    }

    /// Why a peer at this address was refused last.
    pub(crate) fn of(&self, address: IpAddr) -> Option<String> {
        self.lock().get(&address).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, String>> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
