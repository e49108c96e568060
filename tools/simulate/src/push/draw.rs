//! A push from a seed: mostly small, with every extreme now and then.

use rdmc::Algorithm;

use super::scenario::{
    Fault, HostScenario, PushScenario, SourceFaults, StreamPlan, hosts_per_rack,
};
use crate::{dice::Dice, faults::PlannedFault, network::NetworkPlan, subject::Limits};

/// Distinguishes these random choices from those during the run.
const PURPOSE: u64 = 11;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Returns the push of a seed; it also depends on the limits, which count the root.
pub(super) fn draw(seed: u64, limits: &Limits) -> PushScenario {
    let mut dice = Dice::new(seed, PURPOSE);
    let (least, most) = (*limits.members.start(), *limits.members.end());
    let machines = dice.between(u64::from(least.max(2)), u64::from(most.max(2)));
    let block_bytes = dice.magnitude(64, 4_000);
    let blocks = dice.magnitude(1, 64);
    let bytes = match dice.below(8) {
        0 => dice.below(3),
        1 => block_bytes * blocks,
        _ => block_bytes * blocks - dice.below(block_bytes),
    };
    // A copy takes between 1 ms and 30 s.
    let rate = (bytes * 1_000 / dice.magnitude(1, 30_000)).max(block_bytes).max(1);
    // A small message is written to one host after another, which must not take longer than the
    // stall timeout.
    let rate = rate.max(bytes.min(10 << 10) * machines / 5);
    let network = network(&mut dice, rate);
    let hosts: Vec<HostScenario> = (1..machines).map(|_| host(&mut dice, rate)).collect();
    let algorithm = dice.percent(60).then(|| dice.pick(&Algorithm::ALL).name().to_owned());
    let mut scenario = PushScenario {
        seed,
        bytes,
        block_bytes,
        chunk_bytes: dice.magnitude(block_bytes / 2 + 1, bytes.max(block_bytes)),
        algorithm,
        retries: if dice.percent(50) { dice.between(1, 2) as u32 } else { 0 },
        network,
        word_ns_max: dice.rarely(60, 1_000, 50 * MS),
        look_ns_max: dice.rarely(60, 1_000, 50 * MS),
        digest_ns: dice.magnitude(1, 40 * S),
        hosts,
        hosts_per_rack: hosts_per_rack(),
        ..PushScenario::default()
    };
    scenario.planned_faults = planned_faults(&mut dice, &scenario);
    draw_latecomers(&mut dice, &mut scenario);
    if dice.percent(25) {
        scenario.rate_min_percent = dice.between(10, 90);
    }
    if dice.percent(8) {
        scenario.source.replaced_ns = Some(dice.magnitude(100 * MS, 60 * S));
    }
    for host in &mut scenario.hosts {
        if dice.percent(2) {
            host.faults.disk_fails_ns = Some(dice.magnitude(MS, 30 * S));
        }
    }
    if dice.percent(15) {
        draw_fetch(&mut dice, &mut scenario);
        draw_firewalls(&mut dice, &mut scenario);
        return scenario;
    }
    match dice.below(4) {
        0 => draw_stream(&mut dice, &mut scenario),
        1 => draw_tree(&mut dice, &mut scenario),
        _ => {}
    }
    draw_storage(&mut dice, &mut scenario);
    draw_firewalls(&mut dice, &mut scenario);
    let may_join = scenario.hosts.iter().any(|host| host.joins);
    if scenario.stream.is_none() && !may_join && dice.percent(25) {
        draw_all_or_none(&mut dice, &mut scenario);
    }
    if dice.percent(50) {
        scenario.share_bytes_min = dice.magnitude(1, scenario.bytes.max(1));
    }
    if scenario.stream.is_none() && !scenario.files.is_empty() && dice.percent(50) {
        draw_together(&mut dice, &mut scenario);
    }
    scenario
}

/// Makes hosts read a tree themselves: some slowly, and some not to the end.
fn draw_together(dice: &mut Dice, scenario: &mut PushScenario) {
    (scenario.together, scenario.rate_min_percent) = (true, 0);
    // All of it in between 1 ms and 15 s.
    let subtrees = scenario.bytes / 1_024 + scenario.files.len() as u64;
    let subtree_ns = dice.magnitude(MS, 15 * S) / subtrees;
    for host in &mut scenario.hosts {
        host.url_ns_per_subtree = match dice.percent(20) {
            true => subtree_ns * dice.between(1, 8),
            false => subtree_ns,
        };
        host.faults.url_fails_at = dice.percent(4).then(|| dice.below(scenario.bytes));
    }
}

/// Makes it a push to all or none: half of them so short that most steps are those of verifying, storing and publishing.
fn draw_all_or_none(dice: &mut Dice, scenario: &mut PushScenario) {
    scenario.all_or_none = true;
    if scenario.files.is_empty() && dice.percent(50) {
        scenario.bytes = scenario.bytes.min(scenario.block_bytes);
        scenario.planned_faults = planned_faults(dice, scenario);
    }
}

/// Puts firewalls between some machines: mostly between hosts, around one host, or between any.
fn draw_firewalls(dice: &mut Dice, scenario: &mut PushScenario) {
    if !dice.percent(12) {
        return;
    }
    let machines = scenario.machines();
    let first = u32::from(!dice.percent(15));
    let pairs =
        (first..machines).flat_map(|one| (one + 1..machines).map(move |other| [one, other]));
    let around = dice.percent(40).then(|| first + dice.below(u64::from(machines - first)) as u32);
    let percent = dice.between(5, 100);
    let is_near = |pair: &[u32; 2]| around.is_none_or(|machine| pair.contains(&machine));
    scenario.firewalls = pairs.filter(is_near).filter(|_| dice.percent(percent)).collect();
}

/// Makes the storage of some hosts slow: for a few of its jobs it takes longer than a failed group waits for it, but for all
/// blocks of a copy not for so long that a group may take it for storage that does not answer.
fn draw_storage(dice: &mut Dice, scenario: &mut PushScenario) {
    if scenario.stream.is_some() || !dice.percent(20) {
        return;
    }
    let blocks = scenario.bytes / scenario.block_bytes + scenario.files.len() as u64;
    let longest_ns = (20 * S / (blocks + 1)).clamp(2 * MS, 4 * S);
    for host in &mut scenario.hosts {
        host.store_ns = dice.rarely(60, MS, longest_ns);
    }
}

/// Makes the object a tree, of which some hosts have files.
fn draw_tree(dice: &mut Dice, scenario: &mut PushScenario) {
    if scenario.bytes == 0 {
        return;
    }
    let cuts = dice.magnitude(1, 20) - 1;
    let mut ends: Vec<u64> = (0..cuts).map(|_| dice.between(1, scenario.bytes)).collect();
    ends.push(scenario.bytes);
    ends.sort_unstable();
    ends.dedup();
    for host in &mut scenario.hosts {
        let percent = if dice.percent(50) { dice.between(10, 100) } else { 0 };
        host.kept_files = (0..ends.len()).filter(|_| dice.percent(percent)).collect();
    }
    scenario.files = ends;
    scenario.listing_bytes = if dice.percent(50) { dice.magnitude(1, scenario.bytes) } else { 0 };
}

/// Makes hosts fetch the object: all come by themselves, some share what they have, and some lie.
fn draw_fetch(dice: &mut Dice, scenario: &mut PushScenario) {
    scenario.serves = true;
    (scenario.retries, scenario.rate_min_percent) = (0, 0);
    let apart_ns = dice.magnitude(MS, 20 * S);
    let holders_percent = dice.rarely(40, 20, 80);
    for host in &mut scenario.hosts {
        (host.joins, host.is_absent) = (true, false);
        host.start_ns = dice.magnitude(MS, apart_ns);
        host.shares_ns = dice.percent(40).then(|| dice.magnitude(MS, 30 * S));
        host.faults.lies = dice.percent(5);
        if dice.percent(holders_percent) {
            // It has the object, and is there early.
            (host.partial_percent, host.start_ns) = (100, MS);
            host.shares_ns = Some(dice.magnitude(S, 30 * S));
        }
    }
    if dice.percent(25) {
        draw_tree(dice, scenario);
        scenario.listing_bytes = 0;
    }
    if dice.percent(50) {
        scenario.share_bytes_min = dice.magnitude(1, scenario.bytes.max(1));
    }
}

/// Makes the object a stream.
fn draw_stream(dice: &mut Dice, scenario: &mut PushScenario) {
    scenario.retries = 0;
    scenario.rate_min_percent = 0;
    scenario.source = SourceFaults::default();
    for host in &mut scenario.hosts {
        (host.joins, host.partial_percent) = (false, 0);
        host.faults.disk_fails_ns = None;
    }
    // Groups are formed again and again while consumers still take what earlier ones have brought.
    let machines = u64::from(scenario.machines());
    for _ in 0..dice.rarely(60, 1, 6) {
        let one = dice.below(machines) as u32;
        let machines = [one, (one + 1 + dice.below(machines - 1) as u32) % machines as u32];
        let what = match dice.percent(30) {
            true => Fault::Corrupt { machine: one.max(1) },
            false => Fault::Reset { machines },
        };
        scenario.planned_faults.push(PlannedFault { step: dice.magnitude(1, 2_000), what });
    }
    scenario.planned_faults.sort_by_key(|planned| planned.step);
    let most = scenario.bytes.max(1);
    scenario.stream = Some(StreamPlan {
        read_bytes: dice.magnitude(most.div_ceil(100), most),
        read_ns_max: dice.rarely(70, 1_000, S),
        fails_at: dice.percent(5).then(|| dice.below(most)),
        consumer_ns_max: dice.rarely(60, 1_000, 2 * S),
    });
}

/// Makes some hosts join by themselves, at any time; the first is always named.
fn draw_latecomers(dice: &mut Dice, scenario: &mut PushScenario) {
    if !dice.percent(30) {
        return;
    }
    for host in scenario.hosts.iter_mut().skip(1) {
        if dice.percent(40) {
            (host.joins, host.start_ns) = (true, dice.magnitude(MS, 30 * S));
        }
    }
}

fn network(dice: &mut Dice, rate_bytes_per_s: u64) -> NetworkPlan {
    NetworkPlan {
        rate_bytes_per_s,
        latency_ns: dice.magnitude(1_000, 20 * MS),
        block_jitter_percent: dice.rarely(40, 10, 200),
        delivery_jitter_ns_max: dice.rarely(40, 1_000, 20 * MS),
        control_jitter_ns_max: dice.rarely(40, 1_000, 20 * MS),
        loss_detection_ns: dice.rarely(70, 1_000, 100 * MS),
        // As over TCP.
        silence_timeout_ms: 5_000,
        drain_timeout_ms: 1_000,
        cut_through_bytes: Some(4_096),
        ..NetworkPlan::default()
    }
}

fn host(dice: &mut Dice, rate: u64) -> HostScenario {
    HostScenario {
        // Sometimes too late.
        start_ns: if dice.percent(5) {
            dice.between(20 * S, 40 * S)
        } else {
            dice.magnitude(MS, S)
        },
        is_absent: dice.percent(2),
        disk_ns: dice.rarely(40, MS, 3 * S),
        verify_ns: dice.rarely(60, MS, 3 * S),
        rate_bytes_per_s: dice.percent(10).then(|| slower(dice, rate)),
        partial_percent: if dice.percent(15) { dice.between(1, 100) } else { 0 },
        ..HostScenario::default()
    }
}

/// Returns a lower rate, at which no block takes as long as the stall timeout.
fn slower(dice: &mut Dice, rate: u64) -> u64 {
    (rate / dice.between(2, 4)).max(1)
}

fn planned_faults(dice: &mut Dice, scenario: &PushScenario) -> Vec<PlannedFault<Fault>> {
    let count = match dice.below(10) {
        0 | 1 => 0,
        2..=5 => 1,
        6 | 7 => 2,
        _ => dice.between(3, 5),
    };
    // The approximate number of steps without faults.
    let blocks = scenario.bytes / scenario.block_bytes + 1;
    let steps = u64::from(scenario.machines()) * (3 * blocks + 30);
    PlannedFault::draw(dice, count, steps, 20, |dice, step| PlannedFault {
        step,
        what: fault(dice, scenario),
    })
}

fn fault(dice: &mut Dice, scenario: &PushScenario) -> Fault {
    let hosts = scenario.hosts.len() as u64;
    let machine = 1 + dice.below(hosts) as u32;
    // Sometimes the root's machine.
    let any = if dice.percent(10) { 0 } else { machine };
    match dice.below(20) {
        0..=4 => Fault::Kill { machine, damages: dice.percent(40) },
        5 => Fault::Kill { machine: 0, damages: false },
        6..=8 => Fault::Freeze { machine: any, for_ns: duration(dice) },
        9 | 10 => Fault::Pause { machine: any, for_ns: duration(dice) },
        11..=13 => {
            let other = (u64::from(machine) + 1 + dice.below(hosts)) % (hosts + 1);
            Fault::Reset { machines: [machine, other as u32] }
        }
        14 => Fault::HangUp { machine },
        15 | 16 => {
            let mut machines: Vec<u32> =
                (1..=hosts as u32).filter(|&other| other != machine && dice.percent(30)).collect();
            machines.push(machine);
            machines.sort_unstable();
            Fault::Partition { machines, for_ns: duration(dice) }
        }
        17 => {
            let bytes_per_s = slower(dice, scenario.network.rate_bytes_per_s);
            Fault::Rate { machine: any, bytes_per_s }
        }
        18 => Fault::Corrupt { machine },
        _ if dice.percent(40) => Fault::Cancel,
        _ => Fault::Kill { machine, damages: true },
    }
}

/// Returns a duration that is harmlessly short, longer than some timeouts, or for ever.
fn duration(dice: &mut Dice) -> Option<u64> {
    match dice.below(5) {
        0 | 1 => Some(dice.magnitude(MS, S)),
        2 | 3 => Some(dice.between(S, 40 * S)),
        _ => None,
    }
}
