//! A slab: values by reusable index.

/// Values by index; indices of removed values are reused.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    values: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Slab<T> {
    pub const fn new() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }

    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.values[at as usize] = value;
            return at;
        }
        self.values.push(value);
        (self.values.len() - 1) as u32
    }

    /// An index may be removed once: it may be reused afterwards.
    pub fn remove(&mut self, at: u32) -> T {
        self.free.push(at);
        self.values[at as usize]
    }

    pub fn get(&self, at: u32) -> &T {
        &self.values[at as usize]
    }

    pub fn get_mut(&mut self, at: u32) -> &mut T {
        &mut self.values[at as usize]
    }
}
