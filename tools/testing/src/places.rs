//! RDMA devices that the virtual machine has for tests of the switch.

use std::{fmt::Debug, net::IpAddr, str::FromStr};

/// An RDMA device in software behind a port of the switch.
#[derive(Clone, Debug)]
pub struct Place {
    /// The device's name, such as `rxe1`.
    pub device: String,
    /// Its address.
    pub address: IpAddr,
    /// The network interface that it belongs to.
    pub interface: String,
    /// The switch's end of that interface.
    pub port: String,
}

/// The environment variable with the list.
pub const LIST: &str = "RDMC_TEST_SWITCH_DEVICES";

/// The list: "rxe1=10.7.0.1=v1=p1,...", each a device, its address, its interface, and the switch's
/// port.
pub fn places() -> Option<Vec<Place>> {
    let Ok(list) = std::env::var(LIST) else {
        println!("SKIPPED: needs RDMA devices in software behind a switch: ./dev test-rdma switch");
        return None;
    };
    let place = |text: &str| {
        let parts: Vec<&str> = text.split('=').collect();
        let [device, address, interface, port] = parts[..] else { panic!("{text}") };
        let (interface, port) = (interface.into(), port.into());
        Place { device: device.into(), address: address.parse().unwrap(), interface, port }
    };
    Some(list.split(',').map(place).collect())
}

impl Place {
    /// The Ethernet address of its interface, read as the type that the tested crate has for it.
    pub fn mac<M: FromStr<Err: Debug>>(&self) -> M {
        let path = format!("/sys/class/net/{}/address", self.interface);
        std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }
}
