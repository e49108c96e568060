//! Connections that arrive before their link is opened, and rejection of those that belong to none.

use std::{
    collections::{HashMap, VecDeque},
    thread,
    time::{Duration, Instant},
};

use transport::{Cause, EndpointId};

use crate::{
    native::{
        device::Device,
        link::{Link, device_of},
        offer::{Book, Cookie},
        sys::{self, Event, Info},
    },
    role::Role,
};

/// The most requests that may wait for their links at the same time.
const WAITING_MAX: usize = 4096;

/// The connections of a transport's message endpoints: those to be made, and the links that they
/// belong to.
///
/// Methods that change links return their identifiers, so that the transport serves those links.
pub struct Connecting {
    requests: Requests,
    openings: VecDeque<Opening>,
    /// Links by the addresses of their endpoints.
    by_endpoint: HashMap<usize, EndpointId>,
    /// When the last link ended whose peer may still request connections.
    last_half_made: Option<Instant>,
}

/// A transport's links.
pub type Links = HashMap<EndpointId, Link>;

/// Requests of known links that are not open yet.
struct Requests {
    waiting: HashMap<Cookie, Vec<Waiting>>,
    count: usize,
    request_timeout: Duration,
}

/// Endpoints that have to be opened.
enum Opening {
    /// All endpoints of a link, at the end that connects.
    Connect(EndpointId),
    /// The endpoint of this path, at the peer's request.
    Accept(EndpointId, usize, Info),
}

/// How long one kind of slow work may take before other work is done.
pub const SLICE: Duration = Duration::from_millis(20);

/// How long requests of links that ended while connecting are awaited before the listening
/// endpoints are closed. libfabric's tcp provider never closes a connection's socket if its
/// listening endpoint is closed between accepting it and reading its request.
const LAST_CALL: Duration = Duration::from_millis(200);

struct Waiting {
    since: Instant,
    path: usize,
    request: Info,
}

impl Requests {
    fn new(request_timeout: Duration) -> Self {
        Self { waiting: HashMap::new(), count: 0, request_timeout }
    }

    /// Keeps a request for later; returns it if there are too many already.
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

    /// Takes the requests for a link that is being opened.
    fn take(&mut self, cookie: &Cookie) -> Vec<(usize, Info)> {
        let waiting = self.waiting.remove(cookie).unwrap_or_default();
        self.count -= waiting.len();
        waiting.into_iter().map(|waiting| (waiting.path, waiting.request)).collect()
    }

    /// Rejects requests that have waited for too long.
    fn expire(&mut self, now: Instant, devices: &[Device]) {
        if self.count == 0 {
            return;
        }
        let request_timeout = self.request_timeout;
        self.waiting.retain(|_, waiting| {
            waiting.retain(|one| {
                let keep = now < one.since + request_timeout;
                if !keep {
                    reject(&devices[one.path.saturating_sub(1)], &one.request);
                }
                keep
            });
            !waiting.is_empty()
        });
        self.count = self.waiting.values().map(Vec::len).sum();
    }
}

fn reject(device: &Device, request: &Info) {
    if let Some(passive) = &device.passive {
        sys::reject(passive, request);
    }
}

/// Rejects all connection requests received so far.
fn turn_requests_away(device: &Device) {
    let Some(events) = &device.events else { return };
    while let Ok(Some(event)) = sys::next_event(events) {
        if let Event::Request { info, .. } = event {
            reject(device, &info);
        }
    }
}

impl Connecting {
    /// Requests wait for their links for `request_timeout`.
    pub fn new(request_timeout: Duration) -> Self {
        Self {
            requests: Requests::new(request_timeout),
            openings: VecDeque::new(),
            by_endpoint: HashMap::new(),
            last_half_made: None,
        }
    }

    /// Returns whether there are endpoints to be opened.
    pub fn is_busy(&self) -> bool {
        !self.openings.is_empty()
    }

    /// Connects a new link, from this end or as far as the peer has requested it.
    pub fn add(&mut self, link: &Link) {
        if link.role == Role::Connect {
            self.openings.push_back(Opening::Connect(link.id));
            return;
        }
        let requests = self.requests.take(&link.cookie()).into_iter();
        self.openings.extend(requests.map(|(path, info)| Opening::Accept(link.id, path, info)));
    }

    /// Removes a link that ends.
    pub fn remove(&mut self, link: &Link) {
        if link.misses_requests() {
            self.last_half_made = Some(Instant::now());
        }
        for endpoint in link.endpoints() {
            self.by_endpoint.remove(&endpoint);
        }
    }

    /// Rejects requests whose links were not opened in time.
    pub fn expire(&mut self, now: Instant, devices: &[Device]) {
        self.requests.expire(now, devices);
    }

    /// Rejects all requests received so far, also those that were not read: a request without an
    /// answer keeps its socket open for ever.
    pub fn turn_all_away(&mut self, devices: &[Device]) {
        for opening in std::mem::take(&mut self.openings) {
            if let Opening::Accept(_, path, info) = opening {
                reject(&devices[device_of(path)], &info);
            }
        }
        // No request is kept for longer than this.
        self.requests.expire(Instant::now() + self.requests.request_timeout, devices);
        devices.iter().for_each(turn_requests_away);
    }

    /// Rejects requests that still arrive for links that have ended while connecting. Waits for
    /// them for 200 ms at most.
    pub fn last_call(&self, devices: &[Device]) {
        let Some(ended) = self.last_half_made else { return };
        while ended.elapsed() < LAST_CALL {
            devices.iter().for_each(turn_requests_away);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Handles all connection events. Returns the links that have changed.
    ///
    /// Errors: an event queue failed, which affects all its links; as text.
    pub fn take_events(
        &mut self,
        links: &mut Links,
        devices: &[Device],
        book: &Book,
        now: Instant,
    ) -> Result<Vec<EndpointId>, String> {
        let mut changed = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            let Some(events) = &device.events else { continue };
            while let Some(event) = sys::next_event(events)
                .map_err(|error| format!("the event queue failed: {}", error.text()))?
            {
                match event {
                    Event::Request { info, parameter } => {
                        let whose = book.knows(&cookie_of(&parameter));
                        self.request(links, index, device, info, &parameter, whose, now);
                    }
                    event => changed.extend(self.take_event(links, event)),
                }
            }
        }
        Ok(changed)
    }

    fn take_event(&self, links: &mut Links, event: Event) -> Option<EndpointId> {
        let (endpoint, cause) = match event {
            Event::Request { .. } => return None,
            Event::Connected { endpoint } => (endpoint, None),
            Event::ShutDown { endpoint } => {
                (endpoint, Some("the peer's endpoint was shut down".into()))
            }
            Event::Failed { endpoint, error } => {
                (endpoint, Some(format!("the fabric's connection: {}", error.text())))
            }
        };
        let &id = self.by_endpoint.get(&endpoint)?;
        let link = links.get_mut(&id)?;
        match cause {
            None => link.connected(endpoint),
            Some(why) => link.break_by(Cause::Lost(why)),
        }
        Some(id)
    }

    /// Handles a connection request: of a peer whose link is open, or will be, or of an unknown
    /// peer.
    fn request(
        &mut self,
        links: &mut Links,
        index: usize,
        device: &Device,
        info: Info,
        parameter: &[u8],
        is_known: bool,
        now: Instant,
    ) {
        let path = parameter.get(16).map_or(usize::MAX, |&path| usize::from(path));
        let cookie = cookie_of(parameter);
        if path.saturating_sub(1) != index || !is_known {
            tracing::debug!(path, "rejected a connection that belongs to no link");
            return reject(device, &info);
        }
        let of_it = |link: &&Link| link.role == Role::Accept && link.cookie() == cookie;
        let Some(link) = links.values().find(of_it) else {
            if let Err(info) = self.requests.keep(cookie, path, info, now) {
                reject(device, &info);
            }
            return;
        };
        self.openings.push_back(Opening::Accept(link.id, path, info));
    }

    /// Opens the endpoints of new links; returns the identifiers. With some adapters each takes
    /// many milliseconds, and a member may have thousands, so the lifelines are polled in between.
    pub fn open_endpoints(&mut self, links: &mut Links, devices: &[Device]) -> Vec<EndpointId> {
        let mut changed = Vec::new();
        let start = Instant::now();
        while let Some(opening) = self.openings.pop_front() {
            changed.extend(self.open_endpoint(links, devices, opening));
            if start.elapsed() > SLICE {
                break;
            }
        }
        changed
    }

    fn open_endpoint(
        &mut self,
        links: &mut Links,
        devices: &[Device],
        opening: Opening,
    ) -> Option<EndpointId> {
        let (Opening::Connect(id) | Opening::Accept(id, ..)) = opening;
        let Some(link) = links.get_mut(&id).filter(|link| link.broken.is_none()) else {
            // The link has ended in the meantime.
            if let Opening::Accept(_, path, info) = opening {
                reject(&devices[device_of(path)], &info);
            }
            return None;
        };
        let opened = match opening {
            Opening::Connect(_) => link.connect(devices),
            Opening::Accept(_, path, info) => {
                link.accept(path, &info, devices).map(|endpoint| vec![endpoint])
            }
        };
        match opened {
            Ok(endpoints) => {
                self.by_endpoint.extend(endpoints.into_iter().map(|endpoint| (endpoint, id)));
            }
            Err(error) => link.break_by(Cause::Lost(error)),
        }
        Some(id)
    }
}

/// Returns the cookie in a peer's request, or one that no link has.
fn cookie_of(parameter: &[u8]) -> Cookie {
    parameter.first_chunk::<16>().copied().unwrap_or_default()
}
