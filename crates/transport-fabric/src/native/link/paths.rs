//! The endpoints of a link: how they are made, connected and found.

use super::*;

impl Link {
    /// Opens and connects all paths, from the end that connects. Errors: what failed.
    pub fn connect(&mut self, devices: &[Device]) -> Result<Vec<usize>, String> {
        let mut endpoints = Vec::new();
        for path in 0..self.paths.len() {
            let device = &devices[Self::device_of(path)];
            let failed = |error: Errno| format!("opening an endpoint: {}", error.text());
            let address = self.theirs.addresses[Self::device_of(path)].clone();
            let endpoint = device.open_toward(&address).map_err(failed)?;
            endpoints.push(endpoint.address());
            self.adopt(path, Arc::clone(&endpoint), None, devices)?;
            let parameter = [&self.theirs.cookie[..], &[path as u8]].concat();
            sys::connect(&endpoint, &address, &parameter)
                .map_err(|error| format!("connecting: {}", error.text()))?;
        }
        Ok(endpoints)
    }

    /// Takes the datagram endpoints that were made with the offer into use: nothing is to be
    /// connected. Errors: the peer's address is no address.
    pub fn join_datagrams(&mut self, devices: &[Device]) -> Result<(), String> {
        let endpoints = std::mem::take(&mut self.offer.endpoints);
        for (rail, (endpoint, vector)) in endpoints.into_iter().enumerate().take(self.rails()) {
            let peer = sys::insert_address(&vector, &self.theirs.addresses[rail])
                .map_err(|error| format!("the peer's address: {}", error.text()))?;
            if rail == 0 {
                self.adopt(0, Arc::clone(&endpoint), Some(peer), devices)?;
            }
            self.adopt(rail + 1, endpoint, Some(peer), devices)?;
        }
        self.paths.iter_mut().flatten().for_each(|path| path.is_connected = true);
        Ok(())
    }

    /// Accepts one of the peer's connection requests. Errors: a path that was asked for already or
    /// does not exist, or what failed.
    pub fn accept(
        &mut self,
        path: usize,
        request: &sys::Info,
        devices: &[Device],
    ) -> Result<usize, String> {
        if self.role == Role::Connect || !matches!(self.paths.get(path), Some(None)) {
            return Err(format!("path {path} was not to be connected"));
        }
        let endpoint = devices[Self::device_of(path)]
            .open_answer(request)
            .map_err(|error| format!("opening an endpoint: {}", error.text()))?;
        self.adopt(path, Arc::clone(&endpoint), None, devices)?;
        sys::accept(&endpoint).map_err(|error| format!("accepting: {}", error.text()))?;
        Ok(endpoint.address())
    }

    /// Takes an endpoint into use. Places for control words are there before the peer can write.
    pub(super) fn adopt(
        &mut self,
        path: usize,
        endpoint: Arc<Object>,
        peer: Option<u64>,
        devices: &[Device],
    ) -> Result<(), String> {
        self.paths[path] = Some(Path { endpoint, peer, is_connected: false });
        let places = peer.is_some() || devices[0].info.writes_consume_receives;
        if path == 0 && places {
            for slot in 0..SLOTS {
                self.post_place(slot)
                    .map_err(|error| format!("posting a receive: {}", error.text()))?;
            }
        }
        Ok(())
    }

    /// The peer has not asked for all connections yet, and may still do so.
    pub fn misses_requests(&self) -> bool {
        self.role == Role::Accept && self.paths.iter().any(Option::is_none)
    }

    /// A connection stands; all of them, perhaps.
    pub fn connected(&mut self, endpoint: usize) {
        let mut paths = self.paths.iter_mut().flatten();
        if let Some(path) = paths.find(|path| path.endpoint.address() == endpoint) {
            path.is_connected = true;
        }
    }

    /// Up, if everything for it has happened.
    pub fn rise(&mut self) {
        let all = self.paths.iter().all(|path| path.as_ref().is_some_and(|path| path.is_connected));
        self.is_up |= all && self.peer_slots.is_some();
        if self.is_up && matches!(self.phase, Phase::Connecting { .. }) {
            self.phase = Phase::Up;
        }
    }

    pub(super) fn way(&self, path: usize, tag: u64, receiving: bool) -> Way {
        match self.paths[path].as_ref().and_then(|path| path.peer) {
            None => Way::Connected,
            Some(_) if receiving => {
                Way::Tagged { peer: ANYBODY, tag: u64::from(self.number()) << 8 | tag }
            }
            Some(peer) => Way::Tagged { peer, tag: u64::from(self.theirs.number) << 8 | tag },
        }
    }

    pub(super) fn endpoint(&self, path: usize) -> Option<Arc<Object>> {
        self.paths[path].as_ref().map(|path| Arc::clone(&path.endpoint))
    }

    /// The first rail and its peer, for offloaded blocks, once the link is up.
    pub fn offload_path(&self) -> Option<(Arc<Object>, u64)> {
        let path = self.paths[1].as_ref().filter(|_| self.is_up && self.broken.is_none())?;
        Some((Arc::clone(&path.endpoint), path.peer.unwrap_or(ANYBODY)))
    }

    /// The endpoints' addresses, by which events name them.
    pub fn endpoints(&self) -> impl Iterator<Item = usize> + '_ {
        self.paths.iter().flatten().map(|path| path.endpoint.address())
    }

    /// The device of a path: the control path shares the first rail's.
    pub fn device_of(path: usize) -> usize {
        path.saturating_sub(1)
    }

    pub(super) fn rails(&self) -> usize {
        self.paths.len() - 1
    }
}
