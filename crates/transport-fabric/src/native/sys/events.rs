//! Entries of completion queues and event queues.

use super::*;

/// Reads completions, those with an error one at a time. Errors: the queue itself failed.
pub fn read_completions(queue: &Object, into: &mut [RawCompletion]) -> Result<usize, Errno> {
    // SAFETY: an open queue, and a buffer for that many entries.
    let count = unsafe { rdmc_fabric_cq_read(queue.raw, into.as_mut_ptr(), into.len()) };
    if count < 0 { Err(Errno(-count as i32)) } else { Ok(count as usize) }
}

/// An event of a connection.
pub enum Event {
    /// A connection request.
    Request { info: Info, parameter: Vec<u8> },
    /// The endpoint with this address is connected.
    Connected { endpoint: usize },
    /// The other end has closed it.
    ShutDown { endpoint: usize },
    /// The connection could not be made, or broke.
    Failed { endpoint: usize, error: Errno },
}

/// Returns the next event of a queue. Errors: the queue itself failed.
pub fn next_event(queue: &Object) -> Result<Option<Event>, Errno> {
    const REQUEST: i32 = 1;
    const CONNECTED: i32 = 2;
    const SHUT_DOWN: i32 = 3;
    const FAILED: i32 = 4;
    let mut raw = std::mem::MaybeUninit::<RawEvent>::uninit();
    // SAFETY: an open queue; the shim fills all of `raw` before anything else.
    let (count, raw) = unsafe {
        let count = rdmc_fabric_eq_read(queue.raw, raw.as_mut_ptr());
        (count, raw.assume_init())
    };
    check(count)?;
    if count == 0 {
        return Ok(None);
    }
    let endpoint = raw.endpoint as usize;
    Ok(match raw.kind {
        REQUEST if !raw.info.is_null() => {
            // SAFETY: a request's description belongs to the reader.
            let info = unsafe { Info::adopt(raw.info) };
            let bytes = (raw.parameter_bytes as usize).min(raw.parameter.len());
            Some(Event::Request { info, parameter: raw.parameter[..bytes].to_vec() })
        }
        CONNECTED => Some(Event::Connected { endpoint }),
        SHUT_DOWN => Some(Event::ShutDown { endpoint }),
        FAILED => Some(Event::Failed { endpoint, error: Errno(raw.error) }),
        _ => None,
    })
}
