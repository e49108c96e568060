//! Reductions of a scenario, which may still fail.

/// Smaller scenarios in the order in which they are tried; some may be invalid.
#[derive(Debug)]
pub struct Smaller<'a, S> {
    from: &'a S,
    all: Vec<S>,
}

impl<'a, S: Clone> Smaller<'a, S> {
    pub(crate) fn new(from: &'a S) -> Self {
        Self { from, all: Vec::new() }
    }

    /// Adds the scenario with a change.
    pub fn with(&mut self, change: impl FnOnce(&mut S)) {
        let mut candidate = self.from.clone();
        change(&mut candidate);
        self.all.push(candidate);
    }

    /// Adds the scenario without each item of a list, the first one first.
    pub fn without_each<T>(&mut self, list: impl Fn(&mut S) -> &mut Vec<T>) {
        for index in 0..list(&mut self.from.clone()).len() {
            self.with(|it| drop(list(it).remove(index)));
        }
    }

    pub(crate) fn into_all(self) -> Vec<S> {
        self.all
    }
}
