//! The hosts of a lab, with what listens there, and copies by each way.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSettings, Link};
use rustix::fs::syncfs;
use serde_json::Value;

use super::{chain::Chain, mpi::MpiFiles, source::Source, way::Way};
use crate::{interrupt::Interrupt, outcome::Outcome, push_command::PushFiles, running::Running};

/// Ports of receivers, and of rsync's daemons.
const PORT: u16 = 7000;
const RSYNC_PORT: u16 = 8730;
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// For one run.
const TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One run, and the same again, when all is there.
pub struct Run {
    /// Until copies are on disk.
    pub seconds: f64,
    /// Of ways that look at what hosts have.
    pub again_seconds: Option<f64>,
    /// What of it starting MPI's processes took.
    pub start_seconds: Option<f64>,
    /// Peak resident memory of the root, and of the largest receiver; only of `rdmc push`.
    pub root_bytes: Option<u64>,
    pub receiver_bytes: Option<u64>,
}

/// What a way says of itself.
#[derive(Default)]
struct Copied {
    /// The summary of `rdmc push`.
    summary: Value,
    start_seconds: Option<f64>,
}

/// A lab whose hosts but the first have what the ways need; gone when dropped.
pub struct Site<'a> {
    /// Dropped before their network.
    running: Vec<Running>,
    mpi: Option<MpiFiles>,
    lab: Lab,
    files: &'a PushFiles,
    secret: PathBuf,
}

impl<'a> Site<'a> {
    /// Makes the lab. Errors: not root; what does not start.
    pub fn set_up(
        (receivers, link): (u32, Link),
        ways: &[Way],
        files: &'a PushFiles,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let lab = Lab::create(&LabSettings::new(receivers + 1, link))?;
        let secret = files.directory().join("secret");
        let mut made = Command::new(&files.rdmc);
        let made = made.arg("secret").env("RDMC_CONFIG", "/dev/null").output()?;
        write_private(&secret, &made.stdout)?;
        let uses_mpi = ways.contains(&Way::Mpi);
        let mpi = uses_mpi.then(|| MpiFiles::prepare(lab.hosts(), link)).transpose()?;
        let mut site = Self { running: Vec::new(), mpi, lab, files, secret };
        for (number, host) in site.lab.hosts().iter().enumerate().skip(1) {
            fs::create_dir(site.directory_of(number))?;
            if ways.contains(&Way::Rdmc) {
                site.start_receiver(number, host, interrupt)?;
            }
            if ways.iter().any(|way| way.is_rsync()) {
                site.start_rsync(number, host, interrupt)?;
            }
        }
        Ok(site)
    }

    fn directory_of(&self, host: usize) -> PathBuf {
        self.files.directory().join(format!("host-{host}"))
    }

    fn start_receiver(&mut self, number: usize, host: &Host, interrupt: &Interrupt) -> Outcome<()> {
        let log = self.files.directory().join(format!("log-{number}"));
        let mut command = host.command(&self.files.rdmc);
        command.args(["receive", "--listen", &format!("{}:{PORT}", host.address)]);
        command.arg("--secret-file").arg(&self.secret).arg("--dir").arg(self.directory_of(number));
        command.env("RDMC_CONFIG", "/dev/null").env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        self.running.push(Running::start(&mut command)?);
        let until = Instant::now() + START_TIMEOUT;
        while !fs::read_to_string(&log)?.contains("listening on") {
            if Instant::now() > until {
                return Err(format!("a receiver does not listen: {}", log.display()).into());
            }
            interrupt.check()?;
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn start_rsync(&mut self, number: usize, host: &Host, interrupt: &Interrupt) -> Outcome<()> {
        let config = self.files.directory().join(format!("rsync-{number}.conf"));
        let path = self.directory_of(number);
        let text = format!(
            "use chroot = no\nuid = 0\ngid = 0\n[copy]\npath = {}\nread only = no\n",
            path.display()
        );
        fs::write(&config, text)?;
        let mut command = host.command("rsync");
        command.args(["--daemon", "--no-detach", &format!("--address={}", host.address)]);
        command.arg(format!("--port={RSYNC_PORT}")).arg("--config").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.running.push(Running::start(&mut command)?);
        let until = Instant::now() + START_TIMEOUT;
        let mut asked = self.lab.hosts()[0].command("rsync");
        asked.arg(format!("rsync://{}:{RSYNC_PORT}/", host.address));
        asked.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        while !asked.status()?.success() {
            if Instant::now() > until {
                return Err("rsync's daemon does not listen".into());
            }
            interrupt.check()?;
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Copies to empty hosts, and once more. Errors: those of the way; a copy that differs.
    pub fn measure(&self, way: Way, source: &Source, interrupt: &Interrupt) -> Outcome<Run> {
        for host in 1..self.lab.settings().hosts as usize {
            fs::remove_dir_all(self.directory_of(host))?;
            fs::create_dir(self.directory_of(host))?;
        }
        // What was written and removed before does not count.
        self.write_to_disk()?;
        source.forget()?;
        let (seconds, copied) = self.copy(way, source, interrupt)?;
        let last = way.copies(self.lab.settings().hosts - 1) as usize;
        for host in 1..=last {
            source.check_count(&self.directory_of(host))?;
        }
        source.check_contents(&self.directory_of(last))?;
        let again = way.can_repeat().then(|| self.copy(way, source, interrupt)).transpose()?;
        let summary = &copied.summary;
        let of_receivers = summary["hosts"].as_array().into_iter().flatten();
        let receiver_bytes = of_receivers.filter_map(|host| host["peak_resident_bytes"].as_u64());
        Ok(Run {
            seconds,
            again_seconds: again.map(|(seconds, _)| seconds),
            start_seconds: copied.start_seconds,
            root_bytes: summary["peak_resident_bytes"].as_u64(),
            receiver_bytes: receiver_bytes.max(),
        })
    }

    /// Seconds until all copies are on disk. What hosts of a chain start before does not count.
    fn copy(&self, way: Way, source: &Source, interrupt: &Interrupt) -> Outcome<(f64, Copied)> {
        let hosts = self.lab.hosts();
        let directory = self.files.directory();
        let mut chain = (way == Way::Tar)
            .then(|| {
                let directory_of = |host| self.directory_of(host);
                Chain::start(&hosts, source, directory_of, directory, interrupt)
            })
            .transpose()?;
        let start = Instant::now();
        let copied = match (&mut chain, &self.mpi) {
            (Some(chain), _) => chain.copy(TIMEOUT, interrupt).map(|()| Copied::default())?,
            (None, Some(mpi)) if way == Way::Mpi => {
                let prefix = directory.join("host-");
                let start_seconds = mpi.copy(&source.path, &prefix, TIMEOUT, interrupt)?;
                Copied { start_seconds: Some(start_seconds), ..Copied::default() }
            }
            _ => self.copy_by_commands(way, source, interrupt)?,
        };
        if !way.writes_to_disk() {
            self.write_to_disk()?;
        }
        Ok((start.elapsed().as_secs_f64(), copied))
    }

    fn copy_by_commands(
        &self,
        way: Way,
        source: &Source,
        interrupt: &Interrupt,
    ) -> Outcome<Copied> {
        let hosts = self.lab.hosts();
        let (root, receivers) = hosts.split_first().ok_or("a lab has a host")?;
        let receivers = &receivers[..way.copies(u32::try_from(receivers.len())?) as usize];
        let mut commands = match way {
            Way::Rdmc => vec![self.push(root, receivers, source)],
            _ => receivers.iter().map(|to| rsync(root, to, source)).collect(),
        };
        let mut running = Vec::new();
        for command in &mut commands {
            running.push(Running::start(command)?);
        }
        let mut text = String::new();
        for process in &mut running {
            let status = process.wait(POLL_INTERVAL, TIMEOUT, interrupt, |_| Ok(()))?;
            if !status.success() {
                return Err(format!("{} of {}: {status}", way.name(), source.name).into());
            }
            text += &process.output()?;
        }
        let summary = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Copied { summary, start_seconds: None })
    }

    /// All hosts have one file system.
    fn write_to_disk(&self) -> Outcome<()> {
        Ok(syncfs(File::open(self.files.directory())?)?)
    }

    fn push(&self, root: &Host, receivers: &[Host], source: &Source) -> Command {
        let to: Vec<String> =
            receivers.iter().map(|host| format!("{}:{PORT}", host.address)).collect();
        let mut command = root.command(&self.files.rdmc);
        command.arg("push").arg(&source.path).args(["--json", "--to", &to.join(",")]);
        command.arg("--secret-file").arg(&self.secret);
        command.envs([("RDMC_CONFIG", "/dev/null"), ("RDMC_PROGRESS", "none")]);
        command.env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }
}

fn rsync(from: &Host, to: &Host, source: &Source) -> Command {
    let mut command = from.command("rsync");
    command.args(["--archive", "--whole-file"]).arg(&source.path);
    command.arg(format!("rsync://{}:{RSYNC_PORT}/copy/", to.address));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

fn write_private(path: &Path, contents: &[u8]) -> Outcome<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(contents)?)
}
