//! Counters, and work that a provider starts when one reaches a threshold.

use super::*;

unsafe extern "C" {
    fn rdmc_fabric_counter_open(domain: Handle, counter: *mut Handle) -> c_int;
    fn rdmc_fabric_counter_read(counter: Handle) -> u64;
    fn rdmc_fabric_counter_add(counter: Handle, value: u64) -> c_int;
    fn rdmc_fabric_work_new() -> Handle;
    fn rdmc_fabric_work_free(work: Handle);
    fn rdmc_fabric_work_context(work: Handle) -> u64;
    fn rdmc_fabric_work_tagged(
        domain: Handle,
        work: Handle,
        receive: c_int,
        endpoint: Handle,
        start: *mut u8,
        bytes: usize,
        description: Handle,
        peer: u64,
        tag: u64,
        counter: Handle,
        threshold: u64,
    ) -> c_int;
    fn rdmc_fabric_work_add(
        domain: Handle,
        work: Handle,
        counter: Handle,
        threshold: u64,
        target: Handle,
    ) -> c_int;
}

const NO_MEMORY: Errno = Errno(12);

/// A number that the provider increments, with the work that waits for it.
pub struct Counter {
    /// Closed before the work is dropped.
    object: Option<Arc<Object>>,
    raw: Handle,
    /// The provider may access the work until the counter is closed.
    works: Mutex<Vec<Work>>,
    domain: Arc<Object>,
}

// SAFETY: the handle is that of `object`, which may be used by any thread.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

/// The provider's data of one piece of work.
struct Work {
    raw: Handle,
    /// Kept for as long as the work may increment it.
    target: Option<Arc<Counter>>,
}

// SAFETY: plain memory that only the provider accesses once it is queued.
unsafe impl Send for Work {}

impl Work {
    fn new(target: Option<&Arc<Counter>>) -> Result<Self, Errno> {
        // SAFETY: an allocation without conditions.
        let raw = unsafe { rdmc_fabric_work_new() };
        if raw.is_null() { Err(NO_MEMORY) } else { Ok(Self { raw, target: target.cloned() }) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: owned by this object and freed once, after the counter that it waited for was
        // closed, or if it was not queued (`Counter`).
        unsafe { rdmc_fabric_work_free(self.raw) }
    }
}

impl Counter {
    /// Opens a counter that is zero.
    pub fn open(domain: &Arc<Object>) -> Result<Arc<Self>, Errno> {
        let mut raw = ptr::null_mut();
        // SAFETY: an open domain; the shim stores a counter if it succeeds.
        check(unsafe { rdmc_fabric_counter_open(domain.raw, &mut raw) })?;
        let object = Some(Object::new(raw, &[domain]));
        Ok(Arc::new(Self { object, raw, works: Mutex::default(), domain: Arc::clone(domain) }))
    }

    pub fn value(&self) -> u64 {
        // SAFETY: an open counter.
        unsafe { rdmc_fabric_counter_read(self.raw) }
    }

    /// Adds one.
    pub fn increment(&self) -> Result<(), Errno> {
        // SAFETY: an open counter.
        check(unsafe { rdmc_fabric_counter_add(self.raw, 1) })
    }

    /// Subtracts one; the counter must not be zero.
    pub fn decrement(&self) -> Result<(), Errno> {
        // SAFETY: an open counter. Counters are 64 bits (32 in the provider sockets) that wrap.
        check(unsafe { rdmc_fabric_counter_add(self.raw, u64::MAX) })
    }

    /// Adds one to `target` when this counter reaches the threshold, or now if it has.
    pub fn then_add(&self, threshold: u64, target: &Arc<Self>) -> Result<(), Errno> {
        let work = Work::new(Some(target))?;
        // SAFETY: open counters of one domain; the work lives until this one is closed, and keeps
        // the target.
        check(unsafe {
            rdmc_fabric_work_add(self.domain.raw, work.raw, self.raw, threshold, target.raw)
        })?;
        self.keep(work);
        Ok(())
    }

    /// Posts a receive or a send when this counter reaches the threshold, or now if it has; when
    /// the transfer is done, adds one to this counter. There is a completion only if the transfer
    /// fails, with the context that is returned.
    ///
    /// # Safety
    /// Until the one is added, the memory stays valid; for a receive it is not accessed otherwise,
    /// and for a send it does not change from the threshold on. This ends when the endpoint is
    /// closed, and need not hold if the counter never reaches the threshold. The counter does not
    /// reach the threshold after the endpoint was closed.
    pub unsafe fn then_transfer(
        &self,
        threshold: u64,
        receive: bool,
        endpoint: &Object,
        peer: u64,
        tag: u64,
        span: Span<'_>,
    ) -> Result<u64, Errno> {
        let work = Work::new(None)?;
        // SAFETY: an open endpoint and counter of one domain, work that exists until the counter is
        // closed, and memory as the caller ensures.
        check(unsafe {
            rdmc_fabric_work_tagged(
                self.domain.raw,
                work.raw,
                receive.into(),
                endpoint.raw,
                span.start,
                span.bytes,
                span.description(),
                peer,
                tag,
                self.raw,
                threshold,
            )
        })?;
        // SAFETY: work that exists.
        let context = unsafe { rdmc_fabric_work_context(work.raw) };
        self.keep(work);
        Ok(context)
    }

    /// Closes the counter, and returns the work, which is not accessed any more.
    fn close(&mut self) -> Vec<Work> {
        self.object = None;
        std::mem::take(self.works.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, work: Work) {
        self.works.lock().unwrap_or_else(PoisonError::into_inner).push(work);
    }
}

impl Drop for Counter {
    /// Drops chained work in a loop: nested drops of long chains would overflow the stack.
    fn drop(&mut self) {
        let mut works = self.close();
        while let Some(mut work) = works.pop() {
            if let Some(mut target) = work.target.take().and_then(Arc::into_inner) {
                works.append(&mut target.close());
            }
        }
    }
}
