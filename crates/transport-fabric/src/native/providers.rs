//! The providers that rdmc uses.

use crate::{
    discovery::{Device, Discovery},
    error::FabricError,
    native::sys,
};

/// Providers that rdmc uses with message endpoints; with all others it uses reliable datagrams.
pub const MESSAGE_PROVIDERS: [&str; 3] = ["verbs", "tcp", "sockets"];
const DATAGRAM_PROVIDERS: [&str; 3] = ["shm", "efa", "cxi"];

/// Lists the devices that libfabric offers. Opens nothing and takes some milliseconds.
///
/// Errors: built without libfabric, or it is not installed.
pub fn discover() -> Result<Discovery, FabricError> {
    sys::load().map_err(FabricError::NoLibrary)?;
    let mut devices: Vec<Device> = Vec::new();
    let message = MESSAGE_PROVIDERS.map(|provider| (provider, true));
    for (provider, message_endpoints) in
        message.into_iter().chain(DATAGRAM_PROVIDERS.map(|provider| (provider, false)))
    {
        // A provider whose devices cannot be listed has none.
        let infos = sys::infos(Some(provider), message_endpoints, None).unwrap_or_default();
        for info in infos.iter().filter(|info| info.provider == provider) {
            let device = Device {
                provider: provider.into(),
                name: info.domain.clone(),
                is_message_endpoint: info.is_message_endpoint,
                max_message_bytes: info.max_message_bytes,
                link_bits_per_second: info.link_bits_per_second,
                link_is_up: info.link_is_up,
                needs_registration: info.needs_local_registration,
                can_offload: info.has_triggers,
            };
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
    }
    Ok(Discovery { version: sys::version(), devices })
}
