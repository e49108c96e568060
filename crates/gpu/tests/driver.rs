//! The driver: missing, incomplete, refusing; devices and their contexts.

use std::path::Path;

use gpu::{Device, Driver, Error, Event, Stream};

use crate::common::StandIn;

#[test]
fn a_machine_without_a_driver_says_so() {
    let error = Driver::open_library(Path::new("/nowhere/libcuda.so.1")).unwrap_err();
    assert!(matches!(error, Error::NoDriver { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("no NVIDIA driver: /nowhere/libcuda.so.1 cannot be opened"), "{text}");
    assert!(text.contains("install the driver"), "{text}");
}

#[test]
fn a_library_that_is_no_driver_says_what_it_lacks() {
    let error = Driver::open_library(Path::new("libc.so.6")).unwrap_err();
    assert!(matches!(&error, Error::NoSymbol { symbol, .. } if symbol == "cuInit"), "{error}");
}

#[test]
fn a_driver_without_a_device_says_so() {
    let stand_in = StandIn::new();
    stand_in.fail("cuInit", 1, 100);
    let text = stand_in.try_driver().unwrap_err().to_string();
    assert!(text.starts_with("CUDA error 100 ("), "{text}");
    assert!(text.contains("in cuInit; look at CUDA_VISIBLE_DEVICES"), "{text}");
}

#[test]
fn devices_are_listed_without_being_used() {
    let stand_in = StandIn::new();
    let driver = stand_in.driver();
    assert_eq!(driver.version().unwrap(), (12, 4));
    let devices = driver.devices().unwrap();
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["stand-in 0", "stand-in 1"]);
    assert!(devices.iter().all(|device| device.bytes == 1 << 34 && !device.is_mig()));
    assert_eq!((devices[1].ordinal, stand_in.live()), (1, 0));
    let error = Device::open(&driver, 2).unwrap_err();
    assert!(matches!(error, Error::NoDevice { ordinal: 2, devices: 2 }), "{error}");
}

#[test]
fn the_applications_context_stays_current() {
    let stand_in = StandIn::new();
    let device = stand_in.device(1);
    assert_eq!(stand_in.contexts(), 0);
    let stream = Stream::new(&device).unwrap();
    stand_in.fail("cuEventCreate", 1, 2);
    let error = Event::record(&stream).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("CUDA error 2 (out of memory) in cuEventCreate"), "{text}");
    assert_eq!(stand_in.contexts(), 0);
    drop(device);
    assert_eq!(stand_in.live(), 2, "the stream, and the context that it is in");
    drop(stream);
    stand_in.assert_clean();
}
