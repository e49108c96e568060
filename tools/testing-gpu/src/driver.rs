//! The calls of the driver's interface, as in cuda.h. Handles, which are pointers there, are numbers.
//!
//! Every pointer argument is the caller's to answer for, as with the real driver.

use std::{
    ffi::{CStr, c_char, c_void},
    sync::Arc,
};

use crate::{
    queue::{Mark, Task},
    state::{Allocation, CONTEXT, CURRENT, DEVICES, Kind, Pinned, State, code, copy_bytes, state},
};

type Outcome = Result<(), i32>;

fn result(outcome: Outcome) -> i32 {
    outcome.err().unwrap_or(code::SUCCESS)
}

/// Writes an answer.
fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: callers give places for their answers.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

fn device(number: i32) -> Result<i32, i32> {
    if (0..DEVICES).contains(&number) { Ok(number) } else { Err(code::INVALID_DEVICE) }
}

macro_rules! calls {
    ($($name:ident($state:ident $(, $argument:ident: $type:ty)*) $body:block)*) => {
        $(
            /// A call of CUDA's driver.
            #[allow(non_snake_case, reason = "the driver's names")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($argument: $type),*) -> i32 {
                let call = |$state: &mut State| -> Outcome {
                    $state.enter(stringify!($name))?;
                    $body
                };
                result(call(&mut state()))
            }
        )*
    };
}

calls! {
    cuInit(state, _flags: u32) {
        state.is_initialized = true;
        Ok(())
    }
    cuDriverGetVersion(_state, version: *mut i32) { put(version, 12_040) }
    cuDeviceGetCount(_state, count: *mut i32) { put(count, DEVICES) }
    cuDeviceGet(_state, handle: *mut i32, ordinal: i32) { put(handle, device(ordinal)?) }
    cuDeviceGetName(_state, name: *mut c_char, bytes: i32, number: i32) {
        let text = format!("stand-in {}\0", device(number)?);
        if (bytes as usize) < text.len() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: there is room for this many bytes.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
        Ok(())
    }
    cuDeviceTotalMem_v2(_state, bytes: *mut usize, number: i32) {
        device(number)?;
        put(bytes, 1 << 34)
    }
    cuDeviceGetAttribute(_state, value: *mut i32, _attribute: i32, number: i32) {
        device(number)?;
        put(value, 0)
    }
    cuDevicePrimaryCtxRetain(state, context: *mut usize, number: i32) {
        let number = device(number)? as usize;
        state.contexts[number] += 1;
        put(context, CONTEXT + number)
    }
    cuDevicePrimaryCtxRelease_v2(state, number: i32) {
        let number = device(number)? as usize;
        if state.contexts[number] == 0 {
            return Err(state.misused("a context was released too often".into(), code::INVALID_CONTEXT));
        }
        state.contexts[number] -= 1;
        Ok(())
    }
    cuCtxPushCurrent_v2(_state, context: usize) {
        device(context.wrapping_sub(CONTEXT) as i32)?;
        CURRENT.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }
    cuCtxPopCurrent_v2(_state, context: *mut usize) {
        let popped = CURRENT.with_borrow_mut(Vec::pop).ok_or(code::INVALID_CONTEXT)?;
        put(context, popped)
    }
    cuStreamCreate(state, stream: *mut usize, _flags: u32) {
        let number = state.current("cuStreamCreate")?;
        put(stream, state.new_stream(number))
    }
    cuStreamDestroy_v2(state, stream: usize) {
        match state.streams.remove(&stream) {
            Some(_) => Ok(()),
            None => Err(state.misused("a stream was destroyed twice".into(), code::INVALID_HANDLE)),
        }
    }
    cuStreamQuery(state, stream: usize) {
        match state.stream("cuStreamQuery", stream)?.is_idle() {
            true => Ok(()),
            false => Err(code::NOT_READY),
        }
    }
    cuStreamWaitEvent(state, stream: usize, event: usize, _flags: u32) {
        let queue = state.stream("cuStreamWaitEvent", stream)?;
        let mark = event_of(state, event)?.1.clone();
        if let Some(mark) = mark {
            queue.push(Task::Wait(mark));
        }
        Ok(())
    }
    cuEventCreate(state, event: *mut usize, _flags: u32) {
        let number = state.current("cuEventCreate")?;
        let handle = state.handle();
        state.events.insert(handle, (number, None));
        put(event, handle)
    }
    cuEventRecord(state, event: usize, stream: usize) {
        let queue = state.stream("cuEventRecord", stream)?;
        let mark = Arc::new(Mark::default());
        let entry = event_of(state, event)?;
        if entry.0 != queue.device {
            let what = "an event and a stream of different devices".into();
            return Err(state.misused(what, code::INVALID_HANDLE));
        }
        entry.1 = Some(Arc::clone(&mark));
        queue.push(Task::Record(mark));
        Ok(())
    }
    cuEventQuery(state, event: usize) {
        match &event_of(state, event)?.1 {
            Some(mark) if !mark.is_set() => Err(code::NOT_READY),
            _ => Ok(()),
        }
    }
    cuEventDestroy_v2(state, event: usize) {
        match state.events.remove(&event) {
            Some(_) => Ok(()),
            None => Err(state.misused("an event was destroyed twice".into(), code::INVALID_HANDLE)),
        }
    }
    cuMemHostAlloc(state, start: *mut usize, bytes: usize, _flags: u32) {
        state.current("cuMemHostAlloc")?;
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        let memory = vec![0_u8; bytes].into_boxed_slice();
        let address = memory.as_ptr() as usize;
        let pinned = Pinned { bytes: bytes as u64, allocated: Some(memory) };
        state.pinned.insert(address as u64, pinned);
        put(start, address)
    }
    cuMemFreeHost(state, start: usize) {
        match state.pinned.remove(&(start as u64)) {
            Some(pinned) if pinned.allocated.is_some() => Ok(()),
            _ => Err(state.misused("host memory was freed twice".into(), code::INVALID_VALUE)),
        }
    }
    cuMemHostRegister_v2(state, start: usize, bytes: usize, _flags: u32) {
        state.current("cuMemHostRegister")?;
        let (start, bytes) = (start as u64, bytes as u64);
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        let before = state.pinned.range(..start + bytes).next_back();
        if before.is_some_and(|(first, pinned)| first + pinned.bytes > start) {
            return Err(code::ALREADY_REGISTERED);
        }
        state.pinned.insert(start, Pinned { bytes, allocated: None });
        Ok(())
    }
    cuMemHostUnregister(state, start: usize) {
        match state.pinned.remove(&(start as u64)) {
            Some(pinned) if pinned.allocated.is_none() => Ok(()),
            _ => Err(state.misused("memory was unregistered twice".into(), code::NOT_REGISTERED)),
        }
    }
    cuMemAlloc_v2(state, start: *mut u64, bytes: usize) {
        let device = state.current("cuMemAlloc")?;
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        // What nobody has written is not zero.
        let bytes = vec![0xA5_u8; bytes].into_boxed_slice();
        let address = bytes.as_ptr() as u64;
        state.device_memory.insert(address, Allocation { bytes, device, kind: Kind::Device });
        put(start, address)
    }
    cuMemFree_v2(state, start: u64) {
        match state.device_memory.remove(&start) {
            Some(_) => Ok(()),
            None => Err(state.misused("device memory was freed twice".into(), code::INVALID_VALUE)),
        }
    }
    cuPointerGetAttribute(state, value: *mut c_void, attribute: i32, address: u64) {
        if let Some((start, memory)) = state.device_memory_of(address, 1) {
            return attribute_of(value, attribute, start, memory);
        }
        let is_host = state.pinned_of(address, 1).is_some();
        match attribute {
            MEMORY_TYPE if is_host => put(value.cast(), 1_u32),
            IS_MANAGED if is_host => put(value.cast(), 0_u32),
            _ => Err(code::INVALID_VALUE),
        }
    }
}

/// Attributes of pointers.
const MEMORY_TYPE: i32 = 2;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;
const IS_LEGACY_IPC_CAPABLE: i32 = 10;
const RANGE_START: i32 = 11;
const RANGE_BYTES: i32 = 12;
const POOL: i32 = 17;

fn attribute_of(value: *mut c_void, attribute: i32, start: u64, memory: &Allocation) -> Outcome {
    let is = |kind| u32::from(memory.kind == kind);
    match attribute {
        MEMORY_TYPE => put(value.cast(), 2_u32),
        IS_MANAGED => put(value.cast(), is(Kind::Managed)),
        DEVICE_ORDINAL => put(value.cast(), memory.device),
        IS_LEGACY_IPC_CAPABLE => put(value.cast(), is(Kind::Device)),
        RANGE_START => put(value.cast(), start),
        RANGE_BYTES => put(value.cast(), memory.bytes.len()),
        POOL => put(value.cast(), if memory.kind == Kind::Pool { 0x77_usize } else { 0 }),
        _ => Err(code::INVALID_VALUE),
    }
}

fn event_of(state: &mut State, event: usize) -> Result<&mut (i32, Option<Arc<Mark>>), i32> {
    if !state.events.contains_key(&event) {
        return Err(state.misused(format!("there is no event {event:x}"), code::INVALID_HANDLE));
    }
    state.events.get_mut(&event).ok_or(code::INVALID_HANDLE)
}

/// A copy to a device. Memory that is not pinned is copied before the call returns, after all that the stream has to do.
#[allow(non_snake_case, reason = "the driver's name")]
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: usize) -> i32 {
    let copy = (to, from as u64, bytes as u64, true);
    result(queue_copy("cuMemcpyHtoDAsync_v2", copy, stream))
}

/// A copy from a device; see [`cuMemcpyHtoDAsync_v2`].
#[allow(non_snake_case, reason = "the driver's name")]
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: usize) -> i32 {
    let copy = (to as u64, from, bytes as u64, false);
    result(queue_copy("cuMemcpyDtoHAsync_v2", copy, stream))
}

/// The copy is target, source, length, and whether it goes to the device.
fn queue_copy(call: &str, copy: (u64, u64, u64, bool), stream: usize) -> Outcome {
    let (to, from, bytes, is_up) = copy;
    let mut now = state();
    now.enter(call)?;
    let queue = now.stream(call, stream)?;
    let (there, here) = if is_up { (to, from) } else { (from, to) };
    let on = now.device_memory_of(there, bytes).map(|(_, memory)| memory.device);
    if on != Some(queue.device) {
        let what = format!("{call}: {there:x} is not memory of device {}", queue.device);
        return Err(now.misused(what, code::INVALID_VALUE));
    }
    if now.pinned_of(here, bytes).is_some() {
        queue.push(Task::Copy { to, from, bytes, is_up });
        return Ok(());
    }
    now.pageable_copies += 1;
    drop(now);
    let done = Arc::new(Mark::default());
    queue.push(Task::Record(Arc::clone(&done)));
    if !done.wait() {
        return Err(state().misused(format!("{call}: the stream does not end"), code::NOT_READY));
    }
    copy_bytes(to, from, bytes);
    Ok(())
}

const TEXTS: [(i32, &CStr); 10] = [
    (code::SUCCESS, c"no error"),
    (code::INVALID_VALUE, c"invalid argument"),
    (2, c"out of memory"),
    (code::NOT_INITIALIZED, c"initialization error"),
    (code::INVALID_DEVICE, c"invalid device ordinal"),
    (code::INVALID_CONTEXT, c"invalid device context"),
    (code::INVALID_HANDLE, c"invalid resource handle"),
    (code::NOT_READY, c"device not ready"),
    (700, c"an illegal memory access was encountered"),
    (code::ALREADY_REGISTERED, c"part or all of the requested memory range is already mapped"),
];

/// The text of an error.
#[allow(non_snake_case, reason = "the driver's name")]
#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorString(number: i32, text: *mut *const c_char) -> i32 {
    match TEXTS.iter().find(|(known, _)| *known == number) {
        Some((_, known)) => result(put(text, known.as_ptr())),
        None => code::INVALID_VALUE,
    }
}
