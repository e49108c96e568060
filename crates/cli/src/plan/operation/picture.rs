//! The writes as a picture.

use collective::Way;

use super::{options::Operation, plan::Plan, text, write::Part};
use crate::{
    failure::Failure,
    plan::svg::{Arrow, Names, Picture},
};

// Colours of writes other than blocks.
const FOLDED: u32 = 0;
const COPIED: u32 = 1;

/// Texts for folds and copies.
const WRITES: Names = Names {
    arrows: "Each arrow is a write of a member's data.",
    label: |colour| if colour == FOLDED { "+" } else { "=" }.to_owned(),
    colour: |colour| if colour == FOLDED { "folded" } else { "copied" }.to_owned(),
    complete: "has the result",
};

/// Texts for copied blocks, each of which has a colour.
const BLOCKS: Names = Names {
    arrows: "Each arrow is a block of the message.",
    label: |block| format!("b{block}"),
    colour: |block| format!("block {block}"),
    complete: "has the message",
};

/// The picture of a plan; folds and copies have colours, or the blocks of a broadcast. Errors: too large to read.
pub fn of(plan: &Plan) -> Result<Picture, Failure> {
    let is_of_blocks = plan.way == Way::Circulant;
    let names = match plan.operation {
        _ if is_of_blocks => BLOCKS,
        Operation::Broadcast => Names { complete: "has the message", ..WRITES },
        _ => WRITES,
    };
    let title = text::headline(plan);
    let mut picture = Picture::new(title, plan.members, plan.steps(), plan.root, names)?;
    let phases = plan.phases();
    let has = |folds| phases.iter().any(|(phase, _)| phase.folds() == folds);
    picture.colours = match (has(true), has(false)) {
        // This many blocks are never drawn: each takes at least one step.
        _ if is_of_blocks => 0..u32::try_from(plan.blocks()).unwrap_or(u32::MAX),
        (true, true) => FOLDED..COPIED + 1,
        (true, false) => FOLDED..FOLDED + 1,
        _ => COPIED..COPIED + 1,
    };
    // The number of writes that each member still gets: the last one completes it.
    let mut missing = vec![0_u64; plan.members as usize];
    plan.writes().for_each(|write| missing[write.target as usize] += 1);
    picture.arrows.extend(plan.writes().map(|write| {
        let missing = &mut missing[write.target as usize];
        *missing -= 1;
        let gets_result = plan.operation != Operation::Reduce || write.target == plan.root;
        let colour = match write.part {
            Part::Block(block) if is_of_blocks => block,
            _ if write.phase.folds() => FOLDED,
            _ => COPIED,
        };
        Arrow {
            step: write.step,
            source: write.source,
            target: write.target,
            colour,
            completes: *missing == 0 && gets_result,
        }
    }));
    Ok(picture)
}
