//! The same with NVIDIA's driver, where there is one with a device.

use gpu::{Device, DeviceMemory, Driver, MemoryKind, Stream, download, pin, pinned, upload};
use rdmc::Region;

use crate::{
    common::{PATIENCE, contents, contents_of, filled},
    groups::replicate,
    teams::operate,
};

#[test]
fn a_real_device_does_the_same() {
    let opened = Driver::open().and_then(|driver| Ok((driver.devices()?, driver)));
    let (infos, driver) = match opened {
        Ok((infos, driver)) if !infos.is_empty() => (infos, driver),
        Ok(_) => return eprintln!("SKIPPED: tests on a real GPU: the driver sees no device"),
        Err(error) => return eprintln!("SKIPPED: tests on a real GPU: {error}"),
    };
    eprintln!("CUDA {:?}: {infos:?}", driver.version().unwrap());
    let open = |ordinal| Device::open(&driver, ordinal).unwrap();
    let devices: Vec<Device> = (0..infos.len().min(2) as u32).map(open).collect();
    copies(&devices[0]);
    replicate(&devices, 30_000_003);
    operate(&devices, 1 << 20, &[0, 3, 1 << 20, (1 << 20) + 1, 30_000_001]);
}

fn copies(device: &Device) {
    let stream = Stream::new(device).unwrap();
    let bytes = (64 << 20) + 3;
    let memory = filled(&stream, &contents(1, bytes));
    // SAFETY: `memory` lives longer, and its copies are waited for.
    let taken = unsafe { DeviceMemory::from_raw(device, memory.address() + 1, bytes as u64 - 1) };
    let taken = taken.unwrap();
    assert_eq!(taken.kind(), MemoryKind::Plain);
    assert!(contents_of(&stream, &taken) == contents(1, bytes)[1..]);
    // SAFETY: refused.
    let host = unsafe { DeviceMemory::from_raw(device, (&raw const bytes) as u64, 8) };
    assert!(host.unwrap_err().to_string().contains("memory of the host"));
    let region = Region::from_vec(contents(2, bytes));
    for is_pinned in [false, true] {
        if is_pinned {
            pin(device, &region).unwrap();
            pin(device, &region).unwrap();
        }
        let up = upload(&stream, region.read(0..bytes).unwrap(), &memory).unwrap();
        let into = pinned(device, bytes as u64).unwrap();
        let down = download(&stream, &memory, into.write(0..bytes).unwrap()).unwrap();
        assert!(*down.into_lease(PATIENCE).unwrap() == *contents(2, bytes));
        drop(up);
    }
}
