//! A stand-in for the driver, and members in this process, connected over loopback.

use std::{
    ffi::{CString, c_char, c_void},
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    thread,
    time::Duration,
};

use gpu::{Device, DeviceMemory, Driver, Error, Stream};
use rdmc::{Context, ContextSettings, Group, GroupSettings, Region, Secret, Team, TeamSettings};

/// A timeout that only a failing test reaches.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of the stand-in for the driver, with objects and faults of its own.
pub struct StandIn {
    path: PathBuf,
    handle: *mut c_void,
    _directory: tempfile::TempDir,
}

// SAFETY: the handle of a library may be used on any thread.
unsafe impl Send for StandIn {}
// SAFETY: as above; the library's functions take a lock.
unsafe impl Sync for StandIn {}

impl StandIn {
    /// Opens a copy of the library that Cargo has built beside this program.
    pub fn new() -> Self {
        let program = std::env::current_exe().unwrap();
        let built = program.with_file_name("libtesting_gpu.so");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libcuda.so.1");
        fs::copy(&built, &path).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a C string.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} opens", path.display());
        Self { path, handle, _directory: directory }
    }

    fn find(&self, symbol: &str) -> *mut c_void {
        let name = CString::new(symbol).unwrap();
        // SAFETY: the library is open, and the name is a C string.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!found.is_null(), "{symbol}");
        found
    }

    pub fn driver(&self) -> Driver {
        self.try_driver().unwrap()
    }

    pub fn try_driver(&self) -> Result<Driver, Error> {
        Driver::open_library(&self.path)
    }

    pub fn device(&self, ordinal: u32) -> Device {
        Device::open(&self.driver(), ordinal).unwrap()
    }

    /// Makes the `nth` of the following calls fail, once; 1 is the next.
    pub fn fail(&self, call: &str, nth: u64, code: i32) {
        let call = CString::new(call).unwrap();
        type Fail = unsafe extern "C" fn(*const c_char, u64, i32);
        // SAFETY: the function has this type.
        unsafe {
            std::mem::transmute::<*mut c_void, Fail>(self.find("stand_in_fail"))(
                call.as_ptr(),
                nth,
                code,
            )
        };
    }

    pub fn calls(&self, call: &str) -> u64 {
        let call = CString::new(call).unwrap();
        type Calls = unsafe extern "C" fn(*const c_char) -> u64;
        // SAFETY: the function has this type.
        unsafe {
            std::mem::transmute::<*mut c_void, Calls>(self.find("stand_in_calls"))(call.as_ptr())
        }
    }

    fn count(&self, function: &str) -> u64 {
        type Count = unsafe extern "C" fn() -> u64;
        // SAFETY: functions that count have this type.
        unsafe { std::mem::transmute::<*mut c_void, Count>(self.find(function))() }
    }

    /// How many objects were made and neither freed nor destroyed.
    pub fn live(&self) -> u64 {
        self.count("stand_in_live")
    }

    pub fn pageable_copies(&self) -> u64 {
        self.count("stand_in_pageable_copies")
    }

    /// How many contexts are on this thread's stack.
    pub fn contexts(&self) -> u64 {
        self.count("stand_in_contexts")
    }

    pub fn delay(&self, us: u64) {
        type Delay = unsafe extern "C" fn(u64);
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut c_void, Delay>(self.find("stand_in_set_delay"))(us) };
    }

    pub fn hold(&self, stream: &Stream, is_held: bool) {
        type Hold = unsafe extern "C" fn(usize, bool) -> i32;
        // SAFETY: the function has this type.
        let hold = unsafe { std::mem::transmute::<*mut c_void, Hold>(self.find("stand_in_hold")) };
        // SAFETY: takes any number.
        assert_eq!(unsafe { hold(stream.handle(), is_held) }, 1);
    }

    pub fn hold_all(&self, is_held: bool) {
        type Hold = unsafe extern "C" fn(bool);
        // SAFETY: the function has this type.
        unsafe {
            std::mem::transmute::<*mut c_void, Hold>(self.find("stand_in_hold_all"))(is_held)
        };
    }

    pub fn set_kind(&self, memory: &DeviceMemory, kind: i32) {
        type SetKind = unsafe extern "C" fn(u64, i32) -> i32;
        // SAFETY: the function has this type.
        let set =
            unsafe { std::mem::transmute::<*mut c_void, SetKind>(self.find("stand_in_set_kind")) };
        // SAFETY: takes any number.
        assert_eq!(unsafe { set(memory.address(), kind) }, 1);
    }

    pub fn assert_used_well(&self) {
        let mut text = [0_u8; 300];
        type Misuse = unsafe extern "C" fn(*mut u8, usize) -> u64;
        // SAFETY: the function has this type.
        let misuse =
            unsafe { std::mem::transmute::<*mut c_void, Misuse>(self.find("stand_in_misuse")) };
        // SAFETY: there is room for this many bytes.
        let count = unsafe { misuse(text.as_mut_ptr(), text.len()) };
        assert_eq!(count, 0, "{}", String::from_utf8_lossy(&text).trim_end_matches('\0'));
    }

    /// Everything was used as it may be, and nothing is left.
    pub fn assert_clean(&self) {
        self.assert_used_well();
        assert_eq!(self.live(), 0);
    }
}

/// Returns contents that differ by seed and place.
pub fn contents(seed: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| (at + (seed << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (0..bytes as u64).map(|at| byte(at) as u8).collect()
}

/// Allocates memory of the stream's device with these contents, which are there for what is queued on the stream afterwards.
pub fn filled(stream: &Stream, bytes: &[u8]) -> DeviceMemory {
    let memory = DeviceMemory::allocate(stream.device(), bytes.len() as u64).unwrap();
    let region = gpu::pinned(stream.device(), bytes.len() as u64).unwrap();
    region.write(0..bytes.len()).unwrap().copy_from_slice(bytes);
    let lease = region.read(0..bytes.len()).unwrap();
    gpu::upload(stream, lease, &memory).unwrap().wait(PATIENCE).unwrap();
    memory
}

/// Returns the contents of memory when all is done that was queued on the stream before.
pub fn contents_of(stream: &Stream, memory: &DeviceMemory) -> Vec<u8> {
    let region = gpu::pinned(stream.device(), memory.bytes()).unwrap();
    let lease = region.write(0..region.len()).unwrap();
    gpu::download(stream, memory, lease).unwrap().into_lease(PATIENCE).unwrap().to_vec()
}

/// Contexts with each other's addresses.
pub struct World {
    contexts: Vec<Context>,
}

impl World {
    pub fn start(members: usize) -> Self {
        let secret = Secret::random().unwrap();
        let start = |_| {
            let address = (Ipv4Addr::LOCALHOST, 0).into();
            Context::start(ContextSettings::new(address, secret.clone())).unwrap()
        };
        Self { contexts: (0..members).map(start).collect() }
    }

    fn at_all<R: Send>(&self, act: impl Fn(u32, &Context) -> R + Sync) -> Vec<R> {
        let act = &act;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(&self.contexts)
                .map(|(rank, context)| scope.spawn(move || act(rank, context)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Runs this at each member of a group with blocks of 1,000 bytes, on a thread of its own.
    pub fn in_group<R: Send>(&self, act: impl Fn(u32, Group) -> R + Sync) -> Vec<R> {
        let addresses: Vec<_> = self.contexts.iter().map(Context::address).collect();
        self.at_all(|rank, context| {
            let settings = GroupSettings::new(1, addresses.clone(), rank).block_bytes(1_000);
            // No memory but what is posted.
            let settings = settings.small(None).receive_bytes_max(0);
            act(rank, context.create_group(settings).unwrap())
        })
    }

    /// Runs this at each member of a team, on a thread of its own.
    pub fn in_team<R: Send>(&self, act: impl Fn(Team) -> R + Sync) -> Vec<R> {
        let addresses: Vec<_> = self.contexts.iter().map(Context::address).collect();
        self.at_all(|rank, context| {
            let settings = TeamSettings::new(7, addresses.clone(), rank);
            act(context.create_team(settings).unwrap())
        })
    }

    pub fn close(self) {
        for context in self.contexts {
            context.close(PATIENCE).unwrap();
        }
    }
}

/// Copies a region's bytes.
pub fn bytes_of(region: &Region) -> Vec<u8> {
    region.read(0..region.len()).unwrap().to_vec()
}
