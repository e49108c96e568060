//! Directories of few large and of many small files to hosts of a lab: `rdmc push` beside rsync, to one host and to all at once.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSettings, Link, Rate};
use plan::size;
use serde_json::{Value, json};

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    push_command::PushFiles,
    random::Random,
    report::{Cell, Output, Report, median, number},
    running::Running,
    sweep::alternate,
};

/// Ports of receivers, and of rsync's daemons.
const PORT: u16 = 7000;
const RSYNC_PORT: u16 = 8730;
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// For one run.
const TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Receivers, each on a host of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=32))]
    receivers: u32,
    /// Rate of the links, of TCP payload
    #[arg(long, default_value = "250mbit")]
    rate: Rate,
    /// Length of the one file, and of all large files together
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    bytes: u64,
    /// Number of large files
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    large: u32,
    /// Number of small files
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    small: u32,
    /// Length of each small file
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "4KiB")]
    small_bytes: u64,
    /// How often each is measured, alternating; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Where sources and copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// What is copied.
struct Source {
    name: &'static str,
    path: PathBuf,
    files: u32,
    bytes: u64,
}

/// How it is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Rdmc,
    /// A process for each host, all at the same time.
    RsyncToAll,
    RsyncToOne,
}

impl Way {
    const ALL: [Self; 3] = [Self::Rdmc, Self::RsyncToAll, Self::RsyncToOne];

    fn name(self) -> &'static str {
        match self {
            Self::Rdmc => "rdmc push",
            Self::RsyncToAll => "rsync to all at once",
            Self::RsyncToOne => "rsync to one host",
        }
    }
}

/// One run, and the same again, when all is there.
struct Run {
    seconds: f64,
    again_seconds: f64,
    /// Peak resident memory of the root, and of the largest receiver; only of `rdmc push`.
    root_bytes: Option<u64>,
    receiver_bytes: Option<u64>,
}

/// Measures and prints. Errors: not root; no rsync; a copy that was not made.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let files = PushFiles::create(&args.directory, args.bytes, 1, &interrupt)?;
    let sources = make_sources(args, &files, &interrupt)?;
    let site = Site::set_up(args, &files, &interrupt)?;
    let what = format!(
        "files to {} hosts over links of {}, from start to end of the command, in {}",
        args.receivers,
        args.rate,
        args.directory.display()
    );
    let mut report = Report::new("trees", what);
    for source in &sources {
        let runs = alternate(Way::ALL.len(), args.repeats, source.name, |index| {
            site.measure(Way::ALL[index], source, &interrupt)
        })?;
        for (way, runs) in Way::ALL.into_iter().zip(&runs) {
            report.row(row(source, way, runs));
        }
    }
    report.note("Again: the same command once more, when all is there.");
    report.print(&args.output);
    Ok(())
}

fn row(source: &Source, way: Way, runs: &[Run]) -> Vec<Cell> {
    let of = |value: fn(&Run) -> f64| median(runs.iter().map(value).collect());
    let seconds = of(|run| run.seconds);
    let most = |value: fn(&Run) -> Option<u64>| {
        let most = runs.iter().filter_map(value).max();
        most.map_or(Value::Null, |bytes| json!(bytes >> 20))
    };
    vec![
        ("what", json!(source.name)),
        ("files", json!(source.files)),
        ("MiB", number(source.bytes as f64 / f64::from(1 << 20))),
        ("way", json!(way.name())),
        ("s", number(seconds)),
        ("Mbit/s to each", number(source.bytes as f64 * 8e-6 / seconds)),
        ("again s", number(of(|run| run.again_seconds))),
        ("root MiB", most(|run| run.root_bytes)),
        ("receiver MiB", most(|run| run.receiver_bytes)),
    ]
}

fn make_sources(args: &Args, files: &PushFiles, interrupt: &Interrupt) -> Outcome<Vec<Source>> {
    let at = |name: &str| files.directory().join(name);
    let each = (args.bytes / u64::from(args.large)).max(1);
    make_files(&at("large"), args.large, each, interrupt)?;
    make_files(&at("small"), args.small, args.small_bytes, interrupt)?;
    let source = |name, path, files, bytes| Source { name, path, files, bytes };
    Ok(vec![
        source("one file", files.object.clone(), 1, args.bytes),
        source("large files", at("large"), args.large, each * u64::from(args.large)),
        source("small files", at("small"), args.small, u64::from(args.small) * args.small_bytes),
    ])
}

/// Files of this length, a thousand in each directory.
fn make_files(top: &Path, count: u32, bytes: u64, interrupt: &Interrupt) -> Outcome<()> {
    let mut random = Random::new(u64::from(count));
    let mut contents = vec![0; usize::try_from(bytes)?];
    for number in 0..count {
        let directory = top.join((number / 1000).to_string());
        if number % 1000 == 0 {
            interrupt.check()?;
            fs::create_dir_all(&directory)?;
        }
        for word in contents.chunks_mut(8) {
            word.copy_from_slice(&random.bits().to_le_bytes()[..word.len()]);
        }
        File::create(directory.join(number.to_string()))?.write_all(&contents)?;
    }
    Ok(())
}

/// A lab whose hosts but the first have a receiver and rsync's daemon; gone when dropped.
struct Site<'a> {
    /// Dropped before their network.
    running: Vec<Running>,
    lab: Lab,
    files: &'a PushFiles,
    secret: PathBuf,
}

impl<'a> Site<'a> {
    fn set_up(args: &Args, files: &'a PushFiles, interrupt: &Interrupt) -> Outcome<Self> {
        let link = Link::of_rate(args.rate);
        let lab = Lab::create(&LabSettings::new(args.receivers + 1, link))?;
        let secret = files.directory().join("secret");
        let mut made = Command::new(&files.rdmc);
        let made = made.arg("secret").env("RDMC_CONFIG", "/dev/null").output()?;
        write_private(&secret, &made.stdout)?;
        let mut site = Self { running: Vec::new(), lab, files, secret };
        for (number, host) in site.lab.hosts().iter().enumerate().skip(1) {
            fs::create_dir(site.directory_of(number))?;
            site.start_receiver(number, host, interrupt)?;
            site.start_rsync(number, host, interrupt)?;
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
        let started = Running::start(&mut command);
        let missing = |error| format!("rsync cannot be started ({error}); install it");
        self.running.push(started.map_err(missing)?);
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

    /// Copies to empty hosts, and once more.
    fn measure(&self, way: Way, source: &Source, interrupt: &Interrupt) -> Outcome<Run> {
        let receivers = self.lab.settings().hosts as usize;
        for host in 1..receivers {
            fs::remove_dir_all(self.directory_of(host))?;
            fs::create_dir(self.directory_of(host))?;
        }
        let (seconds, summary) = self.copy(way, source, interrupt)?;
        let checked = if way == Way::RsyncToOne { 2 } else { receivers };
        for host in 1..checked {
            self.check(host, source)?;
        }
        let (again_seconds, _) = self.copy(way, source, interrupt)?;
        let of_receivers = summary["hosts"].as_array().into_iter().flatten();
        let receiver_bytes = of_receivers.filter_map(|host| host["peak_resident_bytes"].as_u64());
        Ok(Run {
            seconds,
            again_seconds,
            root_bytes: summary["peak_resident_bytes"].as_u64(),
            receiver_bytes: receiver_bytes.max(),
        })
    }

    /// Seconds, and the summary of `rdmc push`.
    fn copy(&self, way: Way, source: &Source, interrupt: &Interrupt) -> Outcome<(f64, Value)> {
        let hosts = self.lab.hosts();
        let start = Instant::now();
        let mut commands = match way {
            Way::Rdmc => vec![self.push(&hosts, source)],
            Way::RsyncToAll => hosts[1..].iter().map(|to| rsync(&hosts[0], to, source)).collect(),
            Way::RsyncToOne => vec![rsync(&hosts[0], &hosts[1], source)],
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
        let seconds = start.elapsed().as_secs_f64();
        Ok((seconds, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    fn push(&self, hosts: &[Host], source: &Source) -> Command {
        let to: Vec<String> =
            hosts[1..].iter().map(|host| format!("{}:{PORT}", host.address)).collect();
        let mut command = hosts[0].command(&self.files.rdmc);
        command.arg("push").arg(&source.path).args(["--json", "--to", &to.join(",")]);
        command.arg("--secret-file").arg(&self.secret);
        command.env("RDMC_CONFIG", "/dev/null").env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }

    /// Errors: a host has not as many files, or not as many bytes.
    fn check(&self, host: usize, source: &Source) -> Outcome<()> {
        let name = source.path.file_name().unwrap_or_default();
        let found = count(&self.directory_of(host).join(name))?;
        if found == (u64::from(source.files), source.bytes) {
            return Ok(());
        }
        Err(format!("host {host} has {found:?} files and bytes of {}", source.name).into())
    }
}

fn rsync(from: &Host, to: &Host, source: &Source) -> Command {
    let mut command = from.command("rsync");
    command.args(["--archive", "--whole-file"]).arg(&source.path);
    command.arg(format!("rsync://{}:{RSYNC_PORT}/copy/", to.address));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// Files and bytes below a path.
fn count(path: &Path) -> Outcome<(u64, u64)> {
    if !path.is_dir() {
        return Ok((1, fs::metadata(path)?.len()));
    }
    let mut all = (0, 0);
    for entry in fs::read_dir(path)? {
        let (files, bytes) = count(&entry?.path())?;
        all = (all.0 + files, all.1 + bytes);
    }
    Ok(all)
}

fn write_private(path: &Path, contents: &[u8]) -> Outcome<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(contents)?)
}
