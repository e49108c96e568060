//! The plan of a message as a picture.

use super::{
    message::Plan,
    svg::{Arrow, Names, Picture},
    table,
    transfers::Transfers,
};
use crate::failure::Failure;

const NAMES: Names = Names {
    arrows: "Each arrow is one block on its way.",
    label: |block| format!("b{block}"),
    colour: |block| format!("block {block}"),
    complete: "has every block",
};

/// Each block has a colour. Errors: too large to read.
pub fn of(plan: &Plan) -> Result<Picture, Failure> {
    let schedule = &plan.schedule;
    let mut picture = Picture::new(
        table::headline(plan),
        schedule.members(),
        plan.steps(),
        schedule.root(),
        NAMES,
    )?;
    picture.colours = 0..plan.blocks;
    let mut received = vec![0; schedule.members() as usize];
    picture.arrows.extend(Transfers::new(schedule, plan.blocks).map(|transfer| {
        let received = &mut received[transfer.target as usize];
        *received += 1;
        Arrow {
            step: transfer.step,
            source: transfer.source,
            target: transfer.target,
            colour: transfer.block,
            completes: *received == plan.blocks,
        }
    }));
    Ok(picture)
}
