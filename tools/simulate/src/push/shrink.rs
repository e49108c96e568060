//! Reductions of a push, which may still fail.

use super::scenario::{Fault, PushScenario, StreamPlan};
use crate::{faults::PlannedFault, member_fault::rename, subject::Smaller};

/// Adds smaller scenarios, the most effective reduction first.
pub(super) fn reduce(from: &PushScenario, to: &mut Smaller<'_, PushScenario>) {
    for host in (0..from.hosts.len()).rev() {
        to.with(|it| remove_host(it, host));
    }
    to.without_each(|it| &mut it.planned_faults);
    to.without_each(|it| &mut it.firewalls);
    to.with(|it| it.retries = 0);
    to.with(|it| it.rate_min_percent = 0);
    to.with(|it| it.all_or_none = false);
    to.with(|it| it.together = false);
    to.with(|it| it.share_bytes_min = 0);
    to.with(|it| shorten(it, it.bytes / 2));
    to.with(|it| shorten(it, it.bytes - it.bytes.min(it.block_bytes)));
    to.with(|it| it.algorithm = None);
    to.with(|it| it.word_ns_max = 0);
    to.with(|it| it.look_ns_max = 0);
    to.with(|it| it.digest_ns = 1);
    to.with(|it| it.source.replaced_ns = None);
    to.with(|it| {
        it.files.clear();
        it.together = false;
        it.hosts.iter_mut().for_each(|host| host.kept_files.clear());
    });
    if let Some(plan) = &from.stream {
        let with_plan =
            |plan: StreamPlan| move |it: &mut PushScenario| it.stream = Some(plan.clone());
        to.with(|it| it.stream = None);
        to.with(with_plan(StreamPlan { read_bytes: from.bytes.max(1), ..plan.clone() }));
        to.with(with_plan(StreamPlan { read_ns_max: 0, ..plan.clone() }));
        to.with(with_plan(StreamPlan { fails_at: None, ..plan.clone() }));
        to.with(with_plan(StreamPlan { consumer_ns_max: 0, ..plan.clone() }));
    }
    for host in 0..from.hosts.len() {
        to.with(|it| it.hosts[host].is_absent = false);
        to.with(|it| it.hosts[host].shares_ns = None);
        to.with(|it| it.hosts[host].faults.lies = false);
        to.with(|it| it.hosts[host].joins = false);
        to.with(|it| it.hosts[host].faults.disk_fails_ns = None);
        to.with(|it| it.hosts[host].partial_percent = 0);
        to.with(|it| it.hosts[host].kept_files.clear());
        to.with(|it| it.hosts[host].disk_ns = 0);
        to.with(|it| it.hosts[host].store_ns = 0);
        to.with(|it| it.hosts[host].verify_ns = 0);
        to.with(|it| it.hosts[host].url_ns_per_subtree = 0);
        to.with(|it| it.hosts[host].faults.url_fails_at = None);
        to.with(|it| it.hosts[host].rate_bytes_per_s = None);
        to.with(|it| it.hosts[host].start_ns = 1_000_000);
    }
    to.with(|it| it.network.block_jitter_percent = 0);
    to.with(|it| it.network.delivery_jitter_ns_max = 0);
    to.with(|it| it.network.control_jitter_ns_max = 0);
    to.with(|it| it.network.loss_detection_ns = 0);
}

/// Shortens the object; a tree loses files.
fn shorten(scenario: &mut PushScenario, bytes: u64) {
    scenario.bytes = bytes;
    scenario.together &= bytes > 0;
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
    let rename_both = |[one, other]: &mut [u32; 2]| rename(one, own) & rename(other, own);
    scenario.firewalls.retain_mut(rename_both);
    scenario.planned_faults.retain_mut(|PlannedFault { what, .. }| match what {
        Fault::Reset { machines } => rename_both(machines),
        Fault::Partition { machines, .. } => {
            machines.retain_mut(|machine| rename(machine, own));
            !machines.is_empty()
        }
        Fault::Kill { machine, .. }
        | Fault::Freeze { machine, .. }
        | Fault::Pause { machine, .. }
        | Fault::HangUp { machine }
        | Fault::Rate { machine, .. }
        | Fault::Corrupt { machine } => rename(machine, own),
        Fault::Cancel => true,
    });
}
