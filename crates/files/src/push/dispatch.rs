//! Passes events to a root's state machine, in real and in simulated pushes.

use std::time::Duration;

use super::{
    effects::Effects,
    event::Event,
    host::{Host, Step},
    machine::RootMachine,
    settings::{PushError, PushEvent},
};
use crate::group_terms::HOSTS_MAX;

/// How long the root waits for receivers to disconnect after the last message.
const LINGER: Duration = Duration::from_secs(3);
/// The same for hosts that were given up, many of which are unreachable.
const LOST_LINGER: Duration = Duration::from_millis(300);

/// Handles the events that are here, or only the passing of time, and then lets the state machine once do everything that is
/// possible `now`: that looks at all hosts, each of which has events. Errors end the push.
pub fn step<S: Effects>(
    core: &mut RootMachine<'_>,
    effects: &mut S,
    now: Duration,
    mut next: impl FnMut(&mut S) -> Option<Event<S::Connection, S::Group>>,
) {
    core.now = now;
    while let Some(event) = next(effects) {
        handle(core, effects, event).unwrap_or_else(|error| core.stop(effects, error));
    }
    core.advance(effects).unwrap_or_else(|error| core.stop(effects, error));
}

/// Passes one event to a root's state machine. Errors: those that end the push.
pub fn handle<S: Effects>(
    core: &mut RootMachine<'_>,
    effects: &mut S,
    event: Event<S::Connection, S::Group>,
) -> Result<(), PushError> {
    match event {
        Event::Connected(host, connection) => connected(core, effects, host, connection),
        Event::JoinRequested { name, shares, connection } => {
            match admit(core, effects, name, &connection) {
                Ok(host) => {
                    core.hosts[host].shares = shares;
                    connected(core, effects, host, connection);
                }
                Err(reason) => effects.reject(connection, reason),
            }
        }
        Event::Message { host, connection, message } => {
            if effects.is_current(host, connection) {
                core.on_message(effects, host, message);
            }
        }
        Event::Disconnected { host, connection, reason } => {
            if effects.disconnect(host, connection) {
                core.on_disconnected(effects, host, &reason);
            }
        }
        Event::HostFailed { host, start, reason } => {
            core.on_start_failed(effects, host, start, &reason);
        }
        Event::Compared { host, connection, matching } => {
            if effects.is_current(host, connection) {
                core.on_compared(effects, host, matching?);
            }
        }
        Event::Digest(digest) => core.on_source_digest(effects, digest?)?,
        Event::Chunks(digests) => core.on_chunks_read(digests?),
        Event::Looked(outcome) => {
            outcome?;
            core.on_source_unchanged();
        }
        Event::Read(part) => core.on_read(part.map_err(PushError::Input)?),
        Event::Joined(number, Ok(group)) => {
            if core.is_joining(number) {
                effects.add_group(number, group);
                core.on_joined(effects, number, Ok(()))?;
            } else {
                effects.discard_group(number, group);
            }
        }
        Event::Joined(number, Err(error)) => core.on_joined(effects, number, Err(error))?,
        Event::Ended(number, outcome) => {
            effects.remove_group(number);
            core.on_ended(effects, number, outcome);
        }
        Event::Cancel => return Err(PushError::Cancelled),
    }
    Ok(())
}

fn connected<S: Effects>(
    core: &mut RootMachine<'_>,
    effects: &mut S,
    host: usize,
    connection: S::Connection,
) {
    if !core.hosts.expects(host) {
        let reason = "a receiver of this host has connected already: is it running twice?";
        return effects.reject(connection, reason);
    }
    match effects.accept(host, connection, &core.hosts[host].plan, core.relays_listing(host)) {
        Ok((ip, own_ip)) => core.on_connected(effects, host, ip, own_ip),
        Err(error) => core.fail(effects, host, &error.to_string()),
    }
}

/// Admits a receiver that asks to join. Errors: why not.
fn admit<S: Effects>(
    core: &mut RootMachine<'_>,
    effects: &mut S,
    name: String,
    connection: &S::Connection,
) -> Result<usize, &'static str> {
    // A receiver that joined several times has several entries of this name.
    let known = core.hosts.iter().rposition(|host| host.plan.name == name);
    // A receiver that joins cannot take the place of a host that this push has started, or connects to.
    let has_joined = |host: &usize| *host >= core.settings.hosts.len();
    if let Some(host) = known.filter(has_joined).filter(|&host| core.hosts.expects(host)) {
        return Ok(host);
    }
    let Some(admission) = &core.settings.admission else {
        return Err("this push admits no further hosts");
    };
    if core.stopped.is_some() {
        return Err("the push is ending");
    }
    let is_taken = |name: &str| {
        let is_here = |host: &Host| host.is_open() || host.is_sharing();
        core.hosts.iter().any(|host| host.plan.name == name && is_here(host))
    };
    let name = match is_taken(&name) {
        // Who fetches needs no name.
        true if core.is_served() => (2..)
            .map(|number| format!("{name} ({number})"))
            .find(|name| !is_taken(name))
            .unwrap_or(name),
        true => return Err("a host of this name already takes part; choose another --name"),
        false => name,
    };
    if core.hosts.len() >= HOSTS_MAX {
        return Err("the push has the maximum number of hosts");
    }
    let host = core.admit(admission.plan(name.clone(), core.settings.root_rack));
    effects.add_host(connection);
    effects.observe(PushEvent::Joined { host, name });
    Ok(host)
}

/// How long after the last message the root waits for receivers that are still connected; `None` if there are
/// none.
pub fn linger_timeout(core: &RootMachine<'_>, effects: &impl Effects) -> Option<Duration> {
    let timeout = |host: usize| match core.hosts[host].step {
        Step::Failed(_) | Step::Unknown(_) => LOST_LINGER,
        _ => LINGER,
    };
    effects.connected().into_iter().map(timeout).max()
}
