//! Operations of teams on memory of devices, in small chunks, over loopback.

use std::{thread, time::Duration};

use gpu::{
    Device, DeviceMemory, Error, Event, Stream, TeamStaging, TeamStagingSettings,
    all_reduce_in_chunks, broadcast_in_chunks, download, pinned, upload,
};
use rdmc::{Op, Team, Type};

use crate::common::{PATIENCE, StandIn, World, contents, contents_of, filled};

const MEMBERS: usize = 4;
/// The member whose memory is the host's.
const HOST: u32 = 2;

fn staging(device: &Device, chunk_bytes: u64, buffers: u32) -> TeamStaging {
    let settings = TeamStagingSettings::default().chunk_bytes(chunk_bytes).buffers(buffers);
    TeamStaging::new(device, settings).unwrap()
}

fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_ne_bytes).collect()
}

/// Broadcasts from each member and all-reduces, of these lengths, with one member on its host.
pub fn operate(devices: &[Device], chunk_bytes: u64, sizes: &[usize]) {
    let world = World::start(MEMBERS);
    world.in_team(|team| {
        let rank = team.rank();
        let device = &devices[rank as usize % devices.len()];
        let stream = Stream::new(device).unwrap();
        let mut staging = staging(device, chunk_bytes, 2 + rank % 2);
        for (seed, &bytes) in (1..).zip(sizes) {
            broadcasts(&team, &mut staging, &stream, chunk_bytes, seed, bytes);
            let values = (0..bytes / 4).map(|at| at as f32 + rank as f32);
            let sum = floats((0..bytes / 4).map(|at| (MEMBERS * at + 6) as f32));
            let (element, op, mut own) = (Type::F32, Op::Sum, floats(values));
            if rank == HOST {
                all_reduce_in_chunks(&team, &mut own, element, op, chunk_bytes, PATIENCE).unwrap();
            } else {
                let memory = filled(&stream, &own);
                staging.all_reduce(&team, &memory, element, op, &stream, PATIENCE).unwrap();
                own = contents_of(&stream, &memory);
            }
            assert!(own == sum, "all-reduce of {bytes} bytes at {rank}");
        }
        staging.settle(PATIENCE).unwrap();
        team.close(PATIENCE).unwrap();
    });
    world.close();
}

fn broadcasts(
    team: &Team,
    staging: &mut TeamStaging,
    stream: &Stream,
    chunk_bytes: u64,
    seed: u64,
    bytes: usize,
) {
    let rank = team.rank();
    for root in 0..team.members() {
        let sent = contents(seed + u64::from(root), bytes);
        let mut own = if rank == root { sent.clone() } else { vec![1; bytes] };
        if rank == HOST {
            broadcast_in_chunks(team, root, &mut own, chunk_bytes, PATIENCE).unwrap();
        } else {
            let memory = filled(stream, &own);
            staging.broadcast(team, root, &memory, stream, PATIENCE).unwrap();
            // Only the stream's order makes this right.
            own = contents_of(stream, &memory);
        }
        assert!(own == sent, "broadcast of {bytes} bytes from {root} at {rank}");
    }
}

#[test]
fn operations_work_on_memory_of_devices() {
    for (delay_us, chunk_bytes) in [(0, 4_096), (0, 16), (200, 4_096)] {
        let stand_in = StandIn::new();
        stand_in.delay(delay_us);
        let devices = [stand_in.device(0), stand_in.device(1)];
        let sizes: &[usize] = match chunk_bytes {
            16 => &[0, 1, 15, 16, 17, 500],
            _ => &[0, 3, 4_096, 4_097, 3 * 4_096, 40_001],
        };
        operate(&devices, chunk_bytes, sizes);
        drop(devices);
        assert_eq!(stand_in.pageable_copies(), 0);
        stand_in.assert_clean();
    }
}

/// What the application does on its stream comes before copies from its memory, and before copies to it.
#[test]
fn copies_follow_the_applications_stream() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let world = World::start(2);
    let (old, new) = (contents(1, 5_000), contents(2, 5_000));
    world.in_team(|team| {
        let stream = Stream::new(&device).unwrap();
        let memory = filled(&stream, &old);
        let mut staging = staging(&device, 1_600, 3);
        let work = pinned(&device, 5_000).unwrap();
        stand_in.hold(&stream, true);
        let release = || {
            thread::sleep(Duration::from_millis(30));
            stand_in.hold(&stream, false);
        };
        if team.rank() == 0 {
            work.write(0..5_000).unwrap().copy_from_slice(&new);
            let written = upload(&stream, work.read(0..5_000).unwrap(), &memory).unwrap();
            thread::scope(|scope| {
                scope.spawn(release);
                staging.broadcast(&team, 0, &memory, &stream, PATIENCE).unwrap();
            });
            written.wait(PATIENCE).unwrap();
        } else {
            let read = download(&stream, &memory, work.write(0..5_000).unwrap()).unwrap();
            thread::scope(|scope| {
                // The last chunk waits for a buffer, and that for the stream.
                scope.spawn(release);
                staging.broadcast(&team, 0, &memory, &stream, PATIENCE).unwrap();
            });
            assert_eq!(*read.into_lease(PATIENCE).unwrap(), *old);
            assert_eq!(contents_of(&stream, &memory), new);
        }
        team.close(PATIENCE).unwrap();
    });
    world.close();
    drop(device);
    stand_in.assert_clean();
}

/// Buffers are allocated once, however many chunks and calls there are.
#[test]
fn the_ring_of_buffers_is_reused() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let world = World::start(1);
    world.in_team(|team| {
        let stream = Stream::new(&device).unwrap();
        let memory = filled(&stream, &contents(1, 160_000));
        let mut staging = staging(&device, 1_600, 3);
        let before = stand_in.calls("cuMemHostAlloc");
        for _ in 0..3 {
            staging.all_reduce(&team, &memory, Type::U8, Op::Max, &stream, PATIENCE).unwrap();
        }
        assert_eq!(stand_in.calls("cuMemHostAlloc") - before, 3);
        assert_eq!(contents_of(&stream, &memory), contents(1, 160_000));
        assert_eq!(stand_in.calls("cuMemcpyDtoHAsync_v2"), 3 * 100 + 1);
        team.close(PATIENCE).unwrap();
    });
    world.close();
    drop(device);
    stand_in.assert_clean();
}

/// What each of three members gets when the `nth` call fails at member 1 during an operation.
fn with_fault(call: &str, nth: u64, is_reduction: bool) -> Vec<String> {
    let faulty = StandIn::new();
    let healthy = StandIn::new();
    let devices = [&healthy, &faulty, &healthy].map(|stand_in| stand_in.device(0));
    let world = World::start(3);
    let texts = world.in_team(|team| {
        let rank = team.rank();
        let device = &devices[rank as usize];
        let stream = Stream::new(device).unwrap();
        let memory = filled(&stream, &contents(1, 400_000));
        // SAFETY: freed when the stream has come to the end of the call, as PyTorch does.
        let raw = unsafe { DeviceMemory::from_raw(device, memory.address(), memory.bytes()) };
        let raw = raw.unwrap();
        let mut staging = staging(device, 1_600, 3);
        if rank == 1 {
            faulty.delay(300);
            faulty.fail(call, nth, 700);
        }
        let outcome = if is_reduction {
            staging.all_reduce(&team, &raw, Type::U8, Op::Max, &stream, PATIENCE)
        } else {
            staging.broadcast(&team, 0, &raw, &stream, PATIENCE)
        };
        if rank == 1 {
            // If it was not called that often.
            faulty.fail(call, u64::MAX, 700);
        }
        Event::record(&stream).unwrap().wait("the call", PATIENCE).unwrap();
        drop(memory);
        match outcome.and_then(|()| Ok(team.close(PATIENCE)?)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    });
    drop((world, devices));
    faulty.assert_clean();
    healthy.assert_clean();
    texts
}

#[test]
fn a_fault_of_a_device_ends_the_team_everywhere() {
    let both = [
        "cuMemHostAlloc",
        "cuMemcpyHtoDAsync_v2",
        "cuEventRecord",
        "cuEventQuery",
        "cuStreamWaitEvent",
    ];
    let cases = both.iter().map(|&call| (call, false));
    let reductions = both.iter().chain(&["cuMemcpyDtoHAsync_v2"]).map(|&call| (call, true));
    for (call, is_reduction) in cases.chain(reductions) {
        for nth in [1, 3] {
            let texts = with_fault(call, nth, is_reduction);
            let short = call.trim_end_matches("_v2");
            let named =
                format!("CUDA error 700 (an illegal memory access was encountered) in {short}");
            assert!(texts[1].starts_with(&named), "{call} {nth}: {}", texts[1]);
            for other in [0, 2] {
                let told =
                    texts[other].contains(&format!("member 1 aborted: CUDA error 700 in {short}"));
                assert!(told, "{call} {nth} at {other}: {}", texts[other]);
            }
        }
    }
}

#[test]
fn a_device_that_is_too_late_ends_the_team() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let world = World::start(2);
    let texts = world.in_team(|team| {
        let stream = Stream::new(&device).unwrap();
        let memory = filled(&stream, &contents(1, 1_600));
        let mut staging = staging(&device, 1_600, 2);
        if team.rank() == 0 {
            stand_in.hold(&stream, true);
            // Work of the application that does not end.
            let work = pinned(&device, 16).unwrap();
            let part = memory.slice(0..16).unwrap();
            let pending = download(&stream, &part, work.write(0..16).unwrap()).unwrap();
            let short = Duration::from_millis(50);
            let error = staging.broadcast(&team, 0, &memory, &stream, short).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            stand_in.hold(&stream, false);
            pending.wait(PATIENCE).unwrap();
            return error.to_string();
        }
        staging.broadcast(&team, 0, &memory, &stream, PATIENCE).unwrap_err().to_string()
    });
    assert!(texts[1].contains("member 0 aborted: a GPU needs over "), "{texts:?}");
    drop((world, device));
    stand_in.assert_clean();
}

#[test]
fn chunks_of_other_lengths_end_the_team() {
    let stand_in = StandIn::new();
    let device = stand_in.device(0);
    let world = World::start(2);
    world.in_team(|team| {
        let stream = Stream::new(&device).unwrap();
        let memory = filled(&stream, &contents(1, 10_000));
        let mut staging = staging(&device, if team.rank() == 0 { 1_600 } else { 3_200 }, 2);
        // The root is done when all is on its way.
        let called = staging.broadcast(&team, 0, &memory, &stream, PATIENCE);
        let error = called.and_then(|()| Ok(team.close(PATIENCE)?)).unwrap_err();
        assert!(matches!(error, Error::Rdmc(rdmc::Error::TeamFailed(_))), "{error}");
    });
}

#[test]
fn settings_and_memory_that_cannot_be_used_are_refused() {
    let stand_in = StandIn::new();
    let (device, other) = (stand_in.device(0), stand_in.device(1));
    let refused = |settings| TeamStaging::new(&device, settings).unwrap_err().to_string();
    let defaults = TeamStagingSettings::default;
    assert!(refused(defaults().chunk_bytes(24)).contains("a multiple of 16"));
    assert!(refused(defaults().buffers(1)).contains("1 buffers: use 2 to 64"));
    let world = World::start(1);
    world.in_team(|team| {
        let (stream, elsewhere) = (Stream::new(&device).unwrap(), Stream::new(&other).unwrap());
        let memory = DeviceMemory::allocate(&device, 64).unwrap();
        let mut staging = staging(&device, 64, 2);
        let error = staging.broadcast(&team, 0, &memory, &elsewhere, PATIENCE).unwrap_err();
        assert!(error.to_string().contains("of device 1"), "{error}");
        // The team is as it was.
        staging.broadcast(&team, 0, &memory, &stream, PATIENCE).unwrap();
        team.close(PATIENCE).unwrap();
    });
}
