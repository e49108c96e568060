//! Memory of devices and of the host, and copies between them.

use std::{thread, time::Duration};

use gpu::{
    DeviceMemory, Error, Event, GroupStaging, MemoryKind, Stream, download, pin, pinned, upload,
};
use rdmc::Region;

use crate::common::{PATIENCE, StandIn, contents, contents_of, filled};

/// Long enough for a copy that does not wait for what it should.
const WHILE: Duration = Duration::from_millis(30);

#[test]
fn streams_follow_each_other_by_events() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let (first, second) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let memory = filled(&first, &contents(1, 5_000));
    let region = pinned(&device, 5_000).unwrap();
    region.write(0..5_000).unwrap().copy_from_slice(&contents(2, 5_000));
    stand_in.hold(&first, true);
    let up = upload(&first, region.read(0..5_000).unwrap(), &memory).unwrap();
    up.hold(&second).unwrap();
    let into = pinned(&device, 5_000).unwrap();
    let down = download(&second, &memory, into.write(0..5_000).unwrap()).unwrap();
    thread::sleep(WHILE);
    assert!(!down.is_done().unwrap() && !Event::record(&second).unwrap().is_done().unwrap());
    stand_in.hold(&first, false);
    assert_eq!(*down.into_lease(PATIENCE).unwrap(), *contents(2, 5_000));
    assert!(up.is_done().unwrap());
    drop((up, first, second, memory, region, into, device));
    stand_in.assert_clean();
}

#[test]
fn memory_stays_until_its_copies_are_done() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let stream = Stream::new(&device).unwrap();
    let memory = filled(&stream, &contents(1, 100));
    let region = pinned(&device, 100).unwrap();
    stand_in.hold(&stream, true);
    let up = upload(&stream, region.read(0..100).unwrap(), &memory).unwrap();
    assert!(region.write(0..1).is_err(), "the device reads it");
    let error = up.wait(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(error.to_string(), "a copy between host and device took longer than 1 ms");
    // The stream, the memory, the region, the event, and the context.
    drop((region, memory));
    assert_eq!(stand_in.live(), 5);
    stand_in.hold(&stream, false);
    up.wait(PATIENCE).unwrap();
    drop((up, stream, device));
    stand_in.assert_clean();
}

#[test]
fn dropping_a_transfer_waits_for_its_copies() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let stream = Stream::new(&device).unwrap();
    let memory = filled(&stream, &contents(1, 100));
    let into = pinned(&device, 100).unwrap();
    stand_in.hold(&stream, true);
    let down = download(&stream, &memory, into.write(0..100).unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(WHILE);
            stand_in.hold(&stream, false);
        });
        drop(down);
    });
    assert_eq!(*into.read(0..100).unwrap(), *contents(1, 100));
}

#[test]
fn memory_that_is_not_the_devices_is_named() {
    let stand_in = StandIn::new();
    let (device, other) = (stand_in.device(0), stand_in.device(1));
    let memory = DeviceMemory::allocate(&device, 4096).unwrap();
    let take = |device, address, bytes| {
        // SAFETY: the memory lives to the end of the test, and nothing is copied.
        unsafe { DeviceMemory::from_raw(device, address, bytes) }
    };
    let refused = |device, address, bytes| take(device, address, bytes).unwrap_err().to_string();
    let start = memory.address();
    let taken = take(&device, start + 96, 4000).unwrap();
    assert_eq!((taken.bytes(), taken.kind()), (4000, MemoryKind::Plain));
    let text = refused(&device, start + 97, 4000);
    assert!(text.contains("4000 bytes at 0x") && text.contains("beyond its allocation"), "{text}");
    let text = refused(&other, start, 1);
    assert!(text.contains("memory of device 0, not of device 1"), "{text}");
    let here = [0_u8; 8];
    let text = refused(&device, here.as_ptr() as u64, 8);
    assert!(text.contains("memory of the host"), "{text}");
    let region = pinned(&device, 8).unwrap();
    let pinned_address = region.read(0..8).unwrap().as_ptr() as u64;
    assert!(refused(&device, pinned_address, 8).contains("memory of the host"));
    assert!(refused(&device, start, u64::MAX).contains("no memory ends so far"));
    stand_in.set_kind(&memory, 1);
    assert!(refused(&device, start, 8).contains("managed memory"));
    for (kind, expected) in [(2, MemoryKind::Mapped), (3, MemoryKind::Pool)] {
        stand_in.set_kind(&memory, kind);
        assert_eq!(take(&device, start, 4096).unwrap().kind(), expected);
        let text = refused(&device, start, 1 << 40);
        assert!(text.contains("memory of the host"), "beyond its end is nothing: {text}");
    }
    assert_eq!(take(&device, 0, 0).unwrap().bytes(), 0);
    stand_in.fail("cuPointerGetAttribute", 2, 700);
    assert!(refused(&device, start, 8).starts_with("CUDA error 700"));
}

#[test]
fn copies_of_unequal_lengths_and_devices_are_refused() {
    let stand_in = StandIn::new();
    let (device, other) = (stand_in.device(0), stand_in.device(1));
    let (stream, elsewhere) = (Stream::new(&device).unwrap(), Stream::new(&other).unwrap());
    let memory = DeviceMemory::allocate(&device, 10).unwrap();
    let region = pinned(&device, 20).unwrap();
    let error = upload(&stream, region.read(0..9).unwrap(), &memory).unwrap_err();
    assert_eq!(error.to_string(), "10 bytes of the device, and 9 of the host");
    let error = download(&elsewhere, &memory, region.write(0..10).unwrap()).unwrap_err();
    assert!(error.to_string().contains("a stream of device 1 for memory of device 0"), "{error}");
    assert!(memory.slice(3..11).is_err() && memory.slice(10..10).unwrap().bytes() == 0);
    // Nothing is copied of no bytes, and what is longer than the memory is cut.
    let none = DeviceMemory::allocate(&device, 0).unwrap();
    upload(&stream, region.read(0..0).unwrap(), &none).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(stand_in.calls("cuMemcpyHtoDAsync_v2"), 0);
    region.write(0..20).unwrap().copy_from_slice(&contents(3, 20));
    upload(&stream, region.read(0..20).unwrap(), &memory).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(contents_of(&stream, &memory), contents(3, 10));
    stand_in.assert_used_well();
}

#[test]
fn memory_that_exists_is_pinned_until_it_is_freed() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let stream = Stream::new(&device).unwrap();
    let memory = DeviceMemory::allocate(&device, 3_000).unwrap();
    let region = Region::from_vec(contents(4, 3_000));
    upload(&stream, region.read(0..3_000).unwrap(), &memory).unwrap().wait(PATIENCE).unwrap();
    assert_eq!(stand_in.pageable_copies(), 1);
    pin(&device, &region).unwrap();
    pin(&device, &region.slice(5..9).unwrap()).unwrap();
    assert_eq!(stand_in.calls("cuMemHostRegister_v2"), 2);
    let up = upload(&stream, region.read(0..3_000).unwrap(), &memory).unwrap();
    up.wait(PATIENCE).unwrap();
    drop(up);
    assert_eq!(stand_in.pageable_copies(), 1);
    assert_eq!(contents_of(&stream, &memory), contents(4, 3_000));
    assert_eq!(region.try_into_vec().unwrap(), contents(4, 3_000));
    pin(&device, &Region::zeroed(0)).unwrap();
    let file = tempfile::tempfile().unwrap();
    let error = pin(&device, &Region::from_file(&file, 0).unwrap()).unwrap_err();
    assert!(error.to_string().contains("read them into memory"), "{error}");
    drop((stream, memory, device));
    stand_in.assert_clean();
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    stand_in.fail("cuMemHostAlloc", 1, 2);
    let text = pinned(&device, 5).unwrap_err().to_string();
    assert!(
        text.starts_with("CUDA error 2 (out of memory) in cuMemHostAlloc of 5 bytes"),
        "{text}"
    );
    stand_in.fail("cuMemAlloc_v2", 1, 2);
    let text = DeviceMemory::allocate(&device, 6).unwrap_err().to_string();
    assert!(text.contains("in cuMemAlloc of 6 bytes"), "{text}");
    stand_in.fail("cuMemHostRegister_v2", 1, 2);
    let text = pin(&device, &Region::zeroed(7)).unwrap_err().to_string();
    assert!(text.contains("in cuMemHostRegister of 7 bytes"), "{text}");
    drop(device);
    stand_in.assert_clean();
}

/// A copy that was queued is waited for also if its end could not be recorded.
#[test]
fn a_copy_without_an_event_is_waited_for() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let stream = Stream::new(&device).unwrap();
    let memory = filled(&stream, &contents(1, 100));
    let into = pinned(&device, 100).unwrap();
    stand_in.delay(20_000);
    stand_in.fail("cuEventRecord", 1, 700);
    let error = download(&stream, &memory, into.write(0..100).unwrap()).unwrap_err();
    assert!(error.to_string().contains("in cuEventRecord"), "{error}");
    assert_eq!(*into.read(0..100).unwrap(), *contents(1, 100));
    drop((stream, memory, into, device));
    stand_in.assert_clean();
}

/// Longer than what is copied at once, by several streams in turns, after and before what the application does.
#[test]
fn a_long_region_goes_up_in_parts() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let bytes = (35 << 20) + 7;
    let stream = Stream::new(&device).unwrap();
    let memory = filled(&stream, &contents(1, bytes));
    let region = pinned(&device, bytes as u64).unwrap();
    region.write(0..bytes).unwrap().copy_from_slice(&contents(2, bytes));
    stand_in.hold(&stream, true);
    let before = pinned(&device, bytes as u64).unwrap();
    let old = download(&stream, &memory, before.write(0..bytes).unwrap()).unwrap();
    let staging = GroupStaging::new(&device, 2).unwrap();
    let mut up = staging.upload(&region, &memory, &stream, PATIENCE).unwrap();
    thread::sleep(WHILE);
    assert!(!up.is_done().unwrap(), "the application reads the memory before");
    stand_in.hold(&stream, false);
    assert!(contents_of(&stream, &memory) == contents(2, bytes));
    assert!(*old.into_lease(PATIENCE).unwrap() == *contents(1, bytes));
    up.wait(PATIENCE).unwrap();
    assert_eq!(stand_in.calls("cuMemcpyHtoDAsync_v2"), 1 + 3);
    drop((up, staging, stream, memory, region, before, device));
    stand_in.assert_clean();
}

/// More copies than may be pending: the call waits. What the device may use afterwards is not freed.
#[test]
fn memory_of_copies_that_do_not_end_is_leaked() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let stream = Stream::new(&device).unwrap();
    let bytes = 18 * (16 << 20);
    let memory = DeviceMemory::allocate(&device, bytes).unwrap();
    let region = pinned(&device, bytes).unwrap();
    let staging = GroupStaging::new(&device, 1).unwrap();
    stand_in.hold_all(true);
    // Takes 10 s: the copies that were queued are waited for once, not one by one.
    let short = Duration::from_millis(10);
    let error = staging.upload(&region, &memory, &stream, short).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    drop((region, memory));
    stand_in.hold_all(false);
    // After those on the same stream.
    let other = DeviceMemory::allocate(&device, 16).unwrap();
    let last = pinned(&device, 16).unwrap();
    let mut up = staging.upload(&last, &other, &stream, PATIENCE).unwrap();
    up.wait(PATIENCE).unwrap();
    assert_eq!(stand_in.calls("cuMemcpyHtoDAsync_v2"), 17 + 1);
    drop((up, other, last, staging, stream, device));
    stand_in.assert_used_well();
    assert_eq!(stand_in.live(), 3, "both memories, and the context that they are in");
}
