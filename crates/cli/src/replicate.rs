//! One push from its start to its report, for `rdmc push` and `rdmc demo`; and the start of receivers for `rdmc bench`.

use std::net::{IpAddr, Ipv4Addr};

use files::{
    HostPlan, HostState, HostTokens, Push, PushEvent, PushHandle, PushReport, PushSettings, Reach,
    Source,
};
use rdmc::Secret;

use crate::{
    failure::{Failure, print_message},
    interrupt::Interrupt,
    launch::{self, Callback, Launcher, Receivers, Recipient, Superior},
    network::{self, Choice, Network},
};

/// Launches receivers, replicates, and waits for the receivers to end.
///
/// Errors: the push cannot start; all other errors are in the report.
pub fn replicate(
    source: Source,
    mut settings: PushSettings,
    launcher: &Launcher,
    interrupt: &Interrupt,
    observe: &mut dyn FnMut(PushEvent),
) -> Result<PushReport, Failure> {
    let start = Start::of(&mut settings, launcher)?;
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
    // After an error all receivers have their last message, but need time to close their partial copies.
    let is_over = report.error.is_some();
    receivers.end(&|host| match report.hosts[host].state {
        HostState::Failed(_) => !is_over,
        HostState::Unknown(_) => true,
        _ => false,
    });
    if launcher.networks == Choice::Any {
        for (network, hosts) in receivers.faster_networks() {
            print_message(format_args!(
                "{hosts} of the hosts share a faster network with this machine than the one they used: {network}; select it \
                 with --interface or --network"
            ));
        }
    }
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
    /// The start of a push's launched receivers; adds their tokens to the settings.
    ///
    /// Errors: no random numbers.
    pub fn of(settings: &mut PushSettings, launcher: &Launcher) -> Result<Self, Failure> {
        // If one command starts all hosts, all get the same invitation.
        let tokens = HostTokens::random(launcher.takes_lists);
        let tokens = tokens.map_err(Failure::while_doing("making a token for each host"))?;
        let hosts = settings.hosts.iter().enumerate();
        let hosts = hosts.filter(|(_, host)| host.reach == Reach::Calls);
        let recipient = |(host, plan): (usize, &HostPlan)| {
            let (name, token) = (plan.name.clone(), tokens.of(&plan.name));
            Recipient { host, name, token }
        };
        let hosts = hosts.map(recipient).collect();
        settings.tokens = Some(tokens);
        let (local_only, advertise) = (settings.local_only, settings.advertise);
        Ok(Self { hosts, local_only, advertise, secret: settings.secret.clone() })
    }

    /// Launches the receivers; they connect to this machine at the port. Receivers that cannot be started are reported to the
    /// push.
    ///
    /// Errors: this machine has no address; no thread.
    pub fn receivers(
        &self,
        launcher: &Launcher,
        port: u16,
        push: &PushHandle,
    ) -> Result<(Receivers, Callback), Failure> {
        let networks = self.networks(&launcher.networks)?;
        let mut addresses: Vec<IpAddr> = networks.iter().map(|network| network.address).collect();
        addresses.dedup();
        if self.local_only {
            addresses = vec![Ipv4Addr::LOCALHOST.into()];
        } else if let Some(address) = self.advertise {
            addresses = vec![address];
        } else if addresses.is_empty() {
            let remedy = "connect it to a network, or use --local";
            return Err(Failure::Failed(format!("this machine has no network address; {remedy}")));
        }
        let (secret, makes_directories) = (self.secret.clone(), launcher.makes_directories);
        let callback = Callback { addresses, networks, port, secret, makes_directories };
        let superior = Superior::Push(push.clone());
        let receivers = Receivers::launch(launcher, &self.hosts, &callback, &superior)?;
        Ok((receivers, callback))
    }

    /// Networks at which receivers reach this machine, in the order in which they try them.
    fn networks(&self, choice: &Choice) -> Result<Vec<Network>, Failure> {
        if self.local_only || self.advertise.is_some() {
            return Ok(Vec::new());
        }
        choice.among(network::own()?)
    }
}

/// Adds the last line of a receiver's process to a failure, unless one contains the other.
pub fn add_last_line(reason: &mut String, host: usize, receivers: &Receivers) {
    if let Some(line) = receivers.last_line(host)
        && !launch::is_in(reason, &line)
        && !launch::is_in(&line, reason)
    {
        reason.push_str(&format!(" [{line}]"));
    }
}
