//! One device of a provider: its queues, and how its endpoints are opened.

use std::{
    fmt,
    net::IpAddr,
    os::fd::RawFd,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    error::FabricError,
    native::{
        providers::MESSAGE_PROVIDERS,
        registration::Registrar,
        sys::{self, Immediates, Info, Object, RawCompletion},
    },
    settings::FabricSettings,
};

/// Lengths of a completion queue to be tried, for providers that support fewer entries.
const COMPLETIONS: [usize; 3] = [16_384, 4_096, 1_024];

/// A datagram endpoint and its address vector.
pub type Datagrams = (Arc<Object>, Arc<Object>);

/// An open device. Fields are dropped in this order.
pub struct Device {
    /// The listening endpoint; message endpoints only.
    pub passive: Option<Arc<Object>>,
    pub completions: Arc<Object>,
    /// Readable when there are completions; not every provider has one.
    pub completions_fd: Option<RawFd>,
    /// Connection events; message endpoints only.
    pub events: Option<Arc<Object>>,
    pub events_fd: Option<RawFd>,
    pub registrar: Registrar,
    /// Held while a datagram endpoint is opened, and while completions are read: libfabric's shm
    /// makes progress on endpoints that are bound to the queue and not enabled yet, and crashes.
    making: Arc<Mutex<()>>,
    pub domain: Arc<Object>,
    pub fabric: Arc<Object>,
    pub info: Info,
}

impl Device {
    /// Opens everything that endpoints need.
    pub fn open(mut info: Info, settings: &FabricSettings) -> Result<Self, FabricError> {
        let copies = settings.copies;
        if settings.awaits_delivery {
            info.immediates = info.immediates.map(|_| Immediates::Behind);
        }
        let name = info.domain.clone();
        if !info.orders_sends {
            return Err(FabricError::NoDevice(format!(
                "{name} does not keep the order of sends with the provider {}, which blocks rely on: \
                 use another device, or the fabric tcp",
                info.provider
            )));
        }
        let called = |what: &'static str| {
            let name = name.clone();
            move |error: sys::Errno| FabricError::call(format!("{what} {name}"), error.text())
        };
        let fabric = sys::open_fabric(&info).map_err(called("opening the fabric of"))?;
        let domain = sys::open_domain(&fabric, &info).map_err(called("opening the device"))?;
        let completions = open_completions(&domain).map_err(called("opening a queue of"))?;
        let mut device = Self {
            passive: None,
            completions_fd: sys::wait_fd(&completions),
            completions,
            events: None,
            events_fd: None,
            making: Arc::default(),
            registrar: Registrar::new(Arc::clone(&domain), info.needs_local_registration, copies),
            domain,
            fabric,
            info,
        };
        if device.info.is_message_endpoint {
            let events =
                sys::open_event_queue(&device.fabric).map_err(called("opening events of"))?;
            device.events_fd = sys::wait_fd(&events);
            let passive = sys::open_passive(&device.fabric, &device.info, &events);
            device.passive = Some(passive.map_err(called("listening on"))?);
            device.events = Some(events);
        }
        Ok(device)
    }

    /// Returns the address that others connect to; message endpoints only.
    pub fn address(&self) -> Result<Option<Vec<u8>>, FabricError> {
        let name = |passive: &Arc<Object>| {
            sys::name_of(passive).map_err(|e| FabricError::call("asking for an address", e.text()))
        };
        self.passive.as_ref().map(name).transpose()
    }

    /// Opens a message endpoint that answers a connection request.
    pub fn open_answer(&self, request: &Info) -> Result<Arc<Object>, sys::Errno> {
        let events = self.events.as_ref();
        sys::open_endpoint(&self.domain, request, &self.completions, events, None)
    }

    /// Opens a message endpoint that will connect to this address.
    pub fn open_toward(&self, address: &[u8]) -> Result<Arc<Object>, sys::Errno> {
        self.open_answer(&self.info.toward(address))
    }

    /// Returns the maker of datagram endpoints, unless the device has message endpoints.
    pub fn datagrams(&self) -> Option<DatagramMaker> {
        (!self.info.is_message_endpoint).then(|| DatagramMaker {
            info: self.info.duplicate(),
            domain: Arc::clone(&self.domain),
            completions: Arc::clone(&self.completions),
            making: Arc::clone(&self.making),
        })
    }

    /// Reads completions. Errors: the queue itself failed.
    pub fn read_completions(&self, into: &mut [RawCompletion]) -> Result<usize, sys::Errno> {
        let _making = (!self.info.is_message_endpoint)
            .then(|| self.making.lock().unwrap_or_else(PoisonError::into_inner));
        sys::read_completions(&self.completions, into)
    }

    /// Returns the length of the longest block in bytes.
    pub fn block_bytes_max(&self) -> u64 {
        self.info.max_message_bytes.min(u64::from(u32::MAX))
    }

    /// Returns the queues that a wait has to include, or `None` if this device cannot end a wait.
    pub fn waitable(&self) -> Option<Vec<(&Object, RawFd)>> {
        let mut queues = vec![(&*self.completions, self.completions_fd?)];
        if let Some(events) = &self.events {
            queues.push((events, self.events_fd?));
        }
        Some(queues)
    }
}

/// Opens datagram endpoints of a device, from any thread.
pub struct DatagramMaker {
    info: Info,
    domain: Arc<Object>,
    completions: Arc<Object>,
    making: Arc<Mutex<()>>,
}

impl DatagramMaker {
    /// Opens an endpoint with an address vector of its own; returns its address, too.
    pub fn make(&self) -> Result<(Vec<u8>, Datagrams), FabricError> {
        let failed = |error: sys::Errno| {
            FabricError::call(format!("opening an endpoint of {}", self.info.domain), error.text())
        };
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let vector = sys::open_address_vector(&self.domain).map_err(failed)?;
        let endpoint =
            sys::open_endpoint(&self.domain, &self.info, &self.completions, None, Some(&vector))
                .map_err(failed)?;
        let address = sys::name_of(&endpoint).map_err(failed)?;
        Ok((address, (endpoint, vector)))
    }
}

impl fmt::Debug for DatagramMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatagramMaker({})", self.info.domain)
    }
}

/// Opens a completion queue as long as the device supports, with a descriptor to wait on if it has
/// one.
fn open_completions(domain: &Arc<Object>) -> Result<Arc<Object>, sys::Errno> {
    let tries = [true, false].into_iter().flat_map(|wait| COMPLETIONS.map(|n| (n, wait)));
    let mut outcome = Err(sys::Errno::AGAIN);
    for (entries, with_wait) in tries {
        outcome = sys::open_completion_queue(domain, entries, with_wait);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Chooses the devices for the settings, one for each rail.
pub fn choose(settings: &FabricSettings) -> Result<Vec<Info>, FabricError> {
    let provider = settings.provider.as_str();
    let message_endpoints = MESSAGE_PROVIDERS.contains(&provider);
    let find = |source: Option<IpAddr>| {
        let source = source.map(|address| address.to_string());
        let infos = sys::infos(Some(provider), message_endpoints, source.as_deref())
            .map_err(|error| FabricError::call("looking for devices", error.text()))?;
        let usable = |info: &Info| info.provider == provider && info.link_is_up != Some(false);
        Ok::<_, FabricError>(infos.into_iter().filter(usable).collect::<Vec<_>>())
    };
    if settings.devices.is_empty() {
        let near = settings.near.filter(|address| message_endpoints && !address.is_unspecified());
        let mut found = match near {
            Some(address) => find(Some(address))?,
            None => Vec::new(),
        };
        if found.is_empty() {
            found = find(None)?;
        }
        let first = found.into_iter().next().ok_or_else(|| {
            FabricError::NoDevice(format!(
                "no device has the provider {provider} here; `fi_info -p {provider}` shows more"
            ))
        })?;
        return Ok(vec![first]);
    }
    let mut rails = Vec::new();
    for device in &settings.devices {
        let infos = find(None)?;
        let known: Vec<String> = infos.iter().map(|info| info.domain.clone()).collect();
        let info = infos.into_iter().find(|info| info.domain == *device).ok_or_else(|| {
            FabricError::NoDevice(format!(
                "the provider {provider} has no device {device} here; it has: {}",
                known.join(", ")
            ))
        })?;
        rails.push(info);
    }
    Ok(rails)
}
