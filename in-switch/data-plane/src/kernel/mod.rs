//! The data plane in the kernel: an eBPF program on each port, and pinned maps.
//!
//! The maps are pinned in a directory of the BPF file system, one for each switch, and outlive the agent,
//! as the program on the ports does: groups go on. An agent that starts finds them, and replaces the
//! program by its own on the same maps.
//!
//! A running program may have looked up an entry just before it is replaced or removed, and the kernel
//! reuses that memory for the next entry of the map at once (`bpf_mem_alloc`, since Linux 6.1; before,
//! for preallocated maps). So nothing is written before every program that may have looked up a freed
//! entry has ended: [`KernelPlane::settle`].

mod changes;
mod entries;
mod layout;
mod maps;
mod traces;

use std::{
    collections::BTreeMap,
    error::Error,
    io,
    net::IpAddr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, ArrayOfMaps, MapData, MapError, PerCpuArray, PerCpuValues},
    programs::{
        ProgramError, ProgramType, SchedClassifier, TcAttachType, TestRun, TestRunOptions,
        tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle, qdisc_add_clsact},
    },
    sys::{Stats, enable_stats},
};
use mcrdma::{GroupKey, Merging, Replication, Source};
use roce::ShiftTables;
use zerocopy::IntoBytes;

use crate::{PlaneError, Statistics};
use layout::{GroupBytes, MemberBytes, MemberKeyBytes, RegionsKeyBytes, TrafficBytes};
use maps::Maps;
use traces::Traces;

/// `bpf/mcrdma.bpf.c`, compiled.
#[cfg(not(ebpf))]
static PROGRAM: &[u8] = &[];
#[cfg(ebpf)]
static PROGRAM: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/mcrdma.bpf.o"));
const NAME: &str = "mcrdma";
/// The program that makes a port receive a frame.
const RECEIVE: &str = "receive";
const LOAD_ATTEMPTS: u32 = 5;
/// In the verifier's log where it refuses what it allows with CAP_PERFMON.
const UNPRIVILEGED: &str = "prohibited for !root";
/// Priority and handle of the filter on a port: the same for every agent, so that one replaces another's.
const PRIORITY: u16 = 4791;
const HANDLE: TcHandle = TcHandle::new(0, 1);
const MAPS: [&str; 8] =
    ["groups", "regions", "senders", "members", "answers", "addresses", "traffic", "counters"];
/// Suffix of the names of pinned maps: the version of the layout in `bpf/tables.h`, to be changed with it.
/// Maps of another layout are not touched, and go when no port has their program any more.
const LAYOUT: &str = "-4";

/// Members by the sender's address and queue pair: index, address, and ingress ports.
type Members = BTreeMap<(IpAddr, u32), Vec<(u32, IpAddr, Vec<mcrdma::Port>)>>;

/// A switch in the kernel.
pub struct KernelPlane {
    directory: PathBuf,
    ebpf: Ebpf,
    maps: Maps,
    shift_tables: ShiftTables,
    counters: PerCpuArray<MapData, u64>,
    test_time_ns: Array<MapData, u64>,
    graces: ArrayOfMaps<MapData, Array<MapData, u64>>,
    /// The value with which `graces` is updated; never read.
    grace: Array<MapData, u64>,
    traces: Traces,
    /// Generation of the next version of a group.
    generation: u64,
    /// Regions of replaced or removed versions, which a running program may still read.
    retired: Vec<RegionsKeyBytes>,
    /// Entries have been freed that a running program may still read.
    is_unsettled: bool,
}

impl KernelPlane {
    /// Whether this build, this kernel and this process's capabilities allow it.
    ///
    /// Errors: why not.
    pub fn check() -> Result<(), PlaneError> {
        if !crate::HAS_KERNEL_PLANE {
            return Err(PlaneError::NotBuilt);
        }
        match aya::sys::is_program_supported(ProgramType::SchedClassifier) {
            Ok(true) => Ok(()),
            Ok(false) => Err(PlaneError::NotPossible { why: "it has no eBPF on tc".to_owned() }),
            Err(error) => Err(PlaneError::NotPossible { why: with_causes(&error) }),
        }
    }

    /// Loads the program, on the maps that are pinned in this directory; makes both if there are none.
    /// The directory has to be in a BPF file system. The program is on no port yet.
    ///
    /// Needs Linux 5.17 or later, CAP_BPF, CAP_PERFMON (the verifier refuses pointer arithmetic without it) and
    /// CAP_NET_ADMIN; where the BPF file system is not mounted, CAP_SYS_ADMIN to mount it.
    pub fn open(directory: &Path) -> Result<Self, PlaneError> {
        Self::open_with(directory, false)
    }

    /// As [`KernelPlane::open`], with a clock that [`KernelPlane::set_test_time`] sets: for tests.
    pub fn open_with_test_clock(directory: &Path) -> Result<Self, PlaneError> {
        Self::open_with(directory, true)
    }

    fn open_with(directory: &Path, has_test_clock: bool) -> Result<Self, PlaneError> {
        Self::check()?;
        prepare(directory)
            .map_err(|source| PlaneError::Directory { directory: directory.to_owned(), source })?;
        let shift_tables = ShiftTables::new();
        let tables: Vec<u32> = shift_tables.words().collect();
        let mut loader = EbpfLoader::new();
        loader.override_global("shift_tables", &tables[..], true);
        let has_test_clock = u32::from(has_test_clock);
        loader.override_global("has_test_clock", &has_test_clock, true);
        for name in MAPS {
            loader.map_pin_path(name, directory.join(format!("{name}{LAYOUT}")));
        }
        let mut ebpf = loader.load(PROGRAM).map_err(failed("load the maps", directory))?;
        for name in [NAME, RECEIVE] {
            let program = Self::program(&mut ebpf, name)?;
            load(program).map_err(|error| match &error {
                ProgramError::LoadError { io_error, verifier_log }
                    if verifier_log.to_string().contains(UNPRIVILEGED) =>
                {
                    PlaneError::NotPossible { why: io_error.to_string() }
                }
                _ => failed("load the program", directory)(error),
            })?;
        }
        let mut map =
            |name: &'static str| ebpf.take_map(name).ok_or(PlaneError::Program { missing: name });
        let wrong = |error: MapError| failed("open the maps", directory)(error);
        let mut plane = Self {
            maps: Maps {
                groups: map("groups")?.try_into().map_err(wrong)?,
                regions: map("regions")?.try_into().map_err(wrong)?,
                senders: map("senders")?.try_into().map_err(wrong)?,
                members: map("members")?.try_into().map_err(wrong)?,
                answers: map("answers")?.try_into().map_err(wrong)?,
                addresses: map("addresses")?.try_into().map_err(wrong)?,
                traffic: map("traffic")?.try_into().map_err(wrong)?,
            },
            counters: map("counters")?.try_into().map_err(wrong)?,
            test_time_ns: map("test_time_ns")?.try_into().map_err(wrong)?,
            graces: map("graces")?.try_into().map_err(wrong)?,
            grace: Array::create(1, 0).map_err(wrong)?,
            traces: Traces::new(map("events")?.try_into().map_err(wrong)?),
            generation: 0,
            retired: Vec::new(),
            // A former agent may have freed entries.
            is_unsettled: true,
            directory: directory.to_owned(),
            ebpf,
            shift_tables,
        };
        plane.settle()?;
        plane.is_unsettled = true;
        let failed = plane.failed("remove what belongs to no group");
        plane.generation = plane.maps.remove_strays().map_err(failed)?;
        let failed = plane.failed("end traces");
        plane.maps.end_traces().map_err(failed)?;
        Ok(plane)
    }

    fn program<'a>(
        ebpf: &'a mut Ebpf,
        name: &'static str,
    ) -> Result<&'a mut SchedClassifier, PlaneError> {
        let program = ebpf.program_mut(name).and_then(|program| program.try_into().ok());
        program.ok_or(PlaneError::Program { missing: name })
    }

    fn failed<E: Error>(&self, step: &'static str) -> impl FnOnce(E) -> PlaneError + use<E> {
        failed(step, &self.directory)
    }

    /// The interface index of a port.
    pub fn port_number(port: &str) -> Result<mcrdma::Port, PlaneError> {
        use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None);
        let number = any.and_then(|socket| name_to_index(socket, port));
        number.map_err(io::Error::from).map_err(wrong_port(port))
    }

    /// Attaches the program to a port, in place of another agent's. It stays there until
    /// [`KernelPlane::detach`], also when this is dropped.
    pub fn attach(&mut self, port: &str) -> Result<(), PlaneError> {
        // The qdisc may exist already.
        let qdisc = qdisc_add_clsact(port);
        let program = Self::program(&mut self.ebpf, NAME)?;
        let ingress = TcAttachType::Ingress;
        let there = SchedClassifierLink::attached(port, ingress, PRIORITY, HANDLE, None)
            .map_err(wrong_port(port))?;
        let id = match program.attach_to_link(there) {
            Ok(id) => id,
            Err(_) => {
                let options = NlOptions { priority: PRIORITY, handle: HANDLE, classid: None };
                let options = TcAttachOptions::Netlink(options);
                // Without the qdisc the filter fails, too: the first error is the cause.
                program.attach_with_options(port, ingress, options).map_err(
                    |error| match qdisc {
                        Err(reason) => wrong_port(port)(reason),
                        Ok(()) => wrong_port(port)(error),
                    },
                )?
            }
        };
        let link = program.take_link(id).map_err(wrong_port(port))?;
        // Dropping it would detach the program.
        std::mem::forget(link);
        Ok(())
    }

    /// Detaches the program from a port.
    pub fn detach(&mut self, port: &str) -> Result<(), PlaneError> {
        let there =
            SchedClassifierLink::attached(port, TcAttachType::Ingress, PRIORITY, HANDLE, None)
                .map_err(wrong_port(port))?;
        use aya::programs::Link;
        there.detach().map_err(wrong_port(port))
    }

    /// Unpins the maps: they are freed, with all groups, when no port has the program any more.
    pub fn unpin(self) -> Result<(), PlaneError> {
        std::fs::remove_dir_all(&self.directory)
            .map_err(|source| PlaneError::Directory { directory: self.directory.clone(), source })
    }

    fn write(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        self.settle()?;
        let failed = self.failed("write a group");
        let mut write = || {
            let none = vec![[0; size_of::<TrafficBytes>()]; processors()?];
            let group = layout::group_key(key.sender, key.id);
            self.maps.traffic.insert(group, PerCpuValues::try_from(none)?, 0)?;
            if let Some(merging) = merging {
                let qpn = replication.sender_qpn;
                let sender = layout::group_key(key.sender, qpn);
                self.maps.answers.insert(sender, layout::answers(merging), 0)?;
                for (index, member) in (0..).zip(&merging.members) {
                    let (place, member) = Self::member(key.sender, qpn, index, member);
                    self.maps.members.insert(place, member, 0)?;
                }
                self.maps.senders.insert(sender, layout::sender(key.id, merging), 0)?;
                let address = layout::address(merging.virtual_address);
                if let Some(mac) = merging.virtual_mac.map(layout::mac)
                    && self.maps.addresses.get(&address, 0).ok() != Some(mac)
                {
                    self.is_unsettled = true;
                    self.maps.addresses.insert(address, mac, 0)?;
                }
            }
            self.write_branches(key, replication)
        };
        write().map_err(failed)
    }

    /// Writes the regions of a new version, then the group's entry with its generation. That single write
    /// switches to the new version; packets that are being copied finish by the old one.
    fn write_branches(&mut self, key: GroupKey, replication: &Replication) -> Result<(), MapError> {
        let generation = self.generation;
        self.generation += 1;
        let group = layout::group(key, replication, generation, &self.shift_tables);
        let group = layout::trace_group(&group, self.traces.contains(key));
        let key = layout::group_key(key.sender, key.id);
        let old = self.maps.groups.get(&key, 0).ok();
        let written = self
            .write_regions(generation, replication)
            .and_then(|()| self.maps.groups.insert(key, group, 0));
        if written.is_err() {
            // No entry refers to them, so no program reads them.
            for key in layout::regions_keys(&group) {
                let _ = self.maps.regions.remove(&key);
            }
        } else if let Some(old) = old {
            self.retire(&old);
        }
        written
    }

    /// How many traced packets of a group there was no space for, since it was inserted.
    fn trace_lost(&self, key: GroupKey) -> Result<u64, PlaneError> {
        let failed = self.failed("read a group's counters");
        let place = layout::group_key(key.sender, key.id);
        let traffic = self.maps.traffic.get(&place, 0).map_err(failed)?;
        Ok(layout::read_traffic(traffic.iter()).trace_lost)
    }

    fn write_regions(
        &mut self,
        generation: u64,
        replication: &Replication,
    ) -> Result<(), MapError> {
        for (index, branch) in replication.branches.iter().enumerate() {
            let regions = branch.rewriting.iter().map(|rewriting| &rewriting.regions);
            for (key, chunk) in regions.flat_map(|all| layout::regions(generation, index, all)) {
                self.maps.regions.insert(key, chunk, 0)?;
            }
        }
        Ok(())
    }

    /// Notes that a version of a group has been replaced or removed.
    fn retire(&mut self, group: &GroupBytes) {
        self.retired.extend(layout::regions_keys(group));
        self.is_unsettled = true;
    }

    /// Waits until no running program can read entries that were freed or retired: some milliseconds, if
    /// there are any. Required before every write.
    fn settle(&mut self) -> Result<(), PlaneError> {
        if self.is_unsettled {
            let failed = self.failed("wait until packets have been copied");
            self.graces.set(0, &self.grace, 0).map_err(failed)?;
            self.is_unsettled = false;
        }
        for key in self.retired.drain(..) {
            let _ = self.maps.regions.remove(&key);
        }
        Ok(())
    }

    fn member(
        sender: IpAddr,
        qpn: u32,
        index: u32,
        member: &Source,
    ) -> (MemberKeyBytes, MemberBytes) {
        let key = layout::member_key(sender, qpn, member.address);
        (key, layout::member(index, &member.ports))
    }

    /// Makes a port receive a frame.
    fn receive(&mut self, port: mcrdma::Port, frame: &[u8]) -> Result<(), PlaneError> {
        let failed = self.failed("tell the sender of a removal");
        let program = Self::program(&mut self.ebpf, RECEIVE)?;
        // `struct __sk_buff` up to its mark, behind the length and the type.
        let context: [u32; 3] = [0, 0, port];
        let options = TestRunOptions {
            data_in: Some(frame),
            ctx_in: Some(context.as_bytes()),
            ..TestRunOptions::new()
        };
        program.test_run(options).map(drop).map_err(failed)
    }

    fn merging(&self, group: GroupKey, qpn: u32, members: &Members) -> Option<Merging> {
        let key = layout::group_key(group.sender, qpn);
        let sender = layout::read_sender(&self.maps.senders.get(&key, 0).ok()?);
        if sender.id != group.id {
            return None;
        }
        let answers = self.maps.answers.get(&key, 0).ok()?;
        let mac = self.maps.addresses.get(&sender.virtual_address, 0).ok().map(layout::read_mac);
        let mac = mac.filter(|_| sender.is_answered != 0);
        let members = members.get(&(group.sender, qpn)).cloned().unwrap_or_default();
        Some(layout::read_merging(&sender, &answers, mac, members))
    }

    /// Sets the clock of [`KernelPlane::open_with_test_clock`].
    pub fn set_test_time(&mut self, now_ns: u64) -> Result<(), PlaneError> {
        let failed = self.failed("set the clock");
        self.test_time_ns.set(0, now_ns, 0).map_err(failed)
    }

    /// Enables the kernel's run-time statistics of all BPF programs until the descriptor is dropped. That
    /// costs some ns for each frame.
    ///
    /// Needs CAP_SYS_ADMIN.
    pub fn enable_statistics() -> Result<OwnedFd, PlaneError> {
        enable_stats(Stats::RunTime)
            .map_err(|error| PlaneError::Statistics { why: with_causes(&error) })
    }

    /// The program's run-time statistics since it was loaded.
    pub fn statistics(&self) -> Result<Statistics, PlaneError> {
        let program = self.ebpf.program(NAME).ok_or(PlaneError::Program { missing: NAME })?;
        let info = program.info().map_err(self.failed("read its statistics"))?;
        Ok(Statistics { frames: info.run_count(), time: info.run_time() })
    }
}

/// Loads the program. The verifier fails with EAGAIN when a signal is pending for the thread; libbpf
/// retries as often.
fn load(program: &mut SchedClassifier) -> Result<(), ProgramError> {
    for _ in 1..LOAD_ATTEMPTS {
        match program.load() {
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.kind() == io::ErrorKind::WouldBlock => {}
            loaded => return loaded,
        }
    }
    program.load()
}

/// How many values an entry for each processor has.
fn processors() -> Result<usize, MapError> {
    aya::util::nr_cpus().map_err(|(_, error)| MapError::IoError(error))
}

/// An error with all its causes.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn failed<E: Error>(step: &'static str, directory: &Path) -> impl FnOnce(E) -> PlaneError + use<E> {
    let directory = directory.to_owned();
    move |error| PlaneError::Kernel { step, directory, why: with_causes(&error) }
}

fn wrong_port<E: Error>(port: &str) -> impl FnOnce(E) -> PlaneError + use<E> {
    let port = port.to_owned();
    move |error| PlaneError::Port { port, why: with_causes(&error) }
}

/// The usual mount point of the BPF file system.
const FILE_SYSTEM: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC`.
const FILE_SYSTEM_MAGIC: u64 = 0xcafe_4a11;

/// Makes a switch's directory; mounts the file system if the directory is at its usual mount point.
fn prepare(directory: &Path) -> io::Result<()> {
    /// Of two concurrent mounts, the second would hide the first.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if directory.starts_with(FILE_SYSTEM)
        && rustix::fs::statfs(FILE_SYSTEM)?.f_type as u64 != FILE_SYSTEM_MAGIC
    {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("bpf", FILE_SYSTEM, "bpf", flags, None)?;
    }
    std::fs::create_dir_all(directory)
}

#[cfg(all(test, ebpf))]
mod tests {
    use super::*;

    /// The verifier of Linux 6.1 allows 512 bytes of stack for a chain of calls, each function's rounded up to 32 (Linux 6.18 allows
    /// more). Of these, 96 are what the functions need that the program calls; that is not checked here.
    const STACK_MAX: usize = 512 - 96;

    /// How far below its frame pointer, r10, a function reaches.
    fn stack_bytes(function: &aya_obj::Function) -> usize {
        let mut copies_of_r10 = [false; 16];
        copies_of_r10[10] = true;
        let mut deepest = 0;
        for instruction in &function.instructions {
            let (to, from) = (instruction.dst_reg() as usize, instruction.src_reg() as usize);
            // Operations as in the kernel's Documentation/bpf/standardization/instruction-set.rst.
            match instruction.code {
                0xbf => copies_of_r10[to] = from == 10,
                0x07 if copies_of_r10[to] => deepest = deepest.min(instruction.imm),
                code if code & 7 == 1 && from == 10 => {
                    deepest = deepest.min(instruction.off.into())
                }
                code if matches!(code & 7, 2 | 3) && to == 10 => {
                    deepest = deepest.min(instruction.off.into());
                }
                _ => {}
            }
        }
        deepest.unsigned_abs() as usize
    }

    #[test]
    fn kernels_with_little_stack_take_the_program() {
        let object = aya_obj::Object::parse(PROGRAM).expect("clang has made it");
        let functions = object.functions.values().filter(|function| function.name == NAME);
        let used: Vec<usize> = functions.map(stack_bytes).collect();
        assert_eq!(used.len(), 1);
        assert!(used[0] > 100 && used[0] <= STACK_MAX, "{used:?} bytes of {STACK_MAX}");
    }
}
