//! Measurements of collective operations: this machine and the hosts make a team.

use std::{sync::Arc, time::Duration};

use files::PushError;
use rdmc::{Context, Error};
use session::Deadline;

use super::session::{Event, Input, Reporter, Session, start_thread};
use crate::{
    collective::{
        CollectiveMeasurement, CollectivePlan, TEAM_CLOSE_TIMEOUT, blamed, measure, team_predicate,
    },
    messages::{Answer, MeasureCollective, Request},
};

/// How long the measurement of one length may take; an operation that does not complete fails sooner.
const SIZE_TIMEOUT: Duration = Duration::from_secs(900);

/// Measures all lengths in one team of all hosts that are ready. Adds what was measured, also before a failure.
///
/// Errors: nothing can be measured any more.
pub(super) fn measure_all(
    session: &mut Session<'_>,
    plan: &CollectivePlan,
    measured: &mut Vec<CollectiveMeasurement>,
    measuring: &mut dyn FnMut(u64),
) -> Result<(), PushError> {
    session.root.gather()?;
    TeamRun { session, plan }.measure_all(measured, measuring)
}

/// The measurement of a team, at this machine.
struct TeamRun<'a, 'b> {
    session: &'a mut Session<'b>,
    plan: &'a CollectivePlan,
}

impl TeamRun<'_, '_> {
    fn measure_all(
        &mut self,
        measured: &mut Vec<CollectiveMeasurement>,
        measuring: &mut dyn FnMut(u64),
    ) -> Result<(), PushError> {
        let hosts = self.session.root.ready();
        let Some(context) = self.session.gathering.context().cloned() else { return Ok(()) };
        if hosts.is_empty() {
            return Ok(());
        }
        let number = self.session.root.number()?;
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
            match self.session.next(deadline)? {
                Some(Input::Reported(of, Event::Collective(outcome))) if of == number => {
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
                Some(Input::Answered(host, Answer::Failed { number: of, detail }))
                    if of == number =>
                {
                    self.session.root.fail(host, &format!("it {detail}"));
                    return Ok(());
                }
                Some(Input::Reported(..) | Input::Answered(..)) | None => {}
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
        let addresses = self.session.root.addresses(hosts);
        let request = |rank| MeasureCollective {
            number,
            rank,
            addresses: addresses.clone(),
            plan: self.plan.clone(),
        };
        for (rank, &host) in (1..).zip(hosts) {
            self.session.send(host, &Request::Collective(request(rank)))?;
        }
        let (request, reporter) = (request(0), self.session.reporter(number));
        start_thread("rdmc-measure", move || {
            let outcome = take_part(&request, &context, &reporter);
            reporter.report(Event::Collective(outcome.map(|()| None)));
        })
    }

    /// Fails the host that has failed the team; the others have not failed, but nothing more is measured.
    ///
    /// Errors: no host has.
    fn fail(&mut self, hosts: &[usize], error: &Error) -> Result<(), PushError> {
        let index = blamed(error).and_then(|member| (member as usize).checked_sub(1));
        let Some(&host) = index.and_then(|index| hosts.get(index)) else {
            return Err(PushError::Group(team_predicate(error)));
        };
        if self.session.root.is_ready(host) {
            self.session.root.fail(host, &format!("it {}", team_predicate(error)));
        }
        Ok(())
    }
}

/// Joins the team and takes part; reports each length.
fn take_part(
    request: &MeasureCollective,
    context: &Context,
    reporter: &Reporter,
) -> Result<(), Error> {
    let team = context.create_team(request.team_settings())?;
    for &bytes in &request.plan.sizes {
        let times_ns = measure(&team, &request.plan, bytes)?;
        let of_member = times_ns.chunks(times_ns.len() / team.members() as usize);
        let times = of_member.map(|times| times.iter().copied().map(Duration::from_nanos));
        let times = times.map(Iterator::collect).collect();
        reporter.report(Event::Collective(Ok(Some(CollectiveMeasurement { bytes, times }))));
    }
    team.close(TEAM_CLOSE_TIMEOUT)
}
