//! What the system says about the rate of this machine's interfaces.

use std::{fs, net::IpAddr, path::Path};

/// Returns the rate in bits per second of the interface with this address; `None` if no interface of this machine has it, or
/// the system does not know its rate, as with many virtual ones.
pub(crate) fn of_address(address: IpAddr) -> Option<u64> {
    let all = if_addrs::get_if_addrs().ok()?;
    let interface = all.iter().find(|interface| interface.ip() == address)?;
    read(&Path::new("/sys/class/net").join(&interface.name), interface.index?)
}

/// `directory`: the files of the interface of this name, which may be of another network namespace than this process, and then
/// has another index.
fn read(directory: &Path, index: u32) -> Option<u64> {
    let number = |file| -> Option<u64> {
        fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
    };
    if number("ifindex")? != u64::from(index) {
        return None;
    }
    // -1 without a link, or if the driver does not know.
    let megabits = number("speed").filter(|&megabits| megabits > 0)?;
    megabits.checked_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn rates_are_read_of_the_very_interface() {
        let of = |files: &[(&str, &str)]| {
            let directory = tempfile::tempdir().unwrap();
            for (name, text) in files {
                fs::write(directory.path().join(name), text).unwrap();
            }
            read(directory.path(), 3)
        };
        assert_eq!(of(&[("ifindex", "3\n"), ("speed", "25000\n")]), Some(25_000_000_000));
        assert_eq!(of(&[("ifindex", "2\n"), ("speed", "25000\n")]), None, "another's");
        for unknown in ["-1\n", "0\n", "", "fast\n", "18446744073709551615\n"] {
            assert_eq!(of(&[("ifindex", "3\n"), ("speed", unknown)]), None, "{unknown:?}");
        }
        assert_eq!(of(&[("ifindex", "3\n")]), None, "loopback has no rate");
    }

    #[test]
    fn addresses_without_a_rate_have_none() {
        for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(192, 0, 2, 1)] {
            assert_eq!(of_address(address.into()), None, "{address}");
        }
        assert_eq!(of_address(Ipv6Addr::LOCALHOST.into()), None);
    }
}
