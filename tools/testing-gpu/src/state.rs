//! The objects of the driver.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock, Mutex, MutexGuard},
    time::Duration,
};

use crate::queue::{Mark, Queue, lock};

pub const DEVICES: i32 = 2;
/// Contexts are numbers: this and the device's.
pub const CONTEXT: usize = 0x1000;

/// Codes of errors, as in cuda.h.
pub mod code {
    pub const SUCCESS: i32 = 0;
    pub const INVALID_VALUE: i32 = 1;
    pub const NOT_INITIALIZED: i32 = 3;
    pub const INVALID_DEVICE: i32 = 101;
    pub const INVALID_CONTEXT: i32 = 201;
    pub const INVALID_HANDLE: i32 = 400;
    pub const NOT_READY: i32 = 600;
    pub const ALREADY_REGISTERED: i32 = 712;
    pub const NOT_REGISTERED: i32 = 713;
}

/// Kinds of device memory; see [`crate::control::stand_in_set_kind`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Device,
    Managed,
    Virtual,
    Pool,
}

/// Memory that stands for a device's.
pub struct Allocation {
    pub bytes: Box<[u8]>,
    pub device: i32,
    pub kind: Kind,
}

/// Pinned memory of the host.
pub struct Pinned {
    pub bytes: u64,
    /// By the driver; `None`: it was there, and was registered.
    pub allocated: Option<Box<[u8]>>,
}

#[derive(Default)]
pub struct State {
    pub is_initialized: bool,
    /// How often each device's primary context is retained.
    pub contexts: [u32; DEVICES as usize],
    pub device_memory: BTreeMap<u64, Allocation>,
    pub pinned: BTreeMap<u64, Pinned>,
    pub streams: HashMap<usize, Queue>,
    /// The default streams of devices, made when they are used.
    pub defaults: HashMap<i32, Queue>,
    /// Device, and the mark of the last time that it was recorded.
    pub events: HashMap<usize, (i32, Option<Arc<Mark>>)>,
    next_handle: usize,
    /// By the name of a call: how many calls are left until one fails, and its error.
    pub failures: HashMap<String, (u64, i32)>,
    pub calls: HashMap<String, u64>,
    pub misuse: Vec<String>,
    /// Copies to or from memory that is not pinned.
    pub pageable_copies: u64,
    pub holds_new_streams: bool,
    /// How long each copy takes at least.
    pub delay: Duration,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The stack of current contexts.
    pub static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Returns the state, of which no thread holds the lock while it waits.
pub fn state() -> MutexGuard<'static, State> {
    lock(&STATE)
}

/// Returns the entry whose range holds this one.
fn holding<T>(
    map: &BTreeMap<u64, T>,
    start: u64,
    bytes: u64,
    length: impl Fn(&T) -> u64,
) -> Option<(u64, &T)> {
    let (&first, entry) = map.range(..=start).next_back()?;
    (start.checked_add(bytes)? <= first + length(entry)).then_some((first, entry))
}

impl State {
    /// Counts a call, and returns the error that was asked for.
    pub fn enter(&mut self, call: &str) -> Result<(), i32> {
        *self.calls.entry(call.into()).or_default() += 1;
        if let Some((left, code)) = self.failures.get_mut(call) {
            *left -= 1;
            if *left == 0 {
                let code = *code;
                self.failures.remove(call);
                return Err(code);
            }
        }
        if !self.is_initialized && !["cuInit", "cuDriverGetVersion"].contains(&call) {
            return Err(code::NOT_INITIALIZED);
        }
        Ok(())
    }

    /// Returns the device whose context is current on this thread.
    pub fn current(&mut self, call: &str) -> Result<i32, i32> {
        let context = CURRENT.with_borrow(|stack| stack.last().copied());
        let device = context.and_then(|context| i32::try_from(context.checked_sub(CONTEXT)?).ok());
        match device.filter(|&device| self.contexts[device as usize] > 0) {
            Some(device) => Ok(device),
            None => {
                Err(self.misused(format!("{call}: no context is current"), code::INVALID_CONTEXT))
            }
        }
    }

    /// Notes misuse, and returns the code.
    pub fn misused(&mut self, what: String, code: i32) -> i32 {
        self.misuse.push(what);
        code
    }

    pub fn handle(&mut self) -> usize {
        self.next_handle += 16;
        0x10_0000 + self.next_handle
    }

    /// Returns the stream with this handle; 0 is the default one of the device.
    pub fn stream(&mut self, call: &str, handle: usize) -> Result<Queue, i32> {
        let device = self.current(call)?;
        if handle == 0 {
            return Ok(self.defaults.entry(device).or_insert_with(|| start(device)).clone());
        }
        match self.streams.get(&handle) {
            Some(queue) => Ok(queue.clone()),
            None => {
                Err(self.misused(format!("{call}: no stream {handle:x}"), code::INVALID_HANDLE))
            }
        }
    }

    pub fn new_stream(&mut self, device: i32) -> usize {
        let (handle, queue) = (self.handle(), start(device));
        queue.gate.close(self.holds_new_streams);
        self.streams.insert(handle, queue);
        handle
    }

    /// Returns the device memory that holds this range, and where it begins.
    pub fn device_memory_of(&self, start: u64, bytes: u64) -> Option<(u64, &Allocation)> {
        holding(&self.device_memory, start, bytes, |memory| memory.bytes.len() as u64)
    }

    /// Returns the pinned memory that holds this range, and where it begins.
    pub fn pinned_of(&self, start: u64, bytes: u64) -> Option<(u64, &Pinned)> {
        holding(&self.pinned, start, bytes, |memory| memory.bytes)
    }

    /// Returns what is left of what was made.
    pub fn live(&self) -> u64 {
        let contexts: u32 = self.contexts.iter().sum();
        let maps = [
            self.device_memory.len(),
            self.pinned.len(),
            self.streams.len(),
            self.events.len(),
            contexts as usize,
        ];
        maps.iter().sum::<usize>() as u64
    }

    /// Copies between memory of the host and of a device, under the lock: nobody frees it meanwhile.
    pub fn copy(&mut self, to: u64, from: u64, bytes: u64, is_up: bool) {
        let (there, here) = if is_up { (to, from) } else { (from, to) };
        if self.device_memory_of(there, bytes).is_none() {
            self.misuse.push(format!("a copy of {bytes} bytes: device memory {there:x} was freed"));
        } else if self.pinned_of(here, bytes).is_none() {
            self.misuse.push(format!("a copy of {bytes} bytes: host memory {here:x} was freed"));
        } else {
            copy_bytes(to, from, bytes);
        }
    }
}

fn start(device: i32) -> Queue {
    let copy = |to, from, bytes, is_up| {
        let delay = state().delay;
        std::thread::sleep(delay);
        state().copy(to, from, bytes, is_up);
    };
    let stuck = || state().misuse.push("a stream waits for an event that never comes".into());
    Queue::start(device, copy, stuck)
}

/// Copies without regard to what the memory is: both ranges are the caller's to answer for.
pub fn copy_bytes(to: u64, from: u64, bytes: u64) {
    // SAFETY: one range is in an allocation of this library, the other is pinned memory that was not freed, or memory that the
    // caller of a copy vouches for, as with the real driver.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
}
