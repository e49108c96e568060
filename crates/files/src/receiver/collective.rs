//! A receiver in a measurement of collective operations.

use std::{sync::Arc, thread};

use rdmc::{Context, Error};

use crate::{
    collective::measure,
    control::Control,
    messages::{Blamed, MeasureCollective, ToRoot, team_predicate},
    ranges::RangeList,
};

/// Joins the team and takes part, on a thread that ends by the deadlines of the team; the root learns the outcome.
///
/// Errors: invalid terms, or no thread.
pub(super) fn take_part(
    request: MeasureCollective,
    context: &Arc<Context>,
    control: &Arc<Control>,
) -> Result<(), String> {
    request.plan.check()?;
    let (context, control) = (Arc::clone(context), Arc::clone(control));
    let thread = thread::Builder::new().name("rdmc-measure".into());
    let run = move || {
        let group = request.team;
        let message = match measure_all(&request, &context, &control) {
            Ok(()) => ToRoot::Received { group },
            Err(error) => {
                let member = match &error {
                    Error::TeamFailed(failure) => failure.member,
                    Error::Member { member, .. } => Some(*member),
                    _ => None,
                };
                let blamed = member.map(|member| Blamed { member, noticed_by: None });
                let (detail, has) = (team_predicate(&error), RangeList::default());
                ToRoot::GroupFailed { group, blamed, detail, has }
            }
        };
        // Fails only if the session has ended.
        let _ = control.send(&message);
    };
    thread.spawn(run).map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

fn measure_all(
    request: &MeasureCollective,
    context: &Context,
    control: &Control,
) -> Result<(), Error> {
    let team = context.create_team(request.team_settings())?;
    let _ = control.send(&ToRoot::Joined { group: request.team });
    for &bytes in &request.plan.sizes {
        measure(&team, &request.plan, bytes)?;
    }
    team.close(crate::messages::TEAM_CLOSE_TIMEOUT)
}
