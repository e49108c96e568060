//! The fabrics of this host.

/// What libfabric offers on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovery {
    /// Version of the library.
    pub version: (u32, u32),
    /// Every device with every provider that rdmc can use it with.
    pub devices: Vec<Device>,
}

/// One device with one provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The provider.
    pub provider: String,
    /// Its name for the device (libfabric: the domain).
    pub name: String,
    /// Connected endpoints rather than reliable datagrams.
    pub is_message_endpoint: bool,
    /// The longest block.
    pub max_message_bytes: u64,
    /// The link's rate, if it is known.
    pub link_bits_per_second: Option<u64>,
    /// Whether the link is up, if it is known.
    pub link_is_up: Option<bool>,
    /// Whether memory has to be registered, which counts against the limit on locked memory.
    pub needs_registration: bool,
    /// Whether the device can start sends by itself.
    pub can_offload: bool,
}

/// Providers of hardware that is faster than TCP sockets, best first.
const HARDWARE: [&str; 3] = ["verbs", "cxi", "efa"];

impl Discovery {
    /// Returns the providers that are preferable to TCP on this host, best first: those of RDMA
    /// hardware with a link that is not down.
    pub fn automatic(&self) -> impl Iterator<Item = String> {
        let has = |provider: &&str| {
            let usable = |device: &Device| device.link_is_up != Some(false);
            self.devices.iter().any(|device| device.provider == *provider && usable(device))
        };
        HARDWARE.into_iter().filter(has).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hardware_whose_link_is_not_down_is_chosen_by_itself() {
        let device = |provider: &str, link_is_up| Device {
            provider: provider.into(),
            name: "d".into(),
            is_message_endpoint: true,
            max_message_bytes: 1,
            link_bits_per_second: None,
            link_is_up,
            needs_registration: false,
            can_offload: false,
        };
        let with = |devices| Discovery { version: (1, 17), devices };
        let chosen = |d: Discovery| d.automatic().collect::<Vec<_>>();
        assert!(chosen(with(vec![device("tcp", None), device("shm", None)])).is_empty());
        assert!(chosen(with(vec![device("verbs", Some(false))])).is_empty());
        let both = with(vec![device("efa", None), device("verbs", Some(true))]);
        assert_eq!(chosen(both), ["verbs", "efa"]);
    }
}
