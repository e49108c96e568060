//! Ranges of ports for what listens, where a firewall lets only these in.

use std::{fmt, io, str::FromStr};

use rdmc::Error;
use serde::{Deserialize, Serialize};

use crate::system::system;

/// A range of TCP ports, both ends included; written as `7000-7100`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    pub(crate) fn first(self) -> u16 {
        self.first
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ends = text.split_once('-').and_then(|(first, last)| {
            Some(Self { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? })
        });
        let is_range = |range: &Self| (1..=range.last).contains(&range.first);
        ends.filter(is_range).ok_or_else(|| "a range of ports, such as 7000-7100".to_owned())
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Starts something that listens: at the first port of the range that is free, or at one that the system chooses.
///
/// Errors: those of `start`; no port of the range is free.
pub(crate) fn start_at<T>(
    range: Option<PortRange>,
    mut start: impl FnMut(u16) -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(range) = range else { return start(0) };
    let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    for port in range.first..=range.last {
        match start(port) {
            Err(Error::System { error, .. }) if in_use(&error) => {}
            outcome => return outcome,
        }
    }
    let what = format!("--ports {range}: all of them are in use");
    Err(system(&what, io::ErrorKind::AddrInUse.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_shown() {
        let range: PortRange = "7000-7100".parse().unwrap();
        assert_eq!(range.to_string(), "7000-7100");
        assert!("7000-7000".parse::<PortRange>().is_ok());
        for wrong in ["", "7000", "7100-7000", "0-7", "1-65536", "a-b", "1-2-3"] {
            assert!(wrong.parse::<PortRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_free_port_is_taken() {
        let in_use = || system("listening", io::ErrorKind::AddrInUse.into());
        let range = Some("7000-7002".parse().unwrap());
        let from = |least: u16| move |port| if port < least { Err(in_use()) } else { Ok(port) };
        assert_eq!(start_at(range, from(7000)).unwrap(), 7000);
        assert_eq!(start_at(range, from(7002)).unwrap(), 7002);
        let error = start_at(range, from(7003)).unwrap_err().to_string();
        assert!(error.contains("--ports 7000-7002: all of them are in use"), "{error}");
        assert_eq!(start_at(None, Ok).unwrap(), 0);
        let denied = || system("listening", io::ErrorKind::PermissionDenied.into());
        let mut tries = 0;
        let refused = start_at(range, |_| {
            tries += 1;
            Err::<(), _>(denied())
        });
        assert!(refused.is_err() && tries == 1, "another port would not help");
    }
}
