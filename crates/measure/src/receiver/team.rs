//! A receiver in a measurement of collective operations.

use std::{sync::Arc, thread};

use files::receiver::{GatheringReceiver, ReceiveError};
use rdmc::{Context, Error};

use super::{available, groups::answer};
use crate::{
    collective::{TEAM_CLOSE_TIMEOUT, blamed, measure, team_predicate},
    messages::{Answer, MeasureCollective},
};

/// Joins the team and takes part, on a thread that ends by the deadlines of the team. If that is impossible, it is reported to
/// the
/// root.
///
/// Errors: the root is lost.
pub(super) fn take_part(
    request: MeasureCollective,
    session: &GatheringReceiver<'_>,
) -> Result<(), ReceiveError> {
    let number = request.number;
    match start(request, session) {
        Ok(()) => Ok(()),
        Err(detail) => answer(&session.sender(), &Answer::Failed { number, detail }),
    }
}

/// Errors: invalid terms, or no thread.
fn start(request: MeasureCollective, session: &GatheringReceiver<'_>) -> Result<(), String> {
    request.plan.check()?;
    session.check_members(&request.addresses, request.rank)?;
    if session.is_limited() {
        available::check(request.plan.sizes.iter().copied().max().unwrap_or(0))?;
    }
    let joining = session.joining()?;
    let (context, sender) = (Arc::clone(session.context()), session.sender());
    let run = move || {
        let _joining = joining;
        // What blames a member the team tells the root.
        if let Err(error) = measure_all(&request, &context)
            && blamed(&error).is_none()
        {
            let detail = match &error {
                Error::Member { .. } | Error::Peer { .. } => sender.explain(&error),
                error => team_predicate(error),
            };
            // Fails only if the session has ended.
            let _ = answer(&sender, &Answer::Failed { number: request.number, detail });
        }
    };
    let thread = thread::Builder::new().name("rdmc-measure".into()).spawn(run);
    thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

fn measure_all(request: &MeasureCollective, context: &Context) -> Result<(), Error> {
    let team = context.create_team(request.team_settings())?;
    for &bytes in &request.plan.sizes {
        measure(&team, &request.plan, bytes)?;
    }
    team.close(TEAM_CLOSE_TIMEOUT)
}
