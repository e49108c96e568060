//! The fabrics of this host.

use std::{fs, path::Path};

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

/// Where the kernel lists devices, by class.
const CLASSES: &str = "/sys/class";
/// The classes of that hardware: verbs and efa, cxi.
const HARDWARE_CLASSES: [&str; 2] = ["infiniband", "cxi"];

/// Returns whether this host may have a device of RDMA hardware, without opening libfabric: that takes some tenths of a
/// second, in which its providers read the list of all of the kernel's symbols. True if the kernel's list of devices
/// cannot be read.
pub fn may_have_hardware() -> bool {
    has_device(Path::new(CLASSES))
}

fn has_device(classes: &Path) -> bool {
    let has_any =
        |class| fs::read_dir(classes.join(class)).is_ok_and(|mut devices| devices.next().is_some());
    fs::read_dir(classes).is_err() || HARDWARE_CLASSES.iter().any(has_any)
}

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
    fn hardware_is_what_the_kernel_lists() {
        let at = std::env::temp_dir().join(format!("rdmc-classes-{}", std::process::id()));
        assert!(has_device(&at), "unknown is not none");
        fs::create_dir_all(at.join("net/eth0")).unwrap();
        assert!(!has_device(&at));
        fs::create_dir(at.join("infiniband")).unwrap();
        assert!(!has_device(&at), "a driver without a device");
        fs::create_dir(at.join("infiniband/mlx5_0")).unwrap();
        assert!(has_device(&at));
        fs::remove_dir_all(&at).unwrap();
    }

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
