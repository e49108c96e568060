//! What a session finds: what is there, and what earlier ones have left.

use std::sync::Arc;

use super::{error::TargetError, files::CopyFiles, order::Order, staging::Staging, there::There};
use crate::{disk::Directory, place::Place};

/// Looks at what is there, and at what an earlier session has left.
pub(super) fn look(
    place: &Place,
    order: &Arc<Order>,
    existing: Option<&Directory>,
) -> Result<(There, Option<Staging>), TargetError> {
    let look = || match existing {
        Some(directory) => There::look(directory, order),
        None => Ok(There::nothing(order)),
    };
    let there = look()?;
    if order.dry_run {
        // What is staged may be another session's, as this one holds no lock.
        return Ok((there, None));
    }
    match Staging::find(place, order, existing, &there) {
        Some(staging) => {
            // What of it was removed may have been further names of what is there.
            let mut there = look()?;
            if order.by_contents {
                there.replace_staged(&whole_files(&staging, order));
            }
            Ok((there, Some(staging)))
        }
        None => Ok((there, None)),
    }
}

/// Numbers of files' entries that an earlier session has received as a whole.
fn whole_files(staging: &Staging, order: &Arc<Order>) -> Vec<usize> {
    let staged = Some((staging.staged.clone(), staging.is_there.clone()));
    let files = CopyFiles::new(order, None, vec![true; order.entries().len()], staged);
    let all = 0..order.layout.files();
    all.filter(|&file| files.is_whole(file)).map(|file| order.layout.entry(file)).collect()
}
