//! Where cases are measured: the network, and how members use it.

use std::{net::IpAddr, time::Duration};

use lab::{Distance, LabSettings, Link, Rate};
use rdmc::{CompletionMode, Fabric};

use super::values::Values;
use crate::{
    links::usual_rate,
    member::Equipment,
    outcome::{Outcome, Usage},
};

/// The queue in front of a long link is one bandwidth-delay product, but not shorter than this: hosts send up to 64 KiB
/// at once.
const QUEUE_MIN: Duration = Duration::from_millis(5);

/// What connects members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Processes of this machine.
    Loopback,
    /// Processes in network namespaces, over links of a known rate.
    Lab,
}

/// Which ranks share a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Ranks follow the racks: neighbours share one.
    Packed,
    /// Ranks go round the racks: neighbours are in different ones.
    Scattered,
}

/// Connections of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    None,
    /// From member 2 to member 3, both in the middle of a chain.
    One,
    /// From each member to the next, and from the last to the first.
    All,
}

/// Cases with the same place are measured in alternating order.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub network: Network,
    pub members: u32,
    pub link: Link,
    pub racks: u32,
    /// How many times more the hosts of a rack can send than its uplink carries; `None` if all hosts are at one switch.
    pub oversubscription: Option<f64>,
    /// The members that algorithms with racks take for a rack, if it is not those of the network.
    pub rack_members: Option<u32>,
    pub layout: Layout,
    /// The link between two racks, if it is long, and its rate.
    pub long: Option<(Rate, Distance)>,
    pub flows: Flows,
    /// The hosts' net.ipv4.tcp_tso_rtt_log.
    pub tso_rtt_log: Option<u8>,
    pub addresses: Vec<IpAddr>,
    pub equipment: Equipment,
}

/// A rate such as 250mbit; a number alone is in Mbit/s.
fn rate(text: &str) -> Result<Rate, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("{text}mbit").parse() } else { text.parse() }
}

impl Place {
    pub fn new(values: &Values) -> Outcome<Self> {
        let networks = [("loopback", Network::Loopback), ("lab", Network::Lab)];
        let network = values.choice("network", &networks)?.unwrap_or(Network::Loopback);
        let members_max = if network == Network::Lab { 64 } else { 256 };
        let members = values.number("members", 2..=members_max)?.unwrap_or(2);
        let rate = values.parsed("rate", rate)?.unwrap_or(usual_rate(members));
        let link = Link::of_rate(rate);
        let queue_ms = values.number("queue-ms", Link::QUEUES_MS)?;
        let link = queue_ms.map_or(link, |queue_ms| link.with_queue(queue_ms));
        let link = if values.flag("small-burst")? { link.with_small_burst() } else { link };
        let layouts = [("packed", Layout::Packed), ("scattered", Layout::Scattered)];
        let flows = [("none", Flows::None), ("one", Flows::One), ("all", Flows::All)];
        let address = |text: &str| text.split(',').map(str::parse).collect::<Result<_, _>>();
        let place = Self {
            network,
            members,
            link,
            racks: values.number("racks", 1..=32)?.unwrap_or(1),
            oversubscription: match values.text("oversubscription") {
                Some("none") => None,
                _ => values.number("oversubscription", 0.1..=100.0)?,
            },
            rack_members: values.number("rack-members", 1..=1_024)?,
            layout: values.choice("layouts", &layouts)?.unwrap_or(Layout::Packed),
            long: Self::long(values)?,
            flows: values.choice("flows", &flows)?.unwrap_or(Flows::None),
            tso_rtt_log: values.number("tso-rtt-log", 0..=31)?,
            addresses: values.parsed("addresses", address)?.unwrap_or_default(),
            equipment: Self::equipment(values)?,
        };
        if place.flows != Flows::None && members < 4 {
            return Err(Usage("--members: other connections need 4 members at least".into()).into());
        }
        if place.network == Network::Lab {
            place.lab().check().map_err(|error| Usage(error.to_string()))?;
        } else if values.text("rate").is_some()
            || values.text("queue-ms").is_some()
            || values.flag("small-burst")?
        {
            let remedy = "a rate needs links: add --network lab";
            return Err(Usage(format!("--rate, --queue-ms, --small-burst: {remedy}")).into());
        }
        Ok(place)
    }

    fn long(values: &Values) -> Outcome<Option<(Rate, Distance)>> {
        let Some(rate) = values.parsed("long-rate", str::parse::<Rate>)? else { return Ok(None) };
        let round_trip_ms = values.number("round-trip-ms", 0..=2_000)?.unwrap_or(0);
        let round_trip = Duration::from_millis(round_trip_ms);
        let distance = Distance {
            delay: round_trip / 2,
            queue: round_trip.max(QUEUE_MIN),
            loss: values.number("loss", 0.0..=50.0)?.unwrap_or(0.0) / 100.0,
            seed: values.number("seed", 0..=u64::MAX)?.unwrap_or(1),
        };
        Ok(Some((rate, distance)))
    }

    fn equipment(values: &Values) -> Outcome<Equipment> {
        let completion = values.parsed("completion", str::parse::<CompletionMode>)?;
        Ok(Equipment {
            fabric: values.parsed("fabric", str::parse::<Fabric>)?.unwrap_or_default(),
            completion: completion.unwrap_or_default(),
            protect: values.parsed("protect", str::parse)?,
            through_sockets: values.flag("through-sockets")?,
            offload: values.flag("offload")?,
            congestion: values.text("congestion").map(str::to_owned),
            streams: values.number("streams", 1..=8)?,
            ..Equipment::default()
        })
    }

    /// The lab of these hosts: in racks with uplinks, or at one switch.
    pub fn lab(&self) -> LabSettings {
        let lab = LabSettings::new(self.members, self.link);
        let Some(oversubscription) = self.oversubscription else { return lab };
        let hosts_of_rack = f64::from(self.members.div_ceil(self.racks));
        let mbit = self.link.rate.mbit() * hosts_of_rack / oversubscription;
        let uplink = self.link.at_rate(Rate::from_mbit(mbit.round() as u64));
        LabSettings { racks: self.racks, uplink: Some(uplink), ..lab }
    }

    /// What members communicate over, in a sentence.
    pub fn text(&self) -> String {
        let (members, network) = (self.members, self.equipment.network());
        if self.network == Network::Loopback {
            return format!("{members} members: {network}.");
        }
        let link = self.link;
        let uplink = self.lab().uplink.filter(|_| self.long.is_none());
        let uplinks = uplink.map_or(String::new(), |link| format!(", uplinks of {}", link.rate));
        let burst_kb = link.burst_bytes() as f64 / 1e3;
        format!(
            "{members} members: links of {}, bursts of {burst_kb:.0} kB{uplinks}; {network}.",
            link.rate
        )
    }

    /// The host of each rank.
    pub fn hosts(&self) -> Vec<u32> {
        let mut hosts: Vec<u32> = (0..self.members).collect();
        if self.layout == Layout::Scattered {
            let lab = self.lab();
            let rack_of = |host: u32| lab.rack_of(host);
            let place_in_rack =
                |host: u32| (0..host).filter(|&other| rack_of(other) == rack_of(host)).count();
            hosts.sort_by_key(|&host| (place_in_rack(host), rack_of(host)));
        }
        hosts
    }

    /// The rack of each rank, for algorithms that ask: the network's, or as set, or two of equal size.
    pub fn rack_of_ranks(&self) -> Vec<u32> {
        let lab = self.lab();
        let ranks = 0..self.members;
        match self.rack_members {
            Some(members) => ranks.map(|rank| rank / members).collect(),
            None if lab.racks == 1 => ranks.map(|rank| rank * 2 / self.members).collect(),
            None => self.hosts().into_iter().map(|host| lab.rack_of(host)).collect(),
        }
    }

    /// The rate of an uplink, in rates of a host's link; infinite where all hosts are at one switch.
    pub fn uplink_rate(&self) -> f64 {
        let uplink = self.lab().uplink;
        uplink.map_or(f64::INFINITY, |uplink| uplink.rate.mbit() / self.link.rate.mbit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(settings: &[(&str, &str)]) -> Place {
        let values = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Place::new(&Values(values.collect())).unwrap()
    }

    #[test]
    fn ranks_follow_the_racks_or_go_round_them() {
        let racks = [("members", "8"), ("racks", "4"), ("oversubscription", "4")];
        assert_eq!(place(&racks).hosts(), [0, 1, 2, 3, 4, 5, 6, 7]);
        let scattered = place(&[&racks[..], &[("layouts", "scattered")]].concat());
        assert_eq!(scattered.hosts(), [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(scattered.rack_of_ranks(), [0, 1, 2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn four_hosts_with_the_uplink_of_one_are_oversubscribed_4_to_1() {
        let racks = [("members", "16"), ("racks", "4"), ("oversubscription", "4")];
        let place = place(&racks);
        assert_eq!(place.lab().uplink.unwrap().rate, place.link.rate);
        assert_eq!(place.uplink_rate(), 1.0);
        place.lab().check().unwrap();
    }
}
