//! Regions that are allocated before the first transfer and reused.

use std::sync::{Arc, Mutex};

use crate::{region::Region, zeros::zeros};

/// A fixed number of regions of equal length. They are allocated and touched when the pool is made, so that
/// no memory is allocated during a transfer (DSN 2018 section 4.6, "Memory management").
///
/// Clones share the regions. Methods may be called on any thread and do not block.
#[derive(Clone, Debug)]
pub struct RegionPool {
    stock: Arc<Mutex<Vec<Region>>>,
    region_bytes: usize,
}

impl RegionPool {
    /// Allocates `count` regions of `region_bytes` bytes each.
    pub fn new(count: usize, region_bytes: usize) -> Self {
        let touched = |_| {
            let mut memory = zeros(region_bytes);
            // Written, not only allocated: the system populates pages when they are first touched.
            memory.fill(0xA5);
            Region::from_vec(memory)
        };
        let stock = (0..count).map(touched).collect();
        Self { stock: Arc::new(Mutex::new(stock)), region_bytes }
    }

    /// Returns the length of each region in bytes.
    pub fn region_bytes(&self) -> usize {
        self.region_bytes
    }

    /// Takes a region, if one is left.
    pub fn take(&self) -> Option<Region> {
        self.stock().pop()
    }

    /// Puts back a region of the pool. The caller must have dropped all leases of the region.
    pub fn put(&self, region: Region) {
        debug_assert_eq!(region.len(), self.region_bytes);
        self.stock().push(region);
    }

    /// Returns how many regions are available.
    pub fn available(&self) -> usize {
        self.stock().len()
    }

    fn stock(&self) -> std::sync::MutexGuard<'_, Vec<Region>> {
        self.stock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_runs_out_and_fills_again() {
        let pool = RegionPool::new(2, 16);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        assert_eq!((first.len(), second.len()), (16, 16));
        pool.put(first);
        assert_eq!(pool.available(), 1);
    }
}
