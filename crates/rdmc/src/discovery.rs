//! What this host has beyond TCP sockets.

use crate::{Error, Fabric};

/// What libfabric offers on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovery {
    /// Version of the library: major, minor.
    pub version: (u32, u32),
    /// Every device with every provider that rdmc can use it with.
    pub devices: Vec<Device>,
}

/// One device with one provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// How to ask for it, device included.
    pub fabric: Fabric,
    /// The longest block, in bytes.
    pub block_bytes_max: u64,
    /// The link's rate in bits per second, where it is known.
    pub link_bits_per_second: Option<u64>,
    /// Whether the link is up, where it is known.
    pub link_is_up: Option<bool>,
    /// Whether memory has to be registered, which counts against the limit on locked memory.
    pub needs_registration: bool,
    /// Whether it can start sends by itself.
    pub can_offload: bool,
}

/// Asks libfabric what there is. Opens nothing and takes some milliseconds.
///
/// Errors: not built with it, not installed.
#[cfg(feature = "fabric")]
pub fn discover() -> Result<Discovery, Error> {
    let found = transport_fabric::discover()
        .map_err(|error| Error::Fabric { fabric: "libfabric".into(), cause: error.to_string() })?;
    let devices = found.devices.into_iter().map(|device| Device {
        fabric: Fabric::Libfabric { provider: device.provider, devices: vec![device.name] },
        block_bytes_max: device.max_message_bytes,
        link_bits_per_second: device.link_bits_per_second,
        link_is_up: device.link_is_up,
        needs_registration: device.needs_registration,
        can_offload: device.can_offload,
    });
    Ok(Discovery { version: found.version, devices: devices.collect() })
}

/// Errors: always; this build has no libfabric.
#[cfg(not(feature = "fabric"))]
pub fn discover() -> Result<Discovery, Error> {
    Err(Error::Fabric {
        fabric: "libfabric".into(),
        cause: "this rdmc was built without it; build it with the feature `fabric`".into(),
    })
}
