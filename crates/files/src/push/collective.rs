//! Measurements of collective operations: this machine and the hosts make a team.

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use rdmc::{Context, Error, TeamFailure};
use session::Deadline;

use super::{
    effects::Effects,
    inbox::{Event, Events, Input, MeasureEvent},
    io::new_number,
    run::Run,
    settings::PushError,
};
use crate::{
    collective::{CollectiveMeasurement, CollectivePlan, measure},
    messages::{MeasureCollective, TEAM_CLOSE_TIMEOUT, ToReceiver, ToRoot, team_predicate},
    system::system,
};

/// How long the measurement of one length may take; an operation that does not complete fails sooner.
const SIZE_TIMEOUT: Duration = Duration::from_secs(900);

/// The measurement of a team, at this machine.
pub(super) struct CollectiveRun<'a, 'b> {
    pub(super) run: &'a mut Run<'b>,
    pub(super) plan: &'a CollectivePlan,
}

impl CollectiveRun<'_, '_> {
    /// Measures all lengths in one team of all hosts that are ready. Adds what was measured, also before a failure.
    ///
    /// Errors: nothing can be measured any more.
    pub(super) fn measure_all(
        mut self,
        measured: &mut Vec<CollectiveMeasurement>,
        measuring: &mut dyn FnMut(u64),
    ) -> Result<(), PushError> {
        self.run.gather()?;
        let all = 0..self.run.core.hosts.len();
        let hosts: Vec<usize> = all.filter(|&host| self.run.core.hosts[host].is_ready()).collect();
        let Some(context) = self.run.push.context.get().cloned() else { return Ok(()) };
        if hosts.is_empty() {
            return Ok(());
        }
        let number = new_number()?;
        self.start(number, &hosts, context)?;
        let mut sizes = self.plan.sizes.iter();
        let mut deadline = Deadline::after(SIZE_TIMEOUT);
        if let Some(&bytes) = sizes.next() {
            measuring(bytes);
        }
        loop {
            if deadline.left().is_zero() {
                return Err(PushError::Group("did not complete a measurement in time".into()));
            }
            match self.run.next(Some(deadline)) {
                Some(Input::Measured(of, MeasureEvent::Collective(outcome))) if of == number => {
                    match outcome {
                        Ok(Some(measurement)) => {
                            measured.push(measurement);
                            deadline = Deadline::after(SIZE_TIMEOUT);
                            sizes.next().into_iter().for_each(|&bytes| measuring(bytes));
                        }
                        Ok(None) => return Ok(()),
                        Err(error) => return self.fail(&hosts, &error),
                    }
                }
                Some(Input::Event(Event::Message {
                    host,
                    message: ToRoot::GroupFailed { group, blamed, detail, .. },
                    ..
                })) if group == number => {
                    // It is told by the team here as well, unless it was never made there.
                    if blamed.is_none() {
                        self.run.core.fail(&mut self.run.io, host, &format!("it {detail}"));
                        return Ok(());
                    }
                }
                Some(Input::Event(event)) => self.run.handle(event)?,
                Some(Input::Measured(..)) | None => {}
            }
        }
    }

    /// Starts the measurement at the hosts, and here on a thread that ends by the deadlines of the team.
    fn start(
        &mut self,
        number: u64,
        hosts: &[usize],
        context: Arc<Context>,
    ) -> Result<(), PushError> {
        let mut addresses = vec![self.run.core.hosts.own_address(self.run.io.address())];
        for &host in hosts {
            let host = &self.run.core.hosts[host];
            addresses.extend(host.ip.map(|ip| SocketAddr::new(ip, host.port)));
        }
        let request = |rank| MeasureCollective {
            team: number,
            rank,
            addresses: addresses.clone(),
            plan: self.plan.clone(),
        };
        for (rank, &host) in (1..).zip(hosts) {
            self.run.io.send_message(host, &ToReceiver::Collective(request(rank)));
        }
        let (request, events) = (request(0), self.run.push.events.clone());
        let run = move || {
            let outcome = take_part(&request, &context, &events);
            send(&events, number, outcome.map(|()| None));
        };
        let thread = thread::Builder::new().name("rdmc-measure".into()).spawn(run);
        thread.map(drop).map_err(|error| system("starting a thread", error).into())
    }

    /// Fails the host that has failed the team; the others have not failed, but nothing more is measured.
    ///
    /// Errors: no host has.
    fn fail(&mut self, hosts: &[usize], error: &Error) -> Result<(), PushError> {
        let member = match error {
            Error::TeamFailed(TeamFailure { member, .. }) => *member,
            Error::Member { member, .. } => Some(*member),
            _ => None,
        };
        let index = member.and_then(|member| (member as usize).checked_sub(1));
        let Some(&host) = index.and_then(|index| hosts.get(index)) else {
            return Err(PushError::Group(team_predicate(error)));
        };
        if self.run.core.hosts[host].is_ready() {
            let why = format!("it {}", team_predicate(error));
            self.run.core.fail(&mut self.run.io, host, &why);
        }
        Ok(())
    }
}

/// Joins the team and takes part; reports each length.
fn take_part(request: &MeasureCollective, context: &Context, events: &Events) -> Result<(), Error> {
    let team = context.create_team(request.team_settings())?;
    for &bytes in &request.plan.sizes {
        let times_ns = measure(&team, &request.plan, bytes)?;
        let of_member = times_ns.chunks(times_ns.len() / team.members() as usize);
        let times = of_member.map(|times| times.iter().copied().map(Duration::from_nanos));
        let times = times.map(Iterator::collect).collect();
        send(events, request.team, Ok(Some(CollectiveMeasurement { bytes, times })));
    }
    team.close(TEAM_CLOSE_TIMEOUT)
}

fn send(events: &Events, number: u64, outcome: Result<Option<CollectiveMeasurement>, Error>) {
    // Fails only if the bench has ended.
    let _ = events.send(Input::Measured(number, MeasureEvent::Collective(outcome)));
}
