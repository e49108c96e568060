//! Pushes to many hosts in virtual time: the state machines of both ends of a push, with real engines. `./dev bench hosts` (tools/compare)
//! has receivers that are processes besides.

use serde_json::json;
use simulate::{ManyHosts, ManyReport};

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Output, Report, number},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many hosts are simulated
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        default_value = "64,300,1000,10000"
    )]
    hosts: Vec<usize>,
    #[command(flatten)]
    output: Output,
}

/// A thousandth of that of 100,000 files, as the blocks are of those of a file of 64 MB.
const LISTING_BYTES: u64 = 12_000;
/// Slow hosts, and those that are killed or never connect: one in this many.
const SLOW: usize = 10;
const ONE_IN: usize = 100;

/// Simulates and prints. Errors: a push that did not reach all.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = "Simulated: 64 MB over links of 8 Gbit/s, logins of 0.3 s in a tree of 32";
    let mut report = Report::new("many-hosts", what.to_owned()).without_machine();
    let usual = |hosts| ManyHosts { retries: 1, ..ManyHosts::new(hosts) };
    for &hosts in &args.hosts {
        interrupt.check()?;
        row(&mut report, "file", usual(hosts))?;
        if hosts <= 1000 {
            row(
                &mut report,
                "directory",
                ManyHosts { listing_bytes: LISTING_BYTES, ..usual(hosts) },
            )?;
            let long = ManyHosts { retries: 1, ..ManyHosts::long(hosts) };
            row(&mut report, "long", long)?;
            row(&mut report, "long, 1 % killed", ManyHosts { one_killed_in: ONE_IN, ..long })?;
            row(&mut report, "long, 1 % silent", ManyHosts { one_silent_in: ONE_IN, ..long })?;
            let slow = ManyHosts { slow: SLOW, ..long };
            row(&mut report, "long, 10 slow", slow)?;
            row(
                &mut report,
                "long, 10 slow, --min-rate",
                ManyHosts { rate_min_percent: 50, ..slow },
            )?;
        }
    }
    report.note(
        "simulated: the decisions of root and receivers and the library's engine at each, over a network and disks in virtual time; bytes of \
         the object, of a directory's listing (12 MB) and rates are divided by 1,000. long: 140 GB in 1,400 blocks, divided by 100,000. begun: when the first groups were \
         started; others: when the last host had published its copy that is not slow and was not killed or silent, all: when the last host had. sent, received: messages of control connections at the \
         root and their bytes, without TLS; data is not among them. killed: in the middle of the transfer. slow: ports of a tenth of the rate.",
    );
    report.print(&args.output);
    Ok(())
}

fn row(report: &mut Report, what: &str, many: ManyHosts) -> Outcome<()> {
    let found =
        many.run().map_err(|error| format!("{} simulated hosts, {what}: {error}", many.hosts))?;
    let ManyReport { hosts, published, traffic, rounds, .. } = found;
    report.row([
        ("hosts", json!(hosts)),
        ("what", json!(what)),
        ("published", json!(published)),
        ("begun_s", number(found.begun_s)),
        ("median_s", number(found.median_s)),
        ("others_s", number(found.others_s)),
        ("all_s", number(found.last_s)),
        ("rounds", json!(rounds)),
        ("sent", json!(traffic.sent)),
        ("sent_bytes", json!(traffic.sent_bytes)),
        ("received", json!(traffic.received)),
        ("received_bytes", json!(traffic.received_bytes)),
        ("longest_bytes", json!(traffic.longest_bytes)),
    ]);
    Ok(())
}
