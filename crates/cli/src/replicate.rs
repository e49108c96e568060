//! One push from its start to its report, for `rdmc push` and `rdmc demo` alike.

use std::net::{IpAddr, Ipv4Addr};

use files::{HostState, Push, PushEvent, PushReport, PushSettings, Reach, Source};

use crate::{
    failure::Failure,
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
    let called = settings.hosts.iter().enumerate();
    let called: Vec<(usize, String)> = called
        .filter(|(_, host)| host.reach == Reach::Calls)
        .map(|(index, host)| (index, host.name.clone()))
        .collect();
    let (local_only, secret) = (settings.local_only, settings.secret.clone());
    let advertise = settings.advertise;
    let push = Push::open(source, settings).map_err(Failure::because)?;
    interrupt.watch(push.handle());
    let addresses = own_addresses(local_only, advertise)?;
    let callback = Callback { addresses, port: push.control_port(), secret };
    let mut receivers = Receivers::launch(launcher, &called, &callback, &push.handle())?;
    let mut report = push.run(observe);
    receivers.end();
    if report.error.is_none() {
        add_last_words(&mut report, &receivers);
    }
    Ok(report)
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
fn add_last_words(report: &mut PushReport, receivers: &Receivers) {
    for (index, host) in report.hosts.iter_mut().enumerate() {
        if let HostState::Failed(reason) = &mut host.state
            && let Some(words) = receivers.last_words(index)
            && !reason.contains(&words)
            && !words.contains(reason.as_str())
        {
            reason.push_str(&format!(" [{words}]"));
        }
    }
}
