//! Reading the object of a tree, and files that are kept open while blocks of them are read or written.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tree::{Layout, Piece};

/// Reads a range of the object from `offset` on: `read` fills each part from the piece of a file that it is.
///
/// Errors: those of `read`; the object has fewer bytes.
pub(crate) fn read_pieces(
    layout: &Layout,
    into: &mut [u8],
    offset: u64,
    mut read: impl FnMut(&Piece, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut rest = into;
    let end = offset + rest.len() as u64;
    for piece in layout.pieces(offset..end) {
        let length = piece.in_file.end - piece.in_file.start;
        let (part, after) = rest.split_at_mut(length as usize);
        rest = after;
        read(&piece, part)?;
    }
    if rest.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The most that are kept open.
const FILES_MAX: usize = 32;

/// The files used last, by number.
#[derive(Default)]
pub(crate) struct OpenFiles(Mutex<VecDeque<(usize, Arc<File>)>>);

impl OpenFiles {
    /// A file; `open` opens it unless it is open. One that is used as a whole at once is better not kept here.
    pub(crate) fn get(
        &self,
        number: usize,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<Arc<File>> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = files.iter().position(|(known, _)| *known == number)
            && let Some(used) = files.remove(at)
        {
            let file = Arc::clone(&used.1);
            files.push_back(used);
            return Ok(file);
        }
        // Under the lock: the same file is not created twice.
        let file = Arc::new(open()?);
        if files.len() == FILES_MAX {
            files.pop_front();
        }
        files.push_back((number, Arc::clone(&file)));
        Ok(file)
    }
}
