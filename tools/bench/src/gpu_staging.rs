//! Messages of a group of two on their way to a GPU: copied to it while they arrive, or afterwards.

use std::{
    net::Ipv4Addr,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use gpu::{Device, DeviceMemory, Driver, GroupStaging, Stream};
use plan::size;
use rdmc::{
    Algorithm, Context, ContextSettings, Group, GroupSettings, Protection, Region, Secret, Window,
};
use serde_json::json;

use crate::{
    contents,
    outcome::Outcome,
    report::{Output, Report, median, number},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Lengths of messages
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_nonzero,
          default_value = "1GiB,4GiB,16GiB")]
    sizes: Vec<u64>,
    /// How many streams copy to the GPU
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    streams: Vec<u32>,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "1MiB")]
    block: u64,
    /// Let messages arrive at this many Mbit/s, instead of as fast as loopback carries them
    #[arg(long, value_name = "MBIT")]
    rate: Option<u64>,
    /// The GPU, by CUDA's number
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: u32,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Begin nothing after this many seconds, and say what was left out
    #[arg(long, value_name = "S", default_value_t = 420)]
    limit_s: u64,
    /// A stand-in for the driver (libtesting_gpu.so), whose copies say nothing about GPUs: to try this program
    #[arg(long, value_name = "PATH")]
    stand_in: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Only a fault makes anything take so long.
const PATIENCE: Duration = Duration::from_secs(300);

/// How much is checked at three places of each message; a multiple of 8 bytes.
const CHECKED_BYTES: u64 = 1 << 20;

/// Memory of the host, by how the device reaches it.
const MEMORY: [&str; 2] = ["pinned", "pageable"];

/// Where a message was when.
struct Times {
    arrived_s: f64,
    on_device_s: f64,
}

/// What is measured with.
struct Bench<'a> {
    args: &'a Args,
    device: Device,
    stream: Stream,
    /// The root's, and the receiver's.
    groups: [Group; 2],
    begun: Instant,
    /// In every row.
    driver: String,
    left_out: u32,
}

pub fn run(args: &Args) -> Outcome<()> {
    let driver = match &args.stand_in {
        Some(path) => Driver::open_library(path)?,
        None => Driver::open()?,
    };
    let infos = driver.devices()?;
    let device = Device::open(&driver, args.device)?;
    let name = infos.get(args.device as usize).map_or("?", |info| info.name.as_str());
    let (major, minor) = driver.version()?;
    let driver = match args.stand_in {
        Some(_) => "STAND-IN, no GPU".to_owned(),
        None => format!("{name}, CUDA {major}.{minor}"),
    };
    let arrival = args.rate.map_or("over loopback".to_owned(), |mbit| format!("at {mbit} Mbit/s"));
    let what = format!(
        "messages that arrive {arrival} in memory of the host, blocks of {}, and go up to a device ({driver}); median of {}",
        size::show(args.block),
        args.repeats
    );
    let contexts = contexts(args)?;
    let mut bench = Bench {
        stream: Stream::new(&device)?,
        groups: groups(&contexts, args.block)?,
        begun: Instant::now(),
        args,
        device,
        driver,
        left_out: 0,
    };
    let mut report = Report::new("gpu", what);
    for &bytes in &args.sizes {
        bench.copies(bytes, &mut report)?;
    }
    report.table("arrival", "From the send to the end of the last copy:");
    for &bytes in &args.sizes {
        bench.arrivals(bytes, &mut report)?;
    }
    report.note(
        "arrived: all of the message is in the host's memory. on device: the last copy has ended. while: each block is copied \
         when it has arrived; after: all when the last has arrived. Members share this host's cores.",
    );
    if bench.left_out > 0 {
        let (limit_s, left_out) = (args.limit_s, bench.left_out);
        report.note(format!("{left_out} rows were not measured within {limit_s} s (--limit-s)."));
    }
    let [root, receiver] = &bench.groups;
    thread::scope(|scope| {
        let closing = scope.spawn(|| receiver.close(PATIENCE));
        root.close(PATIENCE)?;
        closing.join().map_err(|_| "closing a group has panicked")??;
        Outcome::Ok(())
    })?;
    report.print(&args.output);
    Ok(())
}

fn contexts(args: &Args) -> Outcome<[Context; 2]> {
    let secret = Secret::random()?;
    let rate = args.rate.map(|mbit| mbit.saturating_mul(1_000_000 / 8));
    let start = || {
        let settings = ContextSettings::new((Ipv4Addr::LOCALHOST, 0).into(), secret.clone());
        Context::start(settings.protection(Protection::None).rate_max(rate))
    };
    Ok([start()?, start()?])
}

fn groups(contexts: &[Context; 2], block_bytes: u64) -> Outcome<[Group; 2]> {
    let members: Vec<_> = contexts.iter().map(Context::address).collect();
    let settings = |rank| {
        let settings = GroupSettings::new(1, members.clone(), rank)
            .schedule(Algorithm::BinomialPipeline)
            .block_bytes(block_bytes)
            .window(Window::default());
        // Only memory that is posted.
        settings.small(None).receive_bytes_max(0)
    };
    thread::scope(|scope| {
        let receiver = scope.spawn(|| contexts[1].create_group(settings(1)));
        let root = contexts[0].create_group(settings(0))?;
        Ok([root, receiver.join().map_err(|_| "creating a group has panicked")??])
    })
}

impl Bench<'_> {
    /// Allocates memory of the host, and has all of its pages made.
    fn host_memory(&self, kind: &str, bytes: u64) -> Outcome<Region> {
        let region = match kind {
            "pinned" => gpu::pinned(&self.device, bytes)?,
            _ => Region::allocate(bytes)?,
        };
        region.write(0..region.len())?.fill(1);
        Ok(region)
    }

    fn is_late(&mut self) -> bool {
        let is_late = self.begun.elapsed() >= Duration::from_secs(self.args.limit_s);
        self.left_out += u32::from(is_late);
        is_late
    }

    /// Copies alone, without a network.
    fn copies(&mut self, bytes: u64, report: &mut Report) -> Outcome<()> {
        let memory = DeviceMemory::allocate(&self.device, bytes)?;
        for kind in MEMORY {
            let region = self.host_memory(kind, bytes)?;
            for (index, &streams) in self.args.streams.iter().enumerate() {
                // Copies of memory that is not pinned wait for each other.
                if (kind == "pageable" && index > 0) || self.is_late() {
                    continue;
                }
                let staging = GroupStaging::new(&self.device, streams)?;
                let once = |_| {
                    let start = Instant::now();
                    staging.upload(&region, &memory, &self.stream, PATIENCE)?.wait(PATIENCE)?;
                    Outcome::Ok(start.elapsed().as_secs_f64())
                };
                let up_s = median((0..self.args.repeats).map(once).collect::<Outcome<_>>()?);
                let down_s = self.down(&memory, &region)?;
                report.row([
                    ("driver", json!(self.driver)),
                    ("length", json!(size::show(bytes))),
                    ("memory", json!(kind)),
                    ("streams", json!(streams)),
                    ("up_s", number(up_s)),
                    ("up_gb_per_s", number(bytes as f64 / up_s / 1e9)),
                    ("down_gb_per_s", number(bytes as f64 / down_s / 1e9)),
                ]);
            }
        }
        Ok(())
    }

    /// Returns the time of one copy from the device.
    fn down(&self, memory: &DeviceMemory, region: &Region) -> Outcome<f64> {
        let start = Instant::now();
        let lease = region.write(0..region.len())?;
        drop(gpu::download(&self.stream, memory, lease)?.into_lease(PATIENCE)?);
        Ok(start.elapsed().as_secs_f64())
    }

    /// Messages of one length, in every way.
    fn arrivals(&mut self, bytes: u64, report: &mut Report) -> Outcome<()> {
        let source = Region::allocate(bytes)?;
        contents::fill(&mut source.write(0..source.len())?, contents::seed(1, bytes));
        let memory = DeviceMemory::allocate(&self.device, bytes)?;
        for kind in MEMORY {
            let region = self.host_memory(kind, bytes)?;
            for (index, &streams) in self.args.streams.iter().enumerate() {
                if kind == "pageable" && index > 0 {
                    continue;
                }
                let staging = GroupStaging::new(&self.device, streams)?;
                for is_overlapped in [true, false] {
                    if self.is_late() {
                        continue;
                    }
                    let once = |_| self.once(&staging, &source, &region, &memory, is_overlapped);
                    let times = (0..self.args.repeats).map(once).collect::<Outcome<Vec<_>>>()?;
                    let of = |time: fn(&Times) -> f64| median(times.iter().map(time).collect());
                    let (arrived_s, on_device_s) =
                        (of(|times| times.arrived_s), of(|times| times.on_device_s));
                    report.row([
                        ("driver", json!(self.driver)),
                        ("length", json!(size::show(bytes))),
                        ("memory", json!(kind)),
                        ("streams", json!(streams)),
                        ("copied", json!(if is_overlapped { "while" } else { "after" })),
                        ("arrived_s", number(arrived_s)),
                        ("on_device_s", number(on_device_s)),
                        ("gb_per_s", number(bytes as f64 / on_device_s / 1e9)),
                    ]);
                }
            }
        }
        Ok(())
    }

    /// Sends one message, and checks parts of it on the device.
    fn once(
        &self,
        staging: &GroupStaging,
        source: &Region,
        region: &Region,
        memory: &DeviceMemory,
        is_overlapped: bool,
    ) -> Outcome<Times> {
        let [root, receiver] = &self.groups;
        self.wipe(memory)?;
        receiver.post_receive_buffer(region.clone())?;
        let start = Instant::now();
        let sent = root.send(source.clone(), PATIENCE)?;
        let mut message = receiver.receive(PATIENCE)?.ok_or("the group has closed")?;
        let (mut upload, arrived_s) = if is_overlapped {
            let upload = staging.receive(receiver, &mut message, memory, &self.stream, PATIENCE)?;
            (upload, start.elapsed().as_secs_f64())
        } else {
            message.wait(PATIENCE)?;
            let arrived_s = start.elapsed().as_secs_f64();
            (staging.upload(region, memory, &self.stream, PATIENCE)?, arrived_s)
        };
        upload.wait(PATIENCE)?;
        let on_device_s = start.elapsed().as_secs_f64();
        sent.wait(PATIENCE)?;
        message.into_region(PATIENCE)?;
        self.check(memory)?;
        Ok(Times { arrived_s, on_device_s })
    }

    /// Makes what the last message left where [`Bench::check`] looks wrong.
    fn wipe(&self, memory: &DeviceMemory) -> Outcome<()> {
        let nothing = Region::zeroed(CHECKED_BYTES as usize);
        for part in checked(memory)? {
            let lease = nothing.read(0..nothing.len())?;
            gpu::upload(&self.stream, lease, &part)?.wait(PATIENCE)?;
        }
        Ok(())
    }

    /// Compares the beginning, the middle and the end with what was sent.
    fn check(&self, memory: &DeviceMemory) -> Outcome<()> {
        for part in checked(memory)? {
            let into = Region::zeroed(part.bytes() as usize);
            let lease = into.write(0..into.len())?;
            let lease = gpu::download(&self.stream, &part, lease)?.into_lease(PATIENCE)?;
            let first_word = (part.address() - memory.address()) / 8;
            contents::check_from(&lease, contents::seed(1, memory.bytes()), first_word)?;
        }
        Ok(())
    }
}

/// The parts of a message that are checked.
fn checked(memory: &DeviceMemory) -> Result<[DeviceMemory; 3], gpu::Error> {
    let bytes = memory.bytes();
    let length = CHECKED_BYTES.min(bytes);
    let part = |start: u64| memory.slice(start..start + length);
    Ok([part(0)?, part((bytes - length) / 16 * 8)?, part((bytes - length) / 8 * 8)?])
}
