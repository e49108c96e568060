//! The settings of a simulated push.

use std::net::{Ipv4Addr, SocketAddr};

use files::{
    Admission, HostPlan, PushSettings, Reach,
    machines::{Chunking, RootMachine},
};
use rdmc::{Algorithm, Secret};

use super::scenario::PushScenario;

/// Returns a host's name.
pub(super) fn name(host: usize) -> String {
    format!("h{host}")
}

fn plan(host: usize, hosts_per_rack: u32) -> HostPlan {
    let (name, rack) = (name(host), host as u32 / hosts_per_rack);
    HostPlan { destination: name.clone(), name, rack, reach: Reach::Calls }
}

/// Returns the root's settings.
pub(super) fn settings(scenario: &PushScenario) -> Result<PushSettings, String> {
    scenario.check()?;
    let hosts = scenario.named().map(|host| plan(host, scenario.hosts_per_rack)).collect();
    let rate = scenario.network.rate_bytes_per_s;
    let rate_min = (rate * scenario.rate_min_percent / 100).max(1);
    // A host that joins sends its name, and no other setting.
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let admission = Admission { listen, destination: "{host}".into() };
    Ok(PushSettings {
        admission: scenario.hosts.iter().any(|host| host.joins).then_some(admission),
        algorithm: scenario.algorithm()?,
        block_bytes: Some(scenario.block_bytes),
        rate_bits_per_second: Some(rate.saturating_mul(8)),
        retries: scenario.retries,
        listings_bytes_max: 0,
        all_or_none: scenario.all_or_none,
        source_hosts: if scenario.share_bytes_min > 0 { sources(scenario)? } else { Vec::new() },
        share_bytes_min: match scenario.share_bytes_min {
            0 => u64::MAX,
            bytes => bytes,
        },
        rate_min: (scenario.rate_min_percent > 0).then_some(rate_min),
        ..PushSettings::new(hosts, Secret::from_bytes([7; 32]))
    })
}

/// Returns the hosts that send shares of what they have: all that the command names, where that is possible.
fn sources(scenario: &PushScenario) -> Result<Vec<String>, String> {
    let is_in_switch = scenario.algorithm()? == Some(Algorithm::InSwitch);
    let is_possible = scenario.rate_min_percent == 0 && !is_in_switch && !scenario.together;
    Ok(if is_possible { scenario.named().map(name).collect() } else { Vec::new() })
}

/// Returns the root's state machine of a push.
pub(super) fn root_machine<'a>(
    scenario: &PushScenario,
    settings: &'a PushSettings,
) -> RootMachine<'a> {
    let is_tree = !scenario.files.is_empty();
    if scenario.serves {
        let (bytes, chunk_bytes) = (scenario.bytes, scenario.chunk_bytes);
        let listing_bytes = is_tree.then_some(scenario.listing_bytes);
        let chunking = Chunking { bytes, chunk_bytes };
        return RootMachine::of_served(settings, chunking, listing_bytes);
    }
    match (&scenario.stream, !is_tree) {
        (Some(_), _) => RootMachine::of_stream(settings),
        (None, false) => {
            let core = RootMachine::of_tree(settings, scenario.bytes, scenario.listing_bytes);
            match scenario.together {
                true => core.read_by_hosts(scenario.subtrees()),
                false => core,
            }
        }
        (None, true) => RootMachine::new(settings, scenario.bytes),
    }
}
