//! The driver's library, loaded on demand, and its functions.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    fmt,
};

use crate::Error;

/// A `CUresult`: 0, or the number of an error.
pub(crate) type Code = i32;

/// The answer of `cuEventQuery` and `cuStreamQuery` while there is work before them.
pub(crate) const NOT_READY: Code = 600;
/// The answer of `cuMemHostRegister` to memory that is registered.
pub(crate) const ALREADY_REGISTERED: Code = 712;

macro_rules! calls {
    ($($field:ident = $symbol:literal($($argument:ty),*);)*) => {
        /// The calls, under their names in cuda.h. Handles (`CUcontext`, `CUstream`, `CUevent`) and addresses of the host are
        /// pointers there and numbers here: only the driver follows them.
        pub(crate) struct Calls {
            library: String,
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Calls {
            /// Opens the library and finds all calls. It stays open until the process ends: the driver has threads.
            ///
            /// Errors: it cannot be opened, or lacks a call.
            pub(crate) fn open(library: &str) -> Result<Self, Error> {
                let handle = Handle::open(library)?;
                Ok(Self {
                    // SAFETY: the driver's calls have these arguments (cuda.h, by the names with their versions).
                    $($field: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Code>(
                            handle.find($symbol)?,
                        )
                    },)*
                    library: handle.library,
                })
            }
        }
    };
}

calls! {
    init = "cuInit"(u32);
    version = "cuDriverGetVersion"(*mut i32);
    error_string = "cuGetErrorString"(Code, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut i32);
    device_get = "cuDeviceGet"(*mut i32, i32);
    device_name = "cuDeviceGetName"(*mut c_char, i32, i32);
    device_bytes = "cuDeviceTotalMem_v2"(*mut usize, i32);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut usize, i32);
    context_release = "cuDevicePrimaryCtxRelease_v2"(i32);
    context_push = "cuCtxPushCurrent_v2"(usize);
    context_pop = "cuCtxPopCurrent_v2"(*mut usize);
    stream_create = "cuStreamCreate"(*mut usize, u32);
    stream_destroy = "cuStreamDestroy_v2"(usize);
    stream_query = "cuStreamQuery"(usize);
    stream_wait = "cuStreamWaitEvent"(usize, usize, u32);
    event_create = "cuEventCreate"(*mut usize, u32);
    event_record = "cuEventRecord"(usize, usize);
    event_query = "cuEventQuery"(usize);
    event_destroy = "cuEventDestroy_v2"(usize);
    host_allocate = "cuMemHostAlloc"(*mut usize, usize, u32);
    host_free = "cuMemFreeHost"(usize);
    host_register = "cuMemHostRegister_v2"(usize, usize, u32);
    host_unregister = "cuMemHostUnregister"(usize);
    memory_allocate = "cuMemAlloc_v2"(*mut u64, usize);
    memory_free = "cuMemFree_v2"(u64);
    copy_up = "cuMemcpyHtoDAsync_v2"(u64, usize, usize, usize);
    copy_down = "cuMemcpyDtoHAsync_v2"(usize, u64, usize, usize);
    pointer_attribute = "cuPointerGetAttribute"(*mut c_void, i32, u64);
}

impl Calls {
    /// Turns the result of a call into an error with a description.
    pub(crate) fn check(&self, code: Code, call: impl FnOnce() -> String) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the place of the answer lives through the call.
        let known = unsafe { (self.error_string)(code, &mut text) } == 0 && !text.is_null();
        let text = match known {
            // SAFETY: the driver's texts are C strings that are never freed.
            true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            false => "the driver does not know it".into(),
        };
        Err(Error::Cuda { code, text, call: call() })
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calls({})", self.library)
    }
}

/// An open library.
struct Handle {
    library: String,
    handle: *mut c_void,
}

impl Handle {
    fn open(library: &str) -> Result<Self, Error> {
        let failed = |cause| Error::NoDriver { library: library.into(), cause };
        let name = CString::new(library).map_err(|error| failed(error.to_string()))?;
        // SAFETY: a C string; the library's initialisers are those of a driver that the caller trusts.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(failed(loader_error()));
        }
        Ok(Self { library: library.into(), handle })
    }

    fn find(&self, symbol: &str) -> Result<*mut c_void, Error> {
        let missing =
            || Error::NoSymbol { library: self.library.clone(), symbol: symbol.to_owned() };
        let name = CString::new(symbol).map_err(|_| missing())?;
        // SAFETY: the library is open, and the name is a C string.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if found.is_null() { Err(missing()) } else { Ok(found) }
    }
}

/// The loader's words about this thread's last failure.
fn loader_error() -> String {
    // SAFETY: returns a C string or null, valid until the next call of the loader on this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
