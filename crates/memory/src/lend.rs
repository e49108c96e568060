//! Memory of a caller, as a region for the time of a call.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::region::Region;

/// Notes when a region and all its leases have been dropped.
#[derive(Default)]
struct Loan {
    is_back: Mutex<bool>,
    changed: Condvar,
}

/// Owned by the region; dropped with its last clone and lease.
struct Borrower(Arc<Loan>);

/// Waits for the memory, also while a panic unwinds.
struct Lender(Arc<Loan>);

impl Drop for Borrower {
    fn drop(&mut self) {
        *self.0.is_back.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        let mut is_back = self.0.is_back.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_back {
            is_back = self.0.changed.wait(is_back).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Runs `with` with these bytes as a region, for the network to read and write without a copy.
///
/// Blocks after `with`, also if that panics, until every clone and lease of the region was dropped: nobody can touch the bytes
/// afterwards. `with` therefore has to end what it has posted, also when it fails, for example by closing the endpoints and
/// polling the transport until they have ended. That bounds the wait by the transport's drain timeout, which the caller has to
/// choose accordingly.
pub fn lend<R>(bytes: &mut [u8], with: impl FnOnce(Region) -> R) -> R {
    let loan = Arc::new(Loan::default());
    // Dropped last, when the region may not exist any more.
    let _lender = Lender(Arc::clone(&loan));
    let (start, length) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the bytes are borrowed until `_lender` was dropped, which waits until the region's owner was, and nothing else
    // uses them meanwhile. The owner points to the loan, not into the bytes or its own box.
    let region = unsafe { Region::from_raw(start, length, true, Box::new(Borrower(loan))) };
    with(region)
}

#[cfg(test)]
mod tests {
    use std::{panic, thread, time::Duration};

    use super::*;

    #[test]
    fn what_was_written_is_there() {
        let mut bytes = [1, 2, 3, 4];
        let sum: u32 = lend(&mut bytes, |region| {
            region.write(1..3).unwrap().fill(9);
            region.read(0..4).unwrap().iter().map(|&byte| u32::from(byte)).sum()
        });
        assert_eq!((sum, bytes), (23, [1, 9, 9, 4]));
    }

    #[test]
    fn it_waits_for_leases_of_other_threads() {
        let mut bytes = vec![0; 100];
        let writer = lend(&mut bytes, |region| {
            let mut lease = region.write(0..100).unwrap();
            thread::spawn(move || {
                // Whether or not the lender waits by now.
                thread::sleep(Duration::from_millis(20));
                lease.fill(7);
            })
        });
        assert!(bytes.iter().all(|&byte| byte == 7));
        writer.join().unwrap();
    }

    #[test]
    fn a_panic_passes() {
        let mut bytes = [0; 8];
        let outcome = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            lend(&mut bytes, |region| {
                region.write(0..8).unwrap()[0] = 5;
                panic!("enough");
            })
        }));
        assert!(outcome.is_err());
        assert_eq!(bytes[0], 5);
    }
}
