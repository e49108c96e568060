//! Limits on what each holder of a certificate has at a time, and on what all have together.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How many there may be at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Most {
    /// Of one certificate.
    pub each: usize,
    /// Of all certificates.
    pub all: usize,
}

/// A certificate, in DER.
pub(crate) type Holder = Arc<[u8]>;

/// Counts what holders of certificates have.
#[derive(Debug)]
pub(crate) struct Counter {
    most: Most,
    what: &'static str,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    all: usize,
    /// None of them is zero.
    each: BTreeMap<Holder, usize>,
}

/// One that counts, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counting {
    counter: Arc<Counter>,
    holder: Holder,
}

impl Counter {
    /// `what`: what is counted, in the plural.
    pub(crate) fn new(most: Most, what: &'static str) -> Arc<Self> {
        Arc::new(Self { most, what, counted: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more. Errors: which limit is reached.
    pub(crate) fn start(self: &Arc<Self>, holder: &Holder) -> Result<Counting, String> {
        let (Most { each, all }, what) = (self.most, self.what);
        let mut counted = self.lock();
        if counted.all >= all {
            return Err(format!("there are {all} {what} here already; try again later"));
        }
        let of_holder = counted.each.entry(Arc::clone(holder)).or_default();
        if *of_holder >= each {
            return Err(format!("this certificate has {each} {what} here already; close some"));
        }
        *of_holder += 1;
        counted.all += 1;
        Ok(Counting { counter: Arc::clone(self), holder: Arc::clone(holder) })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut counted = self.counter.lock();
        counted.all -= 1;
        if let Some(of_holder) = counted.each.get_mut(&self.holder) {
            *of_holder -= 1;
            if *of_holder == 0 {
                counted.each.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_certificate_cannot_take_all_and_all_together_not_more_than_there_may_be() {
        let counter = Counter::new(Most { each: 2, all: 3 }, "calls");
        let [a, b] = ["a", "b"].map(|name| Holder::from(name.as_bytes()));
        let mut of_a: Vec<Counting> = (0..2).map(|_| counter.start(&a).unwrap()).collect();
        assert!(counter.start(&a).unwrap_err().contains("this certificate has 2 calls"));
        let of_b = counter.start(&b).unwrap();
        assert!(counter.start(&b).unwrap_err().contains("there are 3 calls"));
        of_a.pop();
        assert!(counter.start(&b).is_ok() && counter.start(&a).is_ok());
        drop((of_a, of_b));
        let counted = counter.lock();
        assert!(counted.all == 0 && counted.each.is_empty(), "{counted:?}");
    }
}
