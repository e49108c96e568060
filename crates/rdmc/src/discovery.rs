//! Discovery of this host's fabrics other than TCP.

use crate::{Error, Fabric};

/// The version and devices of libfabric on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovery {
    /// libfabric's version: major, minor.
    pub version: (u32, u32),
    /// Every device, once for each provider with which rdmc can use the device.
    pub devices: Vec<Device>,
}

/// One device with one provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The fabric that selects this device with this provider.
    pub fabric: Fabric,
    /// The longest block, in bytes.
    pub block_bytes_max: u64,
    /// The link's rate in bits per second, if known.
    pub link_bits_per_second: Option<u64>,
    /// Whether the link is up, if known.
    pub link_is_up: Option<bool>,
    /// Whether memory must be registered; registered memory counts towards the limit on locked memory.
    pub needs_registration: bool,
    /// Whether the device can start sends by itself (offload).
    pub can_offload: bool,
}

/// Returns libfabric's version and devices. Opens no device; takes up to a few tenths of a second.
///
/// # Errors
/// libfabric is not installed.
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

/// Returns libfabric's version and devices.
///
/// # Errors
/// Always: this build has no libfabric.
#[cfg(not(feature = "fabric"))]
pub fn discover() -> Result<Discovery, Error> {
    Err(Error::Fabric {
        fabric: "libfabric".into(),
        cause: "this rdmc was built without libfabric; build it with the feature `fabric`".into(),
    })
}
