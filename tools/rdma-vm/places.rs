//! What the virtual machine tells tests of the switch: part of those tests.

use std::net::IpAddr;

use roce::Mac;

/// An RDMA device in software behind a port of the switch.
pub struct Place {
    pub device: String,
    pub address: IpAddr,
    pub interface: String,
    pub port: String,
}

/// Where the list is.
pub const LIST: &str = "RDMC_TEST_SWITCH_DEVICES";

/// What it says: "rxe1=10.7.0.1=v1=p1,...", each a device, its address, its interface, and the switch's
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
    /// The Ethernet address of its interface.
    pub fn mac(&self) -> Mac {
        Mac(packet_socket::ethernet_address(&self.interface).unwrap())
    }
}
