//! Labs: made whole or not at all, found again, and removed.

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    process,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use serde::{Deserialize, Serialize};

use crate::{
    Error, Host, LabSettings, command, make,
    namespaces::{self, of_host, of_switch},
    state::{self, Lock},
};

/// Names of labs that go with the process that made them start like this.
const TEMPORARY: &str = "bench-";
const NAME_LENGTH_MAX: usize = 32;

/// Hosts, switches and links.
#[derive(Debug)]
pub struct Lab {
    name: String,
    settings: LabSettings,
    is_temporary: bool,
}

/// What has crossed a rack's uplink since the lab was made: bytes of Ethernet frames, so that
/// payload is 1448 / 1514 of it where packets are full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UplinkBytes {
    /// Left the rack.
    pub leaving: u64,
    /// Came into the rack.
    pub entering: u64,
}

/// A lab on this machine, as [`list`] finds it.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What has become of it.
    pub condition: Condition,
    /// How many of its namespaces there are.
    pub namespaces: usize,
    /// What it is, if it is one that stays, and whole.
    pub settings: Option<LabSettings>,
}

/// What has become of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// Complete.
    Whole,
    /// Being made or removed, or left so by a crash.
    Incomplete,
    /// Parts of it were removed.
    Damaged,
    /// In use by a process that removes it at its end.
    Temporary,
    /// Its process has ended without removing it.
    Abandoned,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Whole => "whole",
            Self::Incomplete => "incomplete",
            Self::Damaged => "damaged",
            Self::Temporary => "temporary",
            Self::Abandoned => "abandoned",
        })
    }
}

impl Lab {
    /// Makes a lab that is removed when this is dropped. Removes what processes that were killed
    /// have left behind.
    ///
    /// Errors: not root, no iproute2, a kernel without token buckets or bridges.
    pub fn create(settings: &LabSettings) -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        settings.check()?;
        need_root()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMPORARY}{}-{number}", process::id());
        let lock = Lock::take()?;
        for (lab, names) in namespaces::all()? {
            if is_abandoned(&lab) {
                namespaces::remove(&lock, &names)?;
            }
        }
        make_or_remove(&lock, &name, settings, &AtomicBool::new(false))?;
        Ok(Self { name, settings: settings.clone(), is_temporary: true })
    }

    /// Makes a lab that stays until [`down`]. Removes what a crash has left of one of this name.
    /// `stop` can be set at any time to have everything removed again.
    ///
    /// Errors: as [`Lab::create`]; there is such a lab; not a name; stopped.
    pub fn up(name: &str, settings: &LabSettings, stop: &AtomicBool) -> Result<Self, Error> {
        settings.check()?;
        check_name(name)?;
        need_root()?;
        let lock = Lock::take()?;
        if state::names()?.iter().any(|one| one == name) {
            return Err(Error::Failed(format!(
                "there is a lab {name}: choose another --name, or remove it with `rdmc-lab down --name {name}`"
            )));
        }
        namespaces::remove(&lock, &namespaces::of_lab(name)?)?;
        make_or_remove(&lock, name, settings, stop)?;
        Ok(Self { name: name.into(), settings: settings.clone(), is_temporary: false })
    }

    /// A lab that [`Lab::up`] has made, here or in another process.
    ///
    /// Errors: not root; there is none, or it was damaged.
    pub fn open(name: &str) -> Result<Self, Error> {
        check_name(name)?;
        need_root()?;
        let Some(settings) = state::read(name)? else {
            return Err(Error::Failed(format!(
                "there is no lab {name}: make it with `rdmc-lab up --name {name}`, or see `rdmc-lab list`"
            )));
        };
        if namespaces::of_lab(name)?.len() != namespaces_of(&settings) {
            return Err(Error::Failed(format!(
                "parts of the lab {name} are gone: `rdmc-lab down --name {name}` removes the rest"
            )));
        }
        Ok(Self { name: name.into(), settings, is_temporary: false })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn settings(&self) -> &LabSettings {
        &self.settings
    }

    /// How to start programs on the hosts, and their addresses, by number.
    pub fn hosts(&self) -> Vec<Host> {
        let host = |number| Host {
            enter: ["ip", "netns", "exec", &self.host_name(number)].map(str::to_owned).to_vec(),
            address: self.settings.address(number).into(),
        };
        (0..self.settings.hosts).map(host).collect()
    }

    /// The bridge that joins hosts, or racks if there are several.
    pub const BRIDGE: &str = make::SPINE;

    /// The ports of the hosts, by number, at the switch.
    pub fn ports(&self) -> Vec<String> {
        (0..self.settings.hosts).map(make::port_name).collect()
    }

    /// The name of a host, which is that of its network namespace.
    pub fn host_name(&self, host: u32) -> String {
        of_host(&self.name, host)
    }

    /// The name of the switches' network namespace.
    pub fn switch_name(&self) -> String {
        of_switch(&self.name)
    }

    /// The rack of a host.
    pub fn rack_of(&self, host: u32) -> u32 {
        self.settings.rack_of(host)
    }

    /// What has crossed the uplinks so far, by rack; nothing where there is one rack only.
    ///
    /// Errors: the lab is gone.
    pub fn uplink_bytes(&self) -> Result<Vec<UplinkBytes>, Error> {
        if self.settings.racks == 1 {
            return Ok(Vec::new());
        }
        let switch = of_switch(&self.name);
        let bytes = shaped_bytes(&switch)?;
        let of = |device: String| found(&bytes, &device, &switch);
        let uplink = |rack| {
            Ok(UplinkBytes {
                leaving: of(make::leaving(rack))?,
                entering: of(make::entering(rack))?,
            })
        };
        (0..self.settings.racks).map(uplink).collect()
    }

    /// What each host's link has carried towards the switch so far, by number: bytes of Ethernet
    /// frames.
    ///
    /// Errors: the lab is gone.
    pub fn sent_bytes(&self) -> Result<Vec<u64>, Error> {
        let sent = |host| {
            let name = self.host_name(host);
            found(&shaped_bytes(&name)?, make::HOST_DEVICE, &name)
        };
        (0..self.settings.hosts).map(sent).collect()
    }
}

/// What the shapers of a namespace have let through, by device.
fn shaped_bytes(namespace: &str) -> Result<BTreeMap<String, u64>, Error> {
    #[derive(Deserialize)]
    struct Shaper {
        dev: String,
        bytes: u64,
        root: Option<bool>,
    }
    let text = command::output("tc", &["-n", namespace, "-s", "-j", "qdisc", "show"])?;
    let shapers: Vec<Shaper> = serde_json::from_slice(&text)
        .map_err(|error| Error::Failed(format!("cannot parse the output of tc: {error}")))?;
    let shapers = shapers.into_iter().filter(|shaper| shaper.root == Some(true));
    Ok(shapers.map(|shaper| (shaper.dev, shaper.bytes)).collect())
}

fn found(bytes: &BTreeMap<String, u64>, device: &str, namespace: &str) -> Result<u64, Error> {
    let found = bytes.get(device).copied();
    found.ok_or_else(|| Error::Failed(format!("there is no {device} in {namespace}")))
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.is_temporary {
            // An error cannot be returned here; the next lab removes what is left.
            let _ = Lock::take().and_then(|lock| remove(&lock, &self.name));
        }
    }
}

/// Removes a lab that stays, whole or not, and ends all processes on its hosts. Answers how many
/// there were.
///
/// Errors: not root; there is none.
pub fn down(name: &str) -> Result<usize, Error> {
    check_name(name)?;
    need_root()?;
    let lock = Lock::take()?;
    if !state::names()?.iter().any(|one| one == name) && namespaces::of_lab(name)?.is_empty() {
        return Err(Error::Failed(format!("there is no lab {name}; see `rdmc-lab list`")));
    }
    remove(&lock, name)
}

/// Removes all labs that stay, and what processes that were killed have left. Answers their names.
///
/// Errors: not root.
pub fn down_all() -> Result<Vec<String>, Error> {
    need_root()?;
    let lock = Lock::take()?;
    let all = list()?.into_iter().filter(|lab| lab.condition != Condition::Temporary);
    let names: Vec<String> = all.map(|lab| lab.name).collect();
    names.iter().try_for_each(|name| remove(&lock, name).map(drop))?;
    Ok(names)
}

/// All labs on this machine, by name. Errors: the directories cannot be read.
pub fn list() -> Result<Vec<Listed>, Error> {
    let mut found = namespaces::all()?;
    let recorded = state::names()?;
    for name in &recorded {
        found.entry(name.clone()).or_default();
    }
    let listed = |(name, namespaces): (String, Vec<String>)| {
        // A lab whose file cannot be read has to be removed, so it is listed.
        let settings = state::read(&name).ok().flatten();
        let namespaces = namespaces.len();
        let condition = match &settings {
            Some(settings) if namespaces == namespaces_of(settings) => Condition::Whole,
            _ if recorded.contains(&name) => Condition::Damaged,
            _ if is_abandoned(&name) => Condition::Abandoned,
            _ if name.starts_with(TEMPORARY) => Condition::Temporary,
            _ => Condition::Incomplete,
        };
        Listed { name, condition, namespaces, settings }
    };
    Ok(found.into_iter().map(listed).collect())
}

fn make_or_remove(
    lock: &Lock,
    name: &str,
    settings: &LabSettings,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let stays = !name.starts_with(TEMPORARY);
    make::make(lock, name, settings, stop)
        .and_then(|()| if stays { state::write(name, settings) } else { Ok(()) })
        .inspect_err(|_| {
            // The first error is reported; one of removing would follow from it.
            let _ = remove(lock, name);
        })
}

fn remove(lock: &Lock, name: &str) -> Result<usize, Error> {
    state::remove(name)?;
    namespaces::remove(lock, &namespaces::of_lab(name)?)
}

fn namespaces_of(settings: &LabSettings) -> usize {
    settings.hosts as usize + 1
}

/// Whether it is a temporary lab of a process that is gone.
fn is_abandoned(lab: &str) -> bool {
    lab.strip_prefix(TEMPORARY).is_some_and(|rest| {
        let owner = rest.split('-').next().unwrap_or_default();
        !Path::new("/proc").join(owner).exists()
    })
}

fn need_root() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Failed("network namespaces need root: run this as root, or with sudo".into()))
}

fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_good = (1..=NAME_LENGTH_MAX).contains(&name.len()) && name.chars().all(allowed);
    if !is_good || name.starts_with('-') {
        let rule = format!("lower-case letters, digits and -, at most {NAME_LENGTH_MAX}");
        return Err(Error::Usage(format!("\"{name}\" is not a name for a lab: {rule}")));
    }
    if name.starts_with(TEMPORARY) {
        let why = "those of benchmarks start like this";
        return Err(Error::Usage(format!("\"{name}\" is not a name for a lab: {why}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["lab", "a", "3", "my-lab-2", &"x".repeat(32)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "-a", "Lab", "a b", "a/b", "..", "ä", "bench-1", &"x".repeat(33)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn temporary_labs_belong_to_a_process() {
        assert!(!is_abandoned(&format!("{TEMPORARY}{}-0", process::id())));
        assert!(is_abandoned(&format!("{TEMPORARY}{}-0", u32::MAX)));
        assert!(!is_abandoned("lab"));
    }
}
