//! One push from its start to its report, for `rdmc push` and `rdmc demo` alike, and what `rdmc bench`
//! has in common with it.

use std::net::{IpAddr, Ipv4Addr};

use files::{HostState, Push, PushEvent, PushHandle, PushReport, PushSettings, Reach, Source};
use rdmc::Secret;

use crate::{
    failure::{Failure, say},
    interrupt::Interrupt,
    launch::{Callback, Launcher, Receivers},
};

/// Starts the receivers that have to be started, replicates, and waits for them to end.
///
/// Errors: what prevents even the start; everything else is in the report.
pub fn replicate(
    source: Source,
    settings: PushSettings,
    launcher: &Launcher,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(PushEvent),
) -> Result<PushReport, Failure> {
    let start = Start::of(&settings);
    let push = Push::open(source, settings).map_err(|error| Failure::of_push(&error))?;
    if let Some(address) = push.admission_address() {
        say(format_args!("receivers may join at {address}"));
    }
    interrupt.watch(push.handle());
    let handle = push.handle();
    let (mut receivers, callback) = start.receivers(launcher, push.control_port(), &handle)?;
    let mut report = push.run(&mut |event| {
        if let PushEvent::Retry { host, start: again, .. } = event
            && let Some((_, name)) = start.called.iter().find(|(called, _)| *called == host)
        {
            receivers.launch_again(launcher, (host, name), again, &callback, &handle);
        }
        if let PushEvent::Host { host, state } = &event
            && *state != HostState::Awaited
        {
            receivers.has_called(*host);
        }
        observe(event);
    });
    // Receivers that were told that it is over need their time to let go of what they have.
    let is_over = report.error.is_some();
    receivers.end(&|host| match report.hosts[host].state {
        HostState::Failed(_) => !is_over,
        HostState::Unknown(_) => true,
        _ => false,
    });
    if report.error.is_none() {
        for (index, host) in report.hosts.iter_mut().enumerate() {
            if let HostState::Failed(reason) | HostState::Unknown(reason) = &mut host.state {
                add_last_words(reason, index, &receivers);
            }
        }
    }
    Ok(report)
}

/// What it takes to start the receivers that have to be started.
pub struct Start {
    called: Vec<(usize, String)>,
    local_only: bool,
    advertise: Option<IpAddr>,
    secret: Secret,
}

impl Start {
    pub fn of(settings: &PushSettings) -> Self {
        let called = settings.hosts.iter().enumerate();
        let called = called.filter(|(_, host)| host.reach == Reach::Calls);
        Self {
            called: called.map(|(index, host)| (index, host.name.clone())).collect(),
            local_only: settings.local_only,
            advertise: settings.advertise,
            secret: settings.secret.clone(),
        }
    }

    /// Starts them. They call this machine at the port; what cannot be started is reported.
    ///
    /// Errors: this machine has no address; no thread can be had.
    pub fn receivers(
        &self,
        launcher: &Launcher,
        port: u16,
        push: &PushHandle,
    ) -> Result<(Receivers, Callback), Failure> {
        let addresses = own_addresses(self.local_only, self.advertise)?;
        let callback = Callback { addresses, port, secret: self.secret.clone() };
        let receivers = Receivers::launch(launcher, &self.called, &callback, push)?;
        Ok((receivers, callback))
    }
}

/// Where receivers may find this machine.
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
    // IPv4 first: the order in which receivers try.
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.dedup();
    if addresses.is_empty() {
        let remedy = "connect it, or try `rdmc push --local`";
        return Err(Failure::Failed(format!("this machine has no network address; {remedy}")));
    }
    Ok(addresses)
}

/// A receiver's own words say more than "the connection was lost".
pub fn add_last_words(reason: &mut String, host: usize, receivers: &Receivers) {
    if let Some(words) = receivers.last_words(host)
        && !reason.contains(&words)
        && !words.contains(reason.as_str())
    {
        reason.push_str(&format!(" [{words}]"));
    }
}
