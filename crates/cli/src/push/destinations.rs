//! Hosts of a push, and the paths of their copies.

use std::path::{Path, PathBuf};

use files::{Admission, HostPlan, PushSettings};

use super::{
    args::Args,
    sources::{Sources, absolute, text_of},
};
use crate::{
    failure::Failure,
    hosting::{local_name, named, plan},
    hosts::Host,
    slurm,
    this_machine::ThisMachine,
};

/// The hosts that the arguments name, with their destinations.
pub fn hosts(args: &Args, sources: &Sources) -> Result<Vec<HostPlan>, Failure> {
    args.dest.as_deref().map_or(Ok(()), check_home)?;
    args.dest.as_deref().map_or(Ok(()), check_placeholders)?;
    if let Some(count) = args.local {
        let dest = &local_dest(args, sources);
        if count > 1 && !dest.contains("{host}") {
            return Err(Failure::Usage(format!(
                "all receivers of --local would write \"{dest}\"; put {{host}} into --dest"
            )));
        }
        return local_copies(sources, usize::from(count), dest);
    }
    let hosts = match args.slurm {
        true => slurm::hosts()?,
        false => named(args.to.as_deref(), args.hosts_file.as_ref())?,
    };
    hosts
        .into_iter()
        .map(|host| {
            if args.pipe_to.is_some() && host.listens {
                return Err(Failure::Usage(format!(
                    "{} listens, and receivers that listen run no commands; use `rdmc receive --stdout` there instead of \
                     --pipe-to",
                    host.name
                )));
            }
            if let Some(dest) = args.dest.as_deref().filter(|_| host.listens) {
                refuse_home(dest, &host.name)?;
            }
            let dest = match &args.dest {
                // Nothing is written.
                None if args.pipe_to.is_some() => String::new(),
                Some(dest) => sources.named(dest.replace("{host}", &host.name))?,
                None if host.listens => sources.name_below()?.to_owned(),
                None => sources.same_path()?,
            };
            Ok(plan(host, dest))
        })
        .collect()
}

/// Checks that a destination is not in the home directory of a named user.
fn check_home(dest: &str) -> Result<(), Failure> {
    let user = dest.strip_prefix('~').map(|rest| rest.split('/').next().unwrap_or_default());
    match user {
        None | Some("") => Ok(()),
        Some(_) => Err(Failure::Usage(format!(
            "--dest {dest}: only ~/ is supported, for the home directory of the receiver's user; write the whole path, or ./~ \
             for a name that begins with ~"
        ))),
    }
}

/// Checks placeholders: a word in braces other than `{host}` would become part of a directory's name.
fn check_placeholders(dest: &str) -> Result<(), Failure> {
    let is_wrong = |word: &&str| {
        *word != "host"
            && !word.is_empty()
            && word.chars().all(|letter| letter.is_ascii_alphabetic())
    };
    let words = dest.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    match words.into_iter().find(is_wrong) {
        None => Ok(()),
        Some(word) => Err(Failure::Usage(format!(
            "--dest {dest}: {{{word}}} is not known; {{host}} stands for the host's name, and names with other words in braces \
             are not supported"
        ))),
    }
}

/// Refuses the home directory at a host whose receiver has its own directory.
fn refuse_home(dest: &str, host: &str) -> Result<(), Failure> {
    if !dest.starts_with('~') {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--dest {dest}: ~/ is for receivers that this push starts; {host} writes below its own --dir: give a path relative to \
         that"
    )))
}

/// The `--dest` of receivers on this machine.
fn local_dest(args: &Args, sources: &Sources) -> String {
    let dest = args.dest.as_deref().unwrap_or(sources.local_default());
    let home = std::env::home_dir().filter(|_| dest == "~" || dest.starts_with("~/"));
    match home {
        Some(home) => format!("{}{}", home.display(), &dest[1..]),
        None => dest.to_owned(),
    }
}

/// The directory of all copies of `--local`: these are not part of the source.
pub fn local_copies_root(args: &Args, sources: &Sources) -> Option<PathBuf> {
    args.local?;
    let dest = local_dest(args, sources);
    let parts = Path::new(&dest).components();
    let root: PathBuf =
        parts.take_while(|part| !part.as_os_str().to_string_lossy().contains("{host}")).collect();
    root.file_name()?;
    absolute(&root).ok()
}

/// Refuses `--delete` if it would remove files of a source on this machine: a copy is in the source, or the source in a copy.
pub fn refuse_overlap(args: &Args, hosts: &[HostPlan]) -> Result<(), Failure> {
    let is_checked = args.delete && args.local.is_some() && args.dest.is_some();
    for host in hosts.iter().filter(|_| is_checked) {
        let copy = resolved(Path::new(&host.destination));
        for source in args.sources.iter().map(|source| resolved(source)) {
            if copy.starts_with(&source) || source.starts_with(&copy) {
                return Err(Failure::Usage(format!(
                    "--delete would remove files of the source {}: it overlaps with the copy of {}, {}; choose another --dest",
                    source.display(),
                    host.name,
                    copy.display()
                )));
            }
        }
    }
    Ok(())
}

/// The path without links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let real = |ancestor: &Path| {
        let below = path.strip_prefix(ancestor).ok()?;
        Some(ancestor.canonicalize().ok()?.join(below))
    };
    path.ancestors().find_map(real).unwrap_or_else(|| path.to_owned())
}

/// Admission of hosts that join, and the path of their copies.
pub fn admission(args: &Args, sources: &Sources) -> Result<Option<Admission>, Failure> {
    let Some(listen) = args.admit else { return Ok(None) };
    args.dest.as_deref().map_or(Ok(()), |dest| refuse_home(dest, "one that joins"))?;
    let destination = match args.dest.as_deref() {
        // Joining receivers choose the directory.
        Some(dest) if !dest.starts_with('/') && !dest.ends_with('/') => {
            sources.named(dest.to_owned())?
        }
        _ => sources.name_below()?.to_owned(),
    };
    Ok(Some(Admission { listen, destination }))
}

/// Hosts `local-1` to `local-N` for copies of a file; `dest` as in `--dest`.
pub fn local_hosts(file: &Path, count: usize, dest: &str) -> Result<Vec<HostPlan>, Failure> {
    local_copies(&Sources::of_file(file), count, dest)
}

fn local_copies(sources: &Sources, count: usize, dest: &str) -> Result<Vec<HostPlan>, Failure> {
    (1..=count)
        .map(|number| {
            let name = local_name(number);
            let path = sources.named(dest.replace("{host}", &name))?;
            let path = absolute(Path::new(&path))?;
            Ok(plan(Host::named(name), text_of(&path)?.to_owned()))
        })
        .collect()
}

/// Removes this machine from the hosts, if it is one of them, and puts it into the rack in which it was named.
///
/// Errors: no other host is left.
pub fn exclude_this_machine(settings: &mut PushSettings, args: &Args) -> Result<(), Failure> {
    let names: Vec<&str> = settings.hosts.iter().map(|host| host.name.as_str()).collect();
    let Some(index) = ThisMachine::new().position(&names) else { return Ok(()) };
    let this = settings.hosts.remove(index);
    settings.root_rack = this.rack;
    if settings.hosts.is_empty() && args.admit.is_none() {
        return Err(Failure::Usage(format!(
            "the only host is {}, this machine, which --exclude-self excludes; name others",
            this.name
        )));
    }
    Ok(())
}

/// Puts this machine into the rack in which it was named, if it is one of the hosts.
pub fn find_own_rack(settings: &mut PushSettings) {
    if settings.hosts.iter().all(|host| host.rack == settings.root_rack) {
        return;
    }
    let names: Vec<&str> = settings.hosts.iter().map(|host| host.name.as_str()).collect();
    if let Some(index) = ThisMachine::new().position(&names) {
        settings.root_rack = settings.hosts[index].rack;
    }
}

/// Assigns this machine and the hosts, in order, to the racks of `--racks`; without it, those of a host file are kept.
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
