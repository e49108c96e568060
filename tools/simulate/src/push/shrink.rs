//! Reductions of a push, which may still fail.

use super::scenario::{Fault, PlannedFault, PushScenario, StreamPlan};

/// Returns smaller valid scenarios, the most effective reduction first.
pub fn smaller_pushes(from: &PushScenario) -> Vec<PushScenario> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut PushScenario)| {
        let mut candidate = from.clone();
        change(&mut candidate);
        all.push(candidate);
    };
    for host in (0..from.hosts.len()).rev() {
        with(&|it| remove_host(it, host));
    }
    for planned in 0..from.planned_faults.len() {
        with(&|it| {
            it.planned_faults.remove(planned);
        });
    }
    for firewall in 0..from.firewalls.len() {
        with(&|it| {
            it.firewalls.remove(firewall);
        });
    }
    with(&|it| it.retries = 0);
    with(&|it| it.rate_min_percent = 0);
    with(&|it| shorten(it, it.bytes / 2));
    with(&|it| shorten(it, it.bytes - it.bytes.min(it.block_bytes)));
    with(&|it| it.algorithm = None);
    with(&|it| it.word_ns_max = 0);
    with(&|it| it.look_ns_max = 0);
    with(&|it| it.digest_ns = 1);
    with(&|it| it.source.replaced_ns = None);
    with(&|it| {
        it.files.clear();
        it.hosts.iter_mut().for_each(|host| host.kept_files.clear());
    });
    if let Some(plan) = &from.stream {
        let with_plan =
            |plan: StreamPlan| move |it: &mut PushScenario| it.stream = Some(plan.clone());
        with(&|it| it.stream = None);
        with(&with_plan(StreamPlan { read_bytes: from.bytes.max(1), ..plan.clone() }));
        with(&with_plan(StreamPlan { read_ns_max: 0, ..plan.clone() }));
        with(&with_plan(StreamPlan { fails_at: None, ..plan.clone() }));
        with(&with_plan(StreamPlan { consumer_ns_max: 0, ..plan.clone() }));
    }
    for host in 0..from.hosts.len() {
        with(&|it| it.hosts[host].is_absent = false);
        with(&|it| it.hosts[host].joins = false);
        with(&|it| it.hosts[host].faults.disk_fails_ns = None);
        with(&|it| it.hosts[host].partial_percent = 0);
        with(&|it| it.hosts[host].kept_files.clear());
        with(&|it| it.hosts[host].disk_ns = 0);
        with(&|it| it.hosts[host].store_ns = 0);
        with(&|it| it.hosts[host].verify_ns = 0);
        with(&|it| it.hosts[host].rate_bytes_per_s = None);
        with(&|it| it.hosts[host].start_ns = 1_000_000);
    }
    with(&|it| it.network.block_jitter_percent = 0);
    with(&|it| it.network.delivery_jitter_ns_max = 0);
    with(&|it| it.network.control_jitter_ns_max = 0);
    with(&|it| it.network.loss_detection_ns = 0);
    all.retain(|candidate| candidate.check().is_ok());
    all
}

/// Shortens the object; a tree loses files.
fn shorten(scenario: &mut PushScenario, bytes: u64) {
    scenario.bytes = bytes;
    let is_tree = !scenario.files.is_empty();
    scenario.files.retain(|&end| end < bytes);
    if is_tree && bytes > 0 {
        scenario.files.push(bytes);
    }
    let files = scenario.files.len();
    scenario.hosts.iter_mut().for_each(|host| host.kept_files.retain(|&file| file < files));
}

/// Removes a host; the others keep their order.
fn remove_host(scenario: &mut PushScenario, host: usize) {
    scenario.hosts.remove(host);
    let own = host as u32 + 1;
    let rename = |machine: &mut u32| *machine -= u32::from(*machine > own);
    scenario.firewalls.retain_mut(|machines| {
        let is_other = !machines.contains(&own);
        machines.iter_mut().for_each(rename);
        is_other
    });
    scenario.planned_faults.retain_mut(|PlannedFault { what, .. }| match what {
        Fault::Reset { machines } => {
            let is_other = !machines.contains(&own);
            machines.iter_mut().for_each(rename);
            is_other
        }
        Fault::Partition { machines, .. } => {
            machines.retain(|&machine| machine != own);
            machines.iter_mut().for_each(rename);
            !machines.is_empty()
        }
        Fault::Kill { machine, .. }
        | Fault::Freeze { machine, .. }
        | Fault::Pause { machine, .. }
        | Fault::HangUp { machine }
        | Fault::Rate { machine, .. }
        | Fault::Corrupt { machine } => {
            let is_other = *machine != own;
            rename(machine);
            is_other
        }
        Fault::Cancel => true,
    });
}
