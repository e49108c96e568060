//! One push from its start to its report, for `rdmc push` and `rdmc demo`; and the start of receivers for `rdmc bench`.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use files::{
    HostPlan, HostState, Push, PushEvent, PushHandle, PushReport, PushSettings, Reach, Source,
};
use rdmc::Secret;

use crate::{
    failure::{Failure, print_message},
    interrupt::Interrupt,
    launch::{Callback, Launcher, Receivers, Recipient, Superior},
};

/// Launches receivers, replicates, and waits for the receivers to end.
///
/// Errors: those that prevent the start; all others are in the report.
pub fn replicate(
    source: Source,
    settings: PushSettings,
    launcher: &Launcher,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(PushEvent),
) -> Result<PushReport, Failure> {
    let start = Start::of(&settings, launcher.makes_directories);
    let push = Push::open(source, settings).map_err(|error| Failure::of_push(&error))?;
    if let Some(address) = push.admission_address() {
        print_message(format_args!("receivers may join at {address}"));
    }
    interrupt.watch(push.handle());
    let handle = push.handle();
    let (mut receivers, callback) = start.receivers(launcher, push.control_port(), &handle)?;
    let mut report = push.run(&mut |event| {
        if let PushEvent::Retry { host, start: again, .. } = event
            && let Some(to) = start.hosts.iter().find(|to| to.host == host)
        {
            receivers.launch_again(launcher, to, again, &callback);
        }
        if let PushEvent::Host { host, state } = &event
            && *state != HostState::Awaited
        {
            receivers.has_connected(*host);
        }
        observe(event);
    });
    // After an error all receivers have the last message, and need time to close their partial copies.
    let is_over = report.error.is_some();
    receivers.end(&|host| match report.hosts[host].state {
        HostState::Failed(_) => !is_over,
        HostState::Unknown(_) => true,
        _ => false,
    });
    if report.error.is_none() {
        for (index, host) in report.hosts.iter_mut().enumerate() {
            if let HostState::Failed(reason) | HostState::Unknown(reason) = &mut host.state {
                add_last_line(reason, index, &receivers);
            }
        }
    }
    Ok(report)
}

/// Receivers to launch, and the parameters of their invitations.
pub struct Start {
    hosts: Vec<Recipient>,
    local_only: bool,
    advertise: Option<IpAddr>,
    secret: Secret,
}

impl Start {
    /// With `mkdir` receivers make the directories of their copies.
    pub fn of(settings: &PushSettings, mkdir: bool) -> Self {
        let directory = |plan: &HostPlan| {
            let parent = Path::new(&plan.destination).parent().and_then(Path::to_str);
            parent.filter(|parent| mkdir && !parent.is_empty()).map(str::to_owned)
        };
        let hosts = settings.hosts.iter().enumerate();
        let hosts = hosts.filter(|(_, host)| host.reach == Reach::Calls);
        let recipient = |(host, plan): (usize, &HostPlan)| Recipient {
            host,
            name: plan.name.clone(),
            directory: directory(plan),
        };
        Self {
            hosts: hosts.map(recipient).collect(),
            local_only: settings.local_only,
            advertise: settings.advertise,
            secret: settings.secret.clone(),
        }
    }

    /// Launches them; they connect to this machine at the port. Receivers that cannot be started are reported to the
    /// push.
    ///
    /// Errors: this machine has no address; no thread.
    pub fn receivers(
        &self,
        launcher: &Launcher,
        port: u16,
        push: &PushHandle,
    ) -> Result<(Receivers, Callback), Failure> {
        let addresses = own_addresses(self.local_only, self.advertise)?;
        let callback = Callback { addresses, port, secret: self.secret.clone() };
        let superior = Superior::Push(push.clone());
        let receivers = Receivers::launch(launcher, &self.hosts, &callback, &superior)?;
        Ok((receivers, callback))
    }
}

/// Addresses of this machine for receivers.
fn own_addresses(local_only: bool, advertise: Option<IpAddr>) -> Result<Vec<IpAddr>, Failure> {
    if local_only {
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    }
    if let Some(address) = advertise {
        return Ok(vec![address]);
    }
    let interfaces =
        if_addrs::get_if_addrs().map_err(Failure::while_doing("listing network interfaces"))?;
    let mut addresses: Vec<IpAddr> = interfaces
        .iter()
        .filter(|interface| !interface.is_loopback() && !interface.is_link_local())
        .map(if_addrs::Interface::ip)
        .collect();
    // IPv4 first: receivers try in this order.
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.dedup();
    if addresses.is_empty() {
        let remedy = "connect it to a network, or use --local";
        return Err(Failure::Failed(format!("this machine has no network address; {remedy}")));
    }
    Ok(addresses)
}

/// Adds the last line of a receiver's process to a failure, unless one contains the other.
pub fn add_last_line(reason: &mut String, host: usize, receivers: &Receivers) {
    if let Some(line) = receivers.last_line(host)
        && !reason.contains(&line)
        && !line.contains(reason.as_str())
    {
        reason.push_str(&format!(" [{line}]"));
    }
}
