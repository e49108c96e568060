//! Which event means what to a coordinator: the same for real pushes and simulated ones.

use std::time::Duration;

use super::{
    coordinator::Coordinator,
    event::Event,
    host::Step,
    settings::{PushError, PushEvent},
    stage::Stage,
};

/// How long receivers may take to hang up after their last message.
const FAREWELL: Duration = Duration::from_secs(3);
/// The same for hosts that were given up: many of them cannot hear it any more.
const LOST_FAREWELL: Duration = Duration::from_millis(300);
/// Hosts of one push, with those that have joined it.
const HOSTS_MAX: usize = 10_000;

/// At this time of the push something has happened, or only time has passed: lets the coordinator do
/// everything that it can do now. An error ends the push.
pub fn step<S: Stage>(
    core: &mut Coordinator<'_>,
    stage: &mut S,
    now: Duration,
    event: Option<Event<S::Connection, S::Group>>,
) {
    core.now = now;
    let handled = event.map_or(Ok(()), |event| handle(core, stage, event));
    let advanced = handled.and_then(|()| core.advance(stage));
    advanced.unwrap_or_else(|error| core.stop(stage, error));
}

/// Tells a coordinator what has happened. Errors: those that end the push.
pub fn handle<S: Stage>(
    core: &mut Coordinator<'_>,
    stage: &mut S,
    event: Event<S::Connection, S::Group>,
) -> Result<(), PushError> {
    match event {
        Event::Came(host, connection) => came(core, stage, host, connection),
        Event::Asks(name, connection) => match admit(core, stage, name, &connection) {
            Ok(host) => came(core, stage, host, connection),
            Err(reason) => stage.turn_away(connection, reason),
        },
        Event::Said { host, connection, message } => {
            if stage.is_current(host, connection) {
                core.said(stage, host, message);
            }
        }
        Event::Gone { host, connection, how } => {
            if stage.hang_up(host, connection) {
                core.gone(stage, host, &how);
            }
        }
        Event::HostFailed { host, start, reason } => core.not_started(stage, host, start, &reason),
        Event::Checked { host, connection, right } => {
            if stage.is_current(host, connection) {
                core.checked(stage, host, right?);
            }
        }
        Event::Digest(digest) => core.digested(stage, digest?)?,
        Event::Joined(number, Ok(group)) => {
            if core.is_joining(number) {
                stage.stands(number, group);
                core.joined(stage, number, Ok(()))?;
            } else {
                stage.let_go(number, group);
            }
        }
        Event::Joined(number, Err(error)) => core.joined(stage, number, Err(error))?,
        Event::Ended(number, outcome) => {
            stage.ended(number);
            core.ended(stage, number, outcome);
        }
        Event::Cancel => return Err(PushError::Cancelled),
    }
    Ok(())
}

fn came<S: Stage>(
    core: &mut Coordinator<'_>,
    stage: &mut S,
    host: usize,
    connection: S::Connection,
) {
    if !core.hosts.expects(host) {
        let reason = "it has been heard of already: is it running twice?";
        return stage.turn_away(connection, reason);
    }
    match stage.welcome(host, connection, &core.hosts[host].plan) {
        Ok((ip, own_ip)) => core.came(stage, host, ip, own_ip),
        Err(error) => core.fail(stage, host, &error.to_string()),
    }
}

/// Lets a receiver in that has come by itself. Errors: why not.
fn admit<S: Stage>(
    core: &mut Coordinator<'_>,
    stage: &mut S,
    name: String,
    connection: &S::Connection,
) -> Result<usize, &'static str> {
    // One that has joined several times is known by this name several times.
    let known = core.hosts.iter().rposition(|host| host.plan.name == name);
    if let Some(host) = known.filter(|&host| core.hosts.expects(host)) {
        return Ok(host);
    }
    let Some(admission) = &core.settings.admission else { return Err("nobody may join") };
    if core.stopped.is_some() {
        return Err("the push is being ended");
    }
    if known.is_some_and(|host| core.hosts[host].is_open()) {
        return Err("a host of this name takes part already; see --name");
    }
    if core.hosts.len() >= HOSTS_MAX {
        return Err("too many hosts take part");
    }
    let host = core.admit(admission.plan(name.clone(), core.settings.root_rack));
    stage.add_host(connection);
    stage.observe(PushEvent::Joined { host, name });
    Ok(host)
}

/// Since the last message to all, for how long the root waits in all for those that have not hung up; `None` if
/// all have.
pub fn farewell(core: &Coordinator<'_>, stage: &impl Stage) -> Option<Duration> {
    let patience = |host: usize| match core.hosts[host].step {
        Step::Failed(_) | Step::Unknown(_) => LOST_FAREWELL,
        _ => FAREWELL,
    };
    stage.connected().into_iter().map(patience).max()
}
