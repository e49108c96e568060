//! Messages of groups from device to devices, over loopback, with blocks of 1,000 bytes.

use std::{
    sync::{
        Mutex,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use gpu::{Device, DeviceMemory, Error, GroupStaging, Stream, download, pinned, upload};
use rdmc::{Group, Region};

use crate::common::{PATIENCE, StandIn, World, bytes_of, contents, contents_of, filled};

const MEMBERS: usize = 4;

/// What a member of a group uses of a device.
struct Member {
    staging: GroupStaging,
    stream: Stream,
    region: Region,
}

impl Member {
    fn new(device: &Device, streams: u32, bytes: u64) -> Self {
        Self {
            staging: GroupStaging::new(device, streams).unwrap(),
            stream: Stream::new(device).unwrap(),
            region: pinned(device, bytes).unwrap(),
        }
    }

    fn receive(&self, group: &Group, memory: &DeviceMemory) -> Result<gpu::Upload, Error> {
        let mut message = group.receive(PATIENCE)?.expect("a message");
        self.staging.receive(group, &mut message, memory, &self.stream, PATIENCE)
    }
}

/// Random lengths around those of blocks; all members on one device, or every second on another.
pub fn replicate(devices: &[Device], bytes_max: usize) {
    let world = World::start(MEMBERS);
    let sizes = [0, 1, 999, 1_000, 1_001, bytes_max / 7, bytes_max];
    world.in_group(|rank, group| {
        let device = &devices[rank as usize % devices.len()];
        let member = Member::new(device, 1 + rank % 3, bytes_max as u64);
        for (seed, bytes) in (0..).zip(sizes) {
            let sent = contents(seed, bytes);
            if rank == 0 {
                let memory = filled(&member.stream, &sent);
                let (region, stream) = (&member.region, &member.stream);
                let handle =
                    member.staging.send(&group, &memory, region, stream, PATIENCE).unwrap();
                assert_eq!(bytes_of(&handle.into_region(PATIENCE).unwrap()), sent);
                continue;
            }
            // One byte more, which has to stay.
            let memory = filled(&member.stream, &vec![9; bytes + 1]);
            let posted = group.post_receive_buffer(pinned(device, bytes_max as u64).unwrap());
            // A message without bytes may have left its region to the next: the last of all is then there, and the group closed.
            assert!(matches!(posted, Ok(()) | Err(rdmc::Error::Closed(_))), "{posted:?}");
            let mut message = group.receive(PATIENCE).unwrap().expect("a message");
            let staged =
                member.staging.receive(&group, &mut message, &memory, &member.stream, PATIENCE);
            let mut upload = staged.unwrap();
            // Only the stream's order makes this right.
            let there = contents_of(&member.stream, &memory);
            assert!(there[..bytes] == sent && there[bytes] == 9, "message {seed} of {bytes} bytes");
            upload.wait(PATIENCE).unwrap();
            message.into_region(PATIENCE).unwrap();
        }
        group.close(PATIENCE).unwrap();
    });
    world.close();
}

#[test]
fn messages_arrive_on_devices() {
    for delay_us in [0, 300] {
        let stand_in = StandIn::new();
        stand_in.delay(delay_us);
        replicate(&[stand_in.device(0), stand_in.device(1)], 100_003);
        assert_eq!(stand_in.pageable_copies(), 0);
        stand_in.assert_clean();
    }
}

/// The library's own memory is not pinned: slower, not wrong.
#[test]
fn messages_arrive_through_memory_that_is_not_pinned() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let world = World::start(2);
    world.in_group(|rank, group| {
        if rank == 0 {
            group.send(Region::from_vec(contents(5, 20_000)), PATIENCE).unwrap();
        } else {
            let member = Member::new(&device, 1, 0);
            let memory = DeviceMemory::allocate(&device, 20_000).unwrap();
            let upload = member.receive(&group, &memory).unwrap();
            assert_eq!(contents_of(&member.stream, &memory), contents(5, 20_000));
            drop(upload);
        }
        group.close(PATIENCE).unwrap();
    });
    world.close();
    drop(device);
    assert!(stand_in.pageable_copies() > 0);
    stand_in.assert_clean();
}

#[test]
fn receiving_does_not_wait_for_copies() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let world = World::start(2);
    world.in_group(|rank, group| {
        if rank == 0 {
            group.send(Region::from_vec(contents(6, 20_000)), PATIENCE).unwrap();
        } else {
            let member = Member::new(&device, 2, 20_000);
            let memory = DeviceMemory::allocate(&device, 20_000).unwrap();
            group.post_receive_buffer(member.region.clone()).unwrap();
            stand_in.hold_all(true);
            let mut upload = member.receive(&group, &memory).unwrap();
            assert!(!upload.is_done().unwrap());
            let error = upload.wait(Duration::from_millis(1)).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            stand_in.hold_all(false);
            upload.wait(PATIENCE).unwrap();
            assert_eq!(contents_of(&member.stream, &memory), contents(6, 20_000));
        }
        group.close(PATIENCE).unwrap();
    });
    world.close();
    drop(device);
    stand_in.assert_clean();
}

/// What the application does on its stream comes before copies from its memory, and before copies to it.
#[test]
fn copies_follow_the_applications_stream() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let world = World::start(2);
    let (old, new) = (contents(1, 5_000), contents(2, 5_000));
    world.in_group(|rank, group| {
        let member = Member::new(&device, 1, 5_000);
        let memory = filled(&member.stream, &old);
        let work = pinned(&device, 5_000).unwrap();
        stand_in.hold(&member.stream, true);
        let release = || {
            thread::sleep(Duration::from_millis(30));
            stand_in.hold(&member.stream, false);
        };
        if rank == 0 {
            work.write(0..5_000).unwrap().copy_from_slice(&new);
            let lease = work.read(0..5_000).unwrap();
            let written = upload(&member.stream, lease, &memory).unwrap();
            thread::scope(|scope| {
                scope.spawn(release);
                let (region, stream) = (&member.region, &member.stream);
                member.staging.send(&group, &memory, region, stream, PATIENCE).unwrap();
            });
            assert!(written.is_done().unwrap());
        } else {
            let lease = work.write(0..5_000).unwrap();
            let read = download(&member.stream, &memory, lease).unwrap();
            group.post_receive_buffer(member.region.clone()).unwrap();
            let upload = member.receive(&group, &memory).unwrap();
            release();
            assert_eq!(*read.into_lease(PATIENCE).unwrap(), *old);
            assert_eq!(contents_of(&member.stream, &memory), new);
            drop(upload);
        }
        group.close(PATIENCE).unwrap();
    });
    world.close();
    drop(device);
    stand_in.assert_clean();
}

/// How a group ends at each of two members when a call of the driver fails at one: its error, and the other's.
fn with_fault(faulty: u32, call: &str, nth: u64) -> (Result<(), String>, String) {
    let stand_in = StandIn::new();
    let healthy = StandIn::new();
    let devices = [&stand_in, &healthy].map(|stand_in| stand_in.device(0));
    let world = World::start(2);
    let (sender, done) = channel::<()>();
    let (receiving, done) = (Mutex::new(Some(sender)), Mutex::new(done));
    let mut texts = world.in_group(|rank, group| {
        let device = &devices[usize::from(rank != faulty)];
        let member = Member::new(device, 2, 200_000);
        let memory = filled(&member.stream, &contents(1, 200_000));
        if rank == faulty {
            stand_in.fail(call, nth, 700);
        }
        let outcome = if rank == 0 {
            let (region, stream) = (&member.region, &member.stream);
            member.staging.send(&group, &memory, region, stream, PATIENCE).map(drop)
        } else {
            let posted = group.post_receive_buffer(member.region.clone());
            posted.map_err(Error::from).and_then(|()| member.receive(&group, &memory).map(drop))
        };
        if rank == faulty {
            // If it was not called that often.
            stand_in.fail(call, u64::MAX, 700);
        }
        if rank == 0 {
            // Until the receiver's group has failed: one in which all is delivered closes without it.
            let waited = done.lock().unwrap().recv_timeout(PATIENCE);
            assert_eq!(waited, Err(RecvTimeoutError::Disconnected));
        }
        let closed = group.close(PATIENCE);
        if rank == 1 {
            drop(receiving.lock().unwrap().take());
        }
        match outcome {
            Err(error) => Err(error.to_string()),
            Ok(()) => closed.map_err(|error| error.to_string()),
        }
    });
    drop(world);
    drop(devices);
    stand_in.assert_clean();
    healthy.assert_clean();
    let own = texts.swap_remove(faulty as usize);
    (own, texts.remove(0).err().unwrap_or_default())
}

#[test]
fn a_fault_of_a_device_ends_the_group_everywhere() {
    let root = [
        "cuCtxPushCurrent_v2",
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuMemcpyDtoHAsync_v2",
    ];
    let receiver = [
        "cuCtxPushCurrent_v2",
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuMemcpyHtoDAsync_v2",
    ];
    for (faulty, calls) in [(0, root), (1, receiver)] {
        for call in calls {
            // Those that are made more than once fail also later.
            let once = call.starts_with("cuMemcpy") || faulty == 0 && call == "cuStreamWaitEvent";
            for nth in 1..=1 + u64::from(!once) {
                let (own, other) = with_fault(faulty, call, nth);
                let own = own.unwrap_err();
                let short = call.trim_end_matches("_v2");
                let named =
                    format!("CUDA error 700 (an illegal memory access was encountered) in {short}");
                assert!(own.starts_with(&named), "{call} {nth}: {own}");
                let told = format!("member {faulty} aborted: CUDA error 700 in {short}");
                assert!(other.contains(&told), "{call} {nth}: {other}");
            }
        }
    }
}

#[test]
fn memory_that_is_too_short_is_refused_and_the_group_goes_on() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let world = World::start(2);
    world.in_group(|rank, group| {
        let member = Member::new(&device, 1, 5_000);
        let memory = filled(&member.stream, &contents(1, 5_000));
        if rank == 0 {
            let long = DeviceMemory::allocate(&device, 5_001).unwrap();
            let (staging, region, stream) = (&member.staging, &member.region, &member.stream);
            let error = staging.send(&group, &long, region, stream, PATIENCE).unwrap_err();
            assert!(matches!(error, Error::Lease(_)), "{error}");
            staging.send(&group, &memory, region, stream, PATIENCE).unwrap();
        } else {
            group.post_receive_buffer(member.region.clone()).unwrap();
            let mut message = group.receive(PATIENCE).unwrap().expect("a message");
            let short = memory.slice(0..4_999).unwrap();
            let staging = &member.staging;
            let error = staging.receive(&group, &mut message, &short, &member.stream, PATIENCE);
            let text = error.unwrap_err().to_string();
            assert!(text.contains("bytes 0..5000 do not lie in 4999"), "{text}");
            let received = staging.receive(&group, &mut message, &memory, &member.stream, PATIENCE);
            drop(received.unwrap());
            assert_eq!(contents_of(&member.stream, &memory), contents(1, 5_000));
        }
        group.close(PATIENCE).unwrap();
    });
    world.close();
    assert!(GroupStaging::new(&device, 0).is_err() && GroupStaging::new(&device, 17).is_err());
}
