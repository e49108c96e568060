//! Small messages in virtual time: relayed, and written to every receiver at once (DSN 2018 section 4.6).
//! `experiments/small.toml` measures the same with processes.

mod simulated;

use plan::size;
use serde_json::json;

use crate::{
    outcome::Outcome,
    report::{Output, Report, number},
    sweep::progress,
};
use simulated::OVERHEAD_NS;

/// How messages travel: relayed by blocks, or written to every receiver at once.
const PATHS: [(&str, bool); 2] = [("relayed", false), ("written", true)];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of the groups, roots included
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "2,8,32,128,1024",
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    members: Vec<u32>,
    /// How many messages in a row are measured for their rate
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    messages: u64,
    /// Their lengths, each at most 64 KiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = length,
          default_value = "1B,1KiB,10KiB,64KiB")]
    bytes: Vec<u64>,
    #[command(flatten)]
    output: Output,
}

fn length(text: &str) -> Result<u64, String> {
    let bytes = size::parse_nonzero(text)?;
    if bytes <= 64 << 10 { Ok(bytes) } else { Err("use at most 64KiB".into()) }
}

pub fn run(args: &Args) -> Outcome<()> {
    let what = "small messages in virtual time; binomial pipeline".to_owned();
    let mut report = Report::new("small-virtual", what).without_machine();
    for (done, &members) in (1..).zip(&args.members) {
        progress("virtual time", done, args.members.len());
        for &bytes in &args.bytes {
            let measure = |(_, written)| simulated::measure(members, bytes, args.messages, written);
            let relayed = measure(PATHS[0])?;
            for path in PATHS {
                let times = measure(path)?;
                report.row([
                    ("network", json!("virtual")),
                    ("members", json!(members)),
                    ("length", json!(size::show(bytes))),
                    ("path", json!(path.0)),
                    ("messages_per_s", number(args.messages as f64 / times.all)),
                    ("of_the_rate_relayed", number(relayed.all / times.all)),
                    ("latency_us", number(times.latency * 1e6)),
                    ("of_the_latency_relayed", number(times.latency / relayed.latency)),
                ]);
            }
        }
    }
    report.note(format!(
        "rate: messages queued at once, until the last receiver has the last. latency: one message alone, from the \
         send to the last receiver. Links of 100 Gbit/s, 5 us between members, and {} us for each block at both its \
         ends and for each write at its source.",
        OVERHEAD_NS / 1_000
    ));
    report.print(&args.output);
    Ok(())
}
