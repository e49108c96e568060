//! Links between members that share this machine's processors.

use lab::{Link, Rate};
use plan::costs::Costs;
use rdmc::Fabric;

/// The highest rate of links that two cores can carry for this many members.
pub fn usual_rate(members: u32) -> Rate {
    Rate::from_mbit(u64::from(4_000 / members).min(1_000))
}

/// The links of the group of this index, of one of these rates in Mbit/s; without any, of what two
/// cores can carry.
pub fn link(rates: &[u64], index: usize, members: u32, small_burst: bool) -> Link {
    let given = rates.get(index).or(rates.last()).map(|&mbit| Rate::from_mbit(mbit));
    let link = Link::of_rate(given.unwrap_or(usual_rate(members)));
    if small_burst { link.with_small_burst() } else { link }
}

/// Input of the cost model for hosts that share this machine's processors.
pub fn costs(members: u32, link: Link) -> Costs {
    let costs = Fabric::Tcp.costs_between_hosts(Some(link.rate.bits_per_s()));
    Costs {
        burst_bytes: link.burst_bytes(),
        ..costs.on_shared_processors(members, Fabric::this_machine().processors)
    }
}

/// Reads how many times uplinks are oversubscribed.
pub fn oversubscription(text: &str) -> Result<f64, String> {
    let times: f64 = text.parse().map_err(|_| format!("\"{text}\" is not a number"))?;
    if (0.1..=100.0).contains(&times) { Ok(times) } else { Err("use 0.1 to 100".into()) }
}
