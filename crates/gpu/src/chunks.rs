//! Operations of teams in chunks of the same length at all members, whether in device memory or in host memory.

use std::{ops::Range, time::Duration};

use rdmc::{Op, Team, Type};
use session::Deadline;

use crate::Error;

/// Chunks are whole numbers of elements of any type.
const MULTIPLE_BYTES: u64 = 16;

/// How memory is divided: the ranges of calls of a team. Memory without bytes is one empty range, so that members that call
/// for other lengths are told.
pub(crate) fn chunks(
    bytes: u64,
    chunk_bytes: u64,
) -> impl ExactSizeIterator<Item = Range<u64>> + Clone {
    let count = usize::try_from(bytes.div_ceil(chunk_bytes).max(1)).unwrap_or(usize::MAX);
    (0..count).map(move |index| {
        let start = index as u64 * chunk_bytes;
        start..bytes.min(start.saturating_add(chunk_bytes))
    })
}

/// Checks the length of chunks.
pub(crate) fn check(chunk_bytes: u64) -> Result<(), Error> {
    if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(MULTIPLE_BYTES) {
        let what = format!("chunks of {chunk_bytes} bytes: use a multiple of {MULTIPLE_BYTES}");
        return Err(Error::Call(what));
    }
    Ok(())
}

/// Checks the length of memory. A team would find what is too much in the last chunk only.
pub(crate) fn check_elements(bytes: u64, element: Type) -> Result<(), Error> {
    let each = element.bytes();
    if !bytes.is_multiple_of(each as u64) {
        return Err(Error::Call(format!(
            "{bytes} bytes are not a whole number of elements of {each}"
        )));
    }
    Ok(())
}

/// Calls [`Team::broadcast`] for host memory, in a team with members whose memory is on a device
/// ([`crate::TeamStaging::broadcast`]), in chunks of the same length ([`crate::TeamStagingSettings::chunk_bytes`]). The timeout is
/// for all chunks together.
///
/// Errors: [`Error::Call`] if the length of chunks is not a multiple of 16; [`Error::Rdmc`] as for [`Team::broadcast`].
pub fn broadcast_in_chunks(
    team: &Team,
    root: u32,
    bytes: &mut [u8],
    chunk_bytes: u64,
    timeout: Duration,
) -> Result<(), Error> {
    each(bytes, chunk_bytes, timeout, |chunk, left| team.broadcast(root, chunk, left))
}

/// Calls [`Team::all_reduce_bytes`] for host memory, in a team with members whose memory is on a device: see
/// [`broadcast_in_chunks`].
///
/// Errors: as for [`broadcast_in_chunks`] and [`Team::all_reduce_bytes`].
pub fn all_reduce_in_chunks(
    team: &Team,
    bytes: &mut [u8],
    element: Type,
    op: Op,
    chunk_bytes: u64,
    timeout: Duration,
) -> Result<(), Error> {
    check_elements(bytes.len() as u64, element)?;
    each(bytes, chunk_bytes, timeout, |chunk, left| team.all_reduce_bytes(chunk, element, op, left))
}

fn each(
    bytes: &mut [u8],
    chunk_bytes: u64,
    timeout: Duration,
    mut call: impl FnMut(&mut [u8], Duration) -> Result<(), rdmc::Error>,
) -> Result<(), Error> {
    check(chunk_bytes)?;
    let deadline = Deadline::after(timeout);
    for range in chunks(bytes.len() as u64, chunk_bytes) {
        call(&mut bytes[range.start as usize..range.end as usize], deadline.left())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_once() {
        let of = |bytes, chunk_bytes| -> Vec<(u64, u64)> {
            chunks(bytes, chunk_bytes).map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(of(0, 16), [(0, 0)]);
        assert_eq!(of(16, 16), [(0, 16)]);
        assert_eq!(of(33, 16), [(0, 16), (16, 32), (32, 33)]);
        let long = u64::MAX - 15;
        assert_eq!(of(u64::MAX, long), [(0, long), (long, u64::MAX)]);
    }

    #[test]
    fn chunks_are_whole_numbers_of_elements() {
        for wrong in [0, 8, 17] {
            let error = check(wrong).unwrap_err().to_string();
            assert!(error.contains("use a multiple of 16"), "{error}");
        }
        check(64 << 20).unwrap();
        check_elements(24, Type::F64).unwrap();
        let error = check_elements(20, Type::F64).unwrap_err().to_string();
        assert_eq!(error, "20 bytes are not a whole number of elements of 8");
    }
}
