//! Memory for messages: allocated when they arrive, or given ahead (DSN 2018 section 4.6, "Memory
//! management").

use std::{
    net::IpAddr,
    sync::{Barrier, Mutex, PoisonError},
    time::Instant,
};

use plan::size;
use rdmc::{Algorithm, Context, Group, GroupSettings, Region};
use serde_json::json;

use crate::{
    member::Equipment,
    member_threads::{MemberThreads, TIMEOUT},
    outcome::Outcome,
    report::{Output, Report, median, number},
    sweep::progress,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    members: u32,
    /// Lengths of the messages
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_nonzero,
          default_value = "64KiB,1MiB,16MiB,128MiB")]
    bytes: Vec<u64>,
    /// How many messages one after another; the median is reported
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    messages: u32,
    /// Addresses of this host that members use in rotation; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    equipment: Equipment,
    #[command(flatten)]
    output: Output,
}

/// Where a message's memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    /// The library allocates it when the message is announced: its pages are touched on the way.
    OnArrival,
    /// Posted before, and never touched.
    Ahead,
    /// Posted before, and used before.
    AheadTouched,
}

impl Memory {
    const ALL: [Self; 3] = [Self::OnArrival, Self::Ahead, Self::AheadTouched];

    fn name(self) -> &'static str {
        match self {
            Self::OnArrival => "allocated on arrival",
            Self::Ahead => "posted ahead",
            Self::AheadTouched => "posted ahead, used before",
        }
    }

    fn region(self, bytes: u64) -> Option<Region> {
        match self {
            Self::OnArrival => None,
            Self::Ahead => Some(Region::zeroed(bytes as usize)),
            Self::AheadTouched => Some(Region::from_vec(vec![1; bytes as usize])),
        }
    }
}

/// Compares, and prints.
pub fn run(args: &Args) -> Outcome<()> {
    let what = format!(
        "memory for messages, {} members as contexts of one process, {}, messages one after another; \
         median of {}",
        args.members,
        args.equipment.network(),
        args.messages
    );
    let threads = MemberThreads::start(args.members, &args.addresses, &args.equipment)?;
    let mut report = Report::new("buffers", what);
    let mut number_of_group = 0;
    for (index, &bytes) in args.bytes.iter().enumerate() {
        progress("buffers", index + 1, args.bytes.len());
        let mut on_arrival = None;
        for memory in Memory::ALL {
            number_of_group += 1;
            let series = Series::new(args, number_of_group, memory, bytes);
            threads.run(|rank, context| series.take_part(&threads, rank, context))?;
            let seconds = series.median_seconds();
            let on_arrival = *on_arrival.get_or_insert(seconds);
            report.row([
                ("length", json!(size::show(bytes))),
                ("memory", json!(memory.name())),
                ("time_us", number(seconds * 1e6)),
                ("MB_per_s", number(bytes as f64 / seconds / 1e6)),
                ("of_the_rate_on_arrival", number(on_arrival / seconds)),
            ]);
        }
    }
    report.note(
        "time: from the send until the last receiver has the message. Every copy was compared.",
    );
    report.print(&args.output);
    Ok(())
}

/// Messages of one length into one kind of memory.
struct Series {
    number: u64,
    memory: Memory,
    bytes: u64,
    messages: u32,
    /// All members pass it before and after each message.
    step: Barrier,
    /// When each message was sent, and when it was last complete.
    times: Mutex<Vec<(Option<Instant>, Option<Instant>)>>,
}

impl Series {
    fn new(args: &Args, number: u64, memory: Memory, bytes: u64) -> Self {
        let (messages, step) = (args.messages, Barrier::new(args.members as usize));
        // The first message opens the connections' windows, and is not counted.
        let times = Mutex::new(vec![(None, None); messages as usize + 1]);
        Self { number, memory, bytes, messages, step, times }
    }

    fn take_part(&self, threads: &MemberThreads, rank: u32, context: &Context) -> Outcome<()> {
        let mut settings = GroupSettings::new(self.number, threads.addresses().to_vec(), rank)
            .schedule(Algorithm::BinomialPipeline)
            .block_bytes(64 << 10);
        settings.small = None;
        let group = context.create_group(settings)?;
        for message in 0..=self.messages {
            let contents = message as u8 ^ 0x5a;
            let object = (rank == 0).then(|| Region::from_vec(vec![contents; self.bytes as usize]));
            if rank > 0
                && let Some(region) = self.memory.region(self.bytes)
            {
                group.post_receive_buffer(region)?;
            }
            self.step.wait();
            let outcome = match object {
                Some(object) => self.send(&group, message, object).map(|()| None),
                None => self.receive(&group, message).map(Some),
            };
            // A member that has failed still has to reach the barrier, for which all others wait; and
            // comparing takes processor time, which would delay those that still receive.
            self.step.wait();
            let copy = outcome?.map(|region| region.try_into_vec()).transpose();
            let copy = copy.map_err(|_| "the memory of a message is in use")?;
            if copy.is_some_and(|copy| copy.iter().any(|&byte| byte != contents)) {
                return Err("a copy is wrong".into());
            }
        }
        Ok(group.close(TIMEOUT)?)
    }

    fn send(&self, group: &Group, message: u32, object: Region) -> Outcome<()> {
        self.note(message, |times| times.0 = Some(Instant::now()));
        Ok(group.try_send(object).map(drop)?)
    }

    fn receive(&self, group: &Group, message: u32) -> Outcome<Region> {
        let received = group.receive(TIMEOUT)?.ok_or("the group has ended")?;
        received.wait(TIMEOUT)?;
        self.note(message, |times| times.1 = times.1.max(Some(Instant::now())));
        Ok(received.into_region(TIMEOUT)?)
    }

    fn note(&self, message: u32, what: impl FnOnce(&mut (Option<Instant>, Option<Instant>))) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        what(&mut times[message as usize]);
    }

    fn median_seconds(&self) -> f64 {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let took = |&(sent, complete): &(Option<Instant>, Option<Instant>)| {
            Some(complete?.saturating_duration_since(sent?).as_secs_f64())
        };
        median(times.iter().skip(1).filter_map(took).collect())
    }
}
