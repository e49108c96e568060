//! Connections that come in before their link is opened, and what happens to others.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use transport::{Cause, EndpointId};

use crate::{
    device::Device,
    driver::FabricTransport,
    link::Link,
    offer::{Cookie, Role},
    sys::{self, Event, Info},
};

/// Requests that may wait for their links at the same time.
const WAITING_MAX: usize = 4096;

/// Requests whose link is known but not opened yet.
pub struct Requests {
    waiting: HashMap<Cookie, Vec<Waiting>>,
    count: usize,
    patience: Duration,
    /// When a link ended last whose peer may still ask for connections.
    pub last_half_made: Option<Instant>,
}

/// Endpoints that are to be opened.
pub enum Opening {
    /// All of a link, from the end that connects.
    Connect(EndpointId),
    /// The one of this path, which the peer asks for.
    Accept(EndpointId, usize, Info),
}

/// For how long one kind of slow work may go on before something else has its turn.
pub const SLICE: Duration = Duration::from_millis(20);

/// For how long the requests of links that ended half made are waited for before the listening
/// endpoints are closed. libfabric's tcp provider keeps a connection's socket for ever if its
/// listening endpoint goes between accepting it and reading its request.
const LAST_CALL: Duration = Duration::from_millis(200);

struct Waiting {
    since: Instant,
    path: usize,
    request: Info,
}

impl Requests {
    pub fn new(patience: Duration) -> Self {
        Self { waiting: HashMap::new(), count: 0, patience, last_half_made: None }
    }

    /// Gives the request back if there are too many already.
    fn keep(
        &mut self,
        cookie: Cookie,
        path: usize,
        request: Info,
        now: Instant,
    ) -> Result<(), Info> {
        if self.count >= WAITING_MAX {
            return Err(request);
        }
        self.count += 1;
        self.waiting.entry(cookie).or_default().push(Waiting { since: now, path, request });
        Ok(())
    }

    /// The requests for a link that is being opened.
    pub fn take(&mut self, cookie: &Cookie) -> Vec<(usize, Info)> {
        let waiting = self.waiting.remove(cookie).unwrap_or_default();
        self.count -= waiting.len();
        waiting.into_iter().map(|waiting| (waiting.path, waiting.request)).collect()
    }

    /// Turns those away that have waited for too long.
    pub fn expire(&mut self, now: Instant, devices: &[Device]) {
        if self.count == 0 {
            return;
        }
        let patience = self.patience;
        self.waiting.retain(|_, waiting| {
            waiting.retain(|one| {
                let keep = now < one.since + patience;
                if !keep {
                    turn_away(&devices[one.path.saturating_sub(1)], &one.request);
                }
                keep
            });
            !waiting.is_empty()
        });
        self.count = self.waiting.values().map(Vec::len).sum();
    }

    /// Turns away what still comes in for links that have ended half made.
    pub fn last_call(&self, devices: &[Device]) {
        let Some(ended) = self.last_half_made else { return };
        while ended.elapsed() < LAST_CALL {
            devices.iter().for_each(turn_requests_away);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn turn_away(device: &Device, request: &Info) {
    if let Some(passive) = &device.passive {
        sys::reject(passive, request);
    }
}

/// Everybody who has asked for a connection by now.
fn turn_requests_away(device: &Device) {
    let Some(events) = &device.events else { return };
    while let Ok(Some(event)) = sys::next_event(events) {
        if let Event::Request { info, .. } = event {
            turn_away(device, &info);
        }
    }
}

impl FabricTransport {
    /// Turns everybody away whose request was not answered by now, also those that have not been
    /// read: a request that nobody answers keeps its socket for ever.
    pub(crate) fn turn_all_away(&mut self) {
        for opening in std::mem::take(&mut self.openings) {
            if let Opening::Accept(_, path, info) = opening {
                turn_away(&self.devices[Link::device_of(path)], &info);
            }
        }
        // Nobody waits for longer than this.
        self.requests.expire(Instant::now() + self.requests.patience, &self.devices);
        self.devices.iter().for_each(turn_requests_away);
    }

    /// Everything that has happened to connections.
    pub(crate) fn take_events(&mut self, now: Instant) {
        for device in 0..self.devices.len() {
            while let Some(events) = &self.devices[device].events {
                match sys::next_event(events) {
                    Ok(Some(event)) => self.take_event(device, event, now),
                    Ok(None) => break,
                    Err(error) => {
                        self.break_all(&format!("the event queue failed: {}", error.text()));
                        return;
                    }
                }
            }
        }
    }

    fn take_event(&mut self, device: usize, event: Event, now: Instant) {
        let (endpoint, cause) = match event {
            Event::Request { info, parameter } => {
                return self.request(device, info, &parameter, now);
            }
            Event::Connected { endpoint } => {
                if let Some(&id) = self.by_endpoint.get(&endpoint)
                    && let Some(link) = self.links.get_mut(&id)
                {
                    link.connected(endpoint);
                    self.busy.insert(id);
                }
                return;
            }
            Event::ShutDown { endpoint } => {
                (endpoint, Cause::Lost("the peer's endpoint was shut down".into()))
            }
            Event::Failed { endpoint, error } => {
                (endpoint, Cause::Lost(format!("the fabric's connection: {}", error.text())))
            }
        };
        if let Some(&id) = self.by_endpoint.get(&endpoint)
            && let Some(link) = self.links.get_mut(&id)
        {
            link.break_by(cause);
            self.busy.insert(id);
        }
    }

    /// Somebody wants to connect: a peer whose link is open, or will be, or nobody we know.
    fn request(&mut self, device: usize, info: Info, parameter: &[u8], now: Instant) {
        let path = parameter.get(16).map_or(usize::MAX, |&path| usize::from(path));
        let cookie = parameter.first_chunk::<16>().copied().unwrap_or_default();
        if path.saturating_sub(1) != device || !self.book.knows(&cookie) {
            tracing::debug!(path, "turned a connection away that belongs to no link");
            return turn_away(&self.devices[device], &info);
        }
        let of_it = |link: &&mut Link| link.role == Role::Accept && link.cookie() == cookie;
        let Some(link) = self.links.values_mut().find(of_it) else {
            if let Err(info) = self.requests.keep(cookie, path, info, now) {
                turn_away(&self.devices[device], &info);
            }
            return;
        };
        self.openings.push_back(Opening::Accept(link.id, path, info));
    }

    /// Opens the endpoints of new links. With some adapters each takes many milliseconds, and a
    /// member may have thousands: the lifelines are looked at in between.
    pub(crate) fn open_endpoints(&mut self) {
        let start = Instant::now();
        while let Some(opening) = self.openings.pop_front() {
            self.open_endpoint(opening);
            if start.elapsed() > SLICE {
                return;
            }
        }
    }

    fn open_endpoint(&mut self, opening: Opening) {
        let (Opening::Connect(id) | Opening::Accept(id, ..)) = opening;
        let link = self.links.get_mut(&id).filter(|link| link.broken.is_none());
        let opened = match (opening, link) {
            (Opening::Connect(_), Some(link)) => link.connect(&self.devices),
            (Opening::Accept(_, path, info), Some(link)) => {
                link.accept(path, &info, &self.devices).map(|endpoint| vec![endpoint])
            }
            // It has ended in the meantime.
            (Opening::Connect(_), None) => return,
            (Opening::Accept(_, path, info), None) => {
                return turn_away(&self.devices[Link::device_of(path)], &info);
            }
        };
        match (opened, self.links.get_mut(&id)) {
            (Ok(endpoints), _) => {
                self.by_endpoint.extend(endpoints.into_iter().map(|endpoint| (endpoint, id)));
            }
            (Err(error), Some(link)) => link.break_by(Cause::Lost(error)),
            (Err(_), None) => {}
        }
        self.busy.insert(id);
    }
}
