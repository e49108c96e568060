//! The network namespaces of labs: their names, the processes in them, and their end.
//!
//! Host 3 of the lab `lab` is the namespace `rdmc-lab-3`, and the switches are in
//! `rdmc-lab-switch`. The names determine the lab, also after a crash of the process that made it.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    process, thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, command, state::Lock};

/// Where iproute2 keeps its namespaces.
const DIRECTORY: &str = "/run/netns";
const PREFIX: &str = "rdmc-";
const SWITCH: &str = "switch";
/// Between SIGTERM and SIGKILL.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The namespace of a host.
pub fn of_host(lab: &str, host: u32) -> String {
    format!("{PREFIX}{lab}-{host}")
}

/// The namespace of a lab's switches.
pub fn of_switch(lab: &str) -> String {
    format!("{PREFIX}{lab}-{SWITCH}")
}

/// The lab that a namespace belongs to.
fn lab_of(namespace: &str) -> Option<&str> {
    let (lab, place) = namespace.strip_prefix(PREFIX)?.rsplit_once('-')?;
    (place == SWITCH || place.parse::<u32>().is_ok()).then_some(lab)
}

/// The namespaces that there are, by lab.
pub fn all() -> Result<BTreeMap<String, Vec<String>>, Error> {
    let mut labs = BTreeMap::<String, Vec<String>>::new();
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(labs),
        Err(error) => return Err(Error::while_doing(DIRECTORY)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(Error::while_doing(DIRECTORY))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(lab) = lab_of(&name) {
            labs.entry(lab.to_owned()).or_default().push(name);
        }
    }
    Ok(labs)
}

/// The namespaces of one lab, whole or not.
pub fn of_lab(lab: &str) -> Result<Vec<String>, Error> {
    Ok(all()?.remove(lab).unwrap_or_default())
}

/// Ends all processes in these namespaces but this one, and removes them. Links, addresses and
/// queues go with them. Answers how many processes were ended.
pub fn remove(lock: &Lock, names: &[String]) -> Result<usize, Error> {
    if names.is_empty() {
        return Ok(0);
    }
    let ended = end_processes(names);
    let lines: Vec<String> = names.iter().map(|name| format!("netns del {name}")).collect();
    command::batch(lock, "ip", None, &lines)?;
    Ok(ended)
}

/// Ends processes by SIGTERM, and after a while by SIGKILL.
fn end_processes(names: &[String]) -> usize {
    let mut running = processes_in(names);
    let ended = running.len();
    let signal = |running: &[Pid], signal| {
        // One that has ended meanwhile is no error.
        for &process in running {
            let _ = kill_process(process, signal);
        }
    };
    signal(&running, Signal::TERM);
    // A stopped process receives SIGTERM when it continues.
    signal(&running, Signal::CONT);
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while !running.is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
        running = processes_in(names);
    }
    signal(&running, Signal::KILL);
    ended
}

/// The processes whose network is one of these namespaces, but for this one.
fn processes_in(names: &[String]) -> Vec<Pid> {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let namespaces: Vec<_> =
        names.iter().filter_map(|name| identity(&Path::new(DIRECTORY).join(name))).collect();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&number| number.cast_unsigned() != process::id())
        .filter(|number| {
            identity(Path::new(&format!("/proc/{number}/ns/net")))
                .is_some_and(|own| namespaces.contains(&own))
        })
        .filter_map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_determine_the_lab() {
        for lab in ["lab", "a-3", "switch", "bench-17"] {
            assert_eq!(lab_of(&of_host(lab, 12)), Some(lab));
            assert_eq!(lab_of(&of_switch(lab)), Some(lab));
        }
        for other in ["rdmc-lab", "rdmc-lab-x", "rdmc-lab-", "lab-3", "rdmc--switch-x"] {
            assert_eq!(lab_of(other), None, "{other}");
        }
    }
}
