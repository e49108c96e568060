//! The writes as a picture.

use super::{
    options::Operation,
    plan::{Phase, Plan},
    text,
};
use crate::{
    failure::Failure,
    plan::svg::{Arrow, Names, Picture},
};

// Colours.
const FOLDED: u32 = 0;
const COPIED: u32 = 1;

const NAMES: Names = Names {
    arrows: "Each arrow is a write of a member's data.",
    label: |colour| if colour == FOLDED { "+" } else { "=" }.to_owned(),
    colour: |colour| if colour == FOLDED { "folded" } else { "copied" }.to_owned(),
    complete: "has the result",
};

/// Each phase has a colour. Errors: too large to read.
pub fn of(plan: &Plan) -> Result<Picture, Failure> {
    let is_broadcast = plan.operation == Operation::Broadcast;
    let complete = if is_broadcast { "has the message" } else { "has the result" };
    let mut picture = Picture::new(
        text::headline(plan),
        plan.members,
        plan.steps().into(),
        plan.root,
        Names { complete, ..NAMES },
    )?;
    picture.colours = match plan.operation {
        Operation::Broadcast => COPIED..COPIED + 1,
        Operation::Reduce => FOLDED..FOLDED + 1,
        Operation::Allreduce => FOLDED..COPIED + 1,
    };
    let writes = plan.writes();
    let last_fold = writes.iter().rposition(|write| write.phase == Phase::Reduce);
    picture.arrows.extend(writes.iter().enumerate().map(|(index, write)| Arrow {
        step: write.step.into(),
        source: write.source,
        target: write.target,
        colour: if write.phase == Phase::Reduce { FOLDED } else { COPIED },
        completes: write.phase == Phase::Broadcast || Some(index) == last_fold,
    }));
    Ok(picture)
}
