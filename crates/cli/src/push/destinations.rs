//! Hosts of a push, and the paths of their copies.

use std::path::{Path, PathBuf};

use files::{Admission, HostPlan, PushSettings};

use super::args::Args;
use crate::{
    failure::Failure,
    hosting::{local_name, named, plan},
    hosts::Host,
    slurm,
    this_machine::ThisMachine,
};

/// The hosts that the arguments name, with their destinations.
pub fn hosts(args: &Args) -> Result<Vec<HostPlan>, Failure> {
    if let Some(count) = args.local {
        let dest = args.dest.as_deref().unwrap_or("./rdmc-local/{host}/");
        if count > 1 && !dest.contains("{host}") {
            return Err(Failure::Usage(format!(
                "all receivers of --local would write \"{dest}\"; put {{host}} into --dest"
            )));
        }
        return local_hosts(&args.file, usize::from(count), dest);
    }
    let hosts = match args.slurm {
        true => slurm::hosts()?,
        false => named(args.to.as_deref(), args.hosts_file.as_ref())?,
    };
    hosts
        .into_iter()
        .map(|host| {
            let dest = match &args.dest {
                Some(dest) => filled(dest, &host.name, &args.file)?,
                None if host.listens => file_name(&args.file)?.to_owned(),
                None => text_of(&absolute(&args.file)?)?.to_owned(),
            };
            Ok(plan(host, dest))
        })
        .collect()
}

/// Admission of hosts that join, and the path of their copies.
pub fn admission(args: &Args) -> Result<Option<Admission>, Failure> {
    let Some(listen) = args.admit else { return Ok(None) };
    let destination = match args.dest.as_deref() {
        // Joining receivers choose the directory.
        Some(dest) if !dest.starts_with('/') && !dest.ends_with('/') => dest,
        _ => file_name(&args.file)?,
    };
    Ok(Some(Admission { listen, destination: destination.to_owned() }))
}

/// Hosts `local-1` to `local-N`; `dest` as in `--dest`.
pub fn local_hosts(file: &Path, count: usize, dest: &str) -> Result<Vec<HostPlan>, Failure> {
    (1..=count)
        .map(|number| {
            let name = local_name(number);
            let path = absolute(Path::new(&filled(dest, &name, file)?))?;
            Ok(plan(Host::named(name), text_of(&path)?.to_owned()))
        })
        .collect()
}

/// A destination with `{host}` replaced, and the file's name appended to a directory.
fn filled(dest: &str, host: &str, file: &Path) -> Result<String, Failure> {
    let path = dest.replace("{host}", host);
    Ok(if path.ends_with('/') { path + file_name(file)? } else { path })
}

fn file_name(file: &Path) -> Result<&str, Failure> {
    file.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Failure::Usage(format!(
            "the name of {} is not UTF-8; name the copy by --dest",
            file.display()
        ))
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(Failure::while_doing(path.display()))
}

fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::Usage(format!("the path {} is not UTF-8; name one by --dest", path.display()))
    })
}

/// Creates the default destinations' directories of `--local`.
pub fn make_local_directories(hosts: &[HostPlan]) -> Result<(), Failure> {
    for host in hosts {
        if let Some(directory) = Path::new(&host.destination).parent() {
            std::fs::create_dir_all(directory)
                .map_err(Failure::while_doing(format_args!("creating {}", directory.display())))?;
        }
    }
    Ok(())
}

/// Takes this machine out of the hosts, if it is one of them; its rack is the one in which it was named.
///
/// Errors: no other host is left.
pub fn exclude_this_machine(settings: &mut PushSettings, args: &Args) -> Result<(), Failure> {
    let names: Vec<&str> = settings.hosts.iter().map(|host| host.name.as_str()).collect();
    let Some(index) = ThisMachine::new().position(&names) else { return Ok(()) };
    let this = settings.hosts.remove(index);
    settings.root_rack = this.rack;
    if settings.hosts.is_empty() && args.admit.is_none() {
        return Err(Failure::Usage(format!(
            "the only host is {}, this machine, which --exclude-self leaves out; name others",
            this.name
        )));
    }
    Ok(())
}

/// Puts this machine into the rack in which it was named, if it is one of the hosts.
pub fn find_own_rack(settings: &mut PushSettings) {
    let names: Vec<&str> = settings.hosts.iter().map(|host| host.name.as_str()).collect();
    if let Some(index) = ThisMachine::new().position(&names) {
        settings.root_rack = settings.hosts[index].rack;
    }
}

/// Assigns this machine and the hosts, in order, to the racks of `--racks`; without it, those of a file of hosts stay.
pub fn put_into_racks(settings: &mut PushSettings, args: &Args) -> Result<(), Failure> {
    let members = settings.hosts.len() + 1;
    let Some(sizes) = &args.racks else {
        let has_racks = settings.hosts.iter().any(|host| host.rack != settings.root_rack);
        if let Some(algorithm) = args.transfer.needs_racks().filter(|_| !has_racks) {
            let (first, second) = (members.div_ceil(2), members / 2);
            return Err(Failure::Usage(format!(
                "{algorithm} needs racks; add for example --racks {first},{second}"
            )));
        }
        return Ok(());
    };
    let total: u64 = sizes.iter().copied().map(u64::from).sum();
    if total != members as u64 {
        return Err(Failure::Usage(format!(
            "--racks has {total} members, but this machine and the hosts are {members}; the sizes must add up to that"
        )));
    }
    let racks = (0..).zip(sizes);
    let mut racks = racks.flat_map(|(rack, &size)| std::iter::repeat_n(rack, size as usize));
    settings.root_rack = racks.next().unwrap_or(0);
    for (host, rack) in settings.hosts.iter_mut().zip(racks) {
        host.rack = rack;
    }
    Ok(())
}
