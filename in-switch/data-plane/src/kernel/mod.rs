//! The data plane in the kernel: a program on each port, and maps that outlive whoever fills them.
//!
//! The program and its maps are pinned in a directory of the BPF file system, one for each switch. An
//! agent that ends leaves them: groups go on. One that starts finds them there, and puts its own
//! program in the place of the old one, on the same maps.
//!
//! A program that runs may have found an entry just before it is replaced or removed, and the kernel
//! gives that memory to the next entry of the map at once (`bpf_mem_alloc`, since Linux 6.1; before,
//! it did so for preallocated maps). So nothing is written before every program that may have found
//! what was freed has ended: [`KernelPlane::settle`].

mod entries;
mod layout;
mod maps;

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
    maps::{Array, ArrayOfMaps, MapData, MapError, PerCpuArray},
    programs::{
        ProgramError, ProgramType, SchedClassifier, TcAttachType,
        tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle, qdisc_add_clsact},
    },
    sys::{Stats, enable_stats},
};
use mcrdma::{Counters, GroupKey, Merging, Replication, Source};
use roce::ShiftTables;

use crate::{MemberState, PlaneError, Statistics};
use layout::{GroupBytes, MemberBytes, MemberKeyBytes, RegionsKeyBytes};
use maps::Maps;

/// What clang made of `bpf/mcrdma.bpf.c`.
#[cfg(not(ebpf))]
static PROGRAM: &[u8] = &[];
/// What clang made of `bpf/mcrdma.bpf.c`.
#[cfg(ebpf)]
static PROGRAM: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/mcrdma.bpf.o"));
const NAME: &str = "mcrdma";
const LOAD_ATTEMPTS: u32 = 5;
/// The filter's place on a port: the same for every agent, so that a new one replaces an old one.
const PRIORITY: u16 = 4791;
const HANDLE: TcHandle = TcHandle::new(0, 1);
const MAPS: [&str; 7] =
    ["groups", "regions", "senders", "members", "answers", "addresses", "counters"];
/// What the names of pinned maps end with. To be changed with what is in `bpf/tables.h`: maps of
/// another layout are left alone until no port has their program any more.
const LAYOUT: &str = "-2";

/// Of all senders, by address and queue pair: the places of their records, and where their answers
/// come in.
type Members = BTreeMap<(IpAddr, u32), Vec<(u32, IpAddr, Vec<mcrdma::Port>)>>;

/// A switch in the kernel.
pub struct KernelPlane {
    directory: PathBuf,
    ebpf: Ebpf,
    maps: Maps,
    counters: PerCpuArray<MapData, u64>,
    told_time: Array<MapData, u64>,
    graces: ArrayOfMaps<MapData, Array<MapData, u64>>,
    /// What `graces` is updated with: nobody looks at it.
    grace: Array<MapData, u64>,
    /// Of the next version of a group.
    generation: u64,
    /// Regions of versions that have been replaced or removed, which packets may still be copied by.
    retired: Vec<RegionsKeyBytes>,
    /// Entries have been freed that programs may still read.
    is_unsettled: bool,
}

impl KernelPlane {
    /// Whether there can be such a switch here.
    ///
    /// Errors: why not: this build, this kernel, or who asks.
    pub fn check() -> Result<(), PlaneError> {
        if !crate::HAS_KERNEL_PLANE {
            return Err(PlaneError::NotBuilt);
        }
        match aya::sys::is_program_supported(ProgramType::SchedClassifier) {
            Ok(true) => Ok(()),
            Ok(false) => Err(PlaneError::NotPossible { why: "it has no eBPF on tc".to_owned() }),
            Err(error) => Err(PlaneError::NotPossible { why: whole(&error) }),
        }
    }

    /// Loads the program, on the maps that are pinned in this directory; makes both if there is
    /// nothing. It has to lie in a BPF file system. Nothing is on any port yet.
    ///
    /// Needs CAP_BPF and CAP_NET_ADMIN, and Linux 5.17 or later.
    pub fn open(directory: &Path) -> Result<Self, PlaneError> {
        Self::open_with(directory, false)
    }

    /// As [`KernelPlane::open`], with a clock that stands at what [`KernelPlane::tell_time`] says:
    /// for tests.
    pub fn open_with_told_time(directory: &Path) -> Result<Self, PlaneError> {
        Self::open_with(directory, true)
    }

    fn open_with(directory: &Path, time_is_told: bool) -> Result<Self, PlaneError> {
        Self::check()?;
        prepare(directory)
            .map_err(|source| PlaneError::Directory { directory: directory.to_owned(), source })?;
        let tables: Vec<u32> = ShiftTables::new().words().collect();
        let mut loader = EbpfLoader::new();
        loader.override_global("shift_tables", &tables[..], true);
        let time_is_told = u32::from(time_is_told);
        loader.override_global("time_is_told", &time_is_told, true);
        for name in MAPS {
            loader.map_pin_path(name, directory.join(format!("{name}{LAYOUT}")));
        }
        let mut ebpf = loader.load(PROGRAM).map_err(failed("load the maps", directory))?;
        let program = Self::program(&mut ebpf)?;
        load(program).map_err(failed("load the program", directory))?;
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
            },
            counters: map("counters")?.try_into().map_err(wrong)?,
            told_time: map("told_time")?.try_into().map_err(wrong)?,
            graces: map("graces")?.try_into().map_err(wrong)?,
            grace: Array::create(1, 0).map_err(wrong)?,
            generation: 0,
            retired: Vec::new(),
            // By an agent before, perhaps.
            is_unsettled: true,
            directory: directory.to_owned(),
            ebpf,
        };
        plane.settle()?;
        plane.is_unsettled = true;
        let failed = plane.failed("remove what belongs to no group");
        plane.generation = plane.maps.remove_strays().map_err(failed)?;
        Ok(plane)
    }

    fn program(ebpf: &mut Ebpf) -> Result<&mut SchedClassifier, PlaneError> {
        let program = ebpf.program_mut(NAME).and_then(|program| program.try_into().ok());
        program.ok_or(PlaneError::Program { missing: NAME })
    }

    fn failed<E: Error>(&self, step: &'static str) -> impl FnOnce(E) -> PlaneError + use<E> {
        failed(step, &self.directory)
    }

    /// The number of a port, as [`mcrdma::Branch`] has it.
    pub fn port_number(port: &str) -> Result<mcrdma::Port, PlaneError> {
        use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
        let any = socket(AddressFamily::INET, SocketType::DGRAM, None);
        let number = any.and_then(|socket| name_to_index(socket, port));
        number.map_err(io::Error::from).map_err(wrong_port(port))
    }

    /// Puts the program on a port, in the place of one that is there. It stays there until
    /// [`KernelPlane::detach`], also when this is dropped.
    pub fn attach(&mut self, port: &str) -> Result<(), PlaneError> {
        // It may be there already.
        let qdisc = qdisc_add_clsact(port);
        let program = Self::program(&mut self.ebpf)?;
        let ingress = TcAttachType::Ingress;
        let there = SchedClassifierLink::attached(port, ingress, PRIORITY, HANDLE, None)
            .map_err(wrong_port(port))?;
        let id = match program.attach_to_link(there) {
            Ok(id) => id,
            Err(_) => {
                let options = NlOptions { priority: PRIORITY, handle: HANDLE, classid: None };
                let options = TcAttachOptions::Netlink(options);
                // Without the qdisc the filter cannot be: why that is not there says more.
                program.attach_with_options(port, ingress, options).map_err(
                    |error| match qdisc {
                        Err(reason) => wrong_port(port)(reason),
                        Ok(()) => wrong_port(port)(error),
                    },
                )?
            }
        };
        let link = program.take_link(id).map_err(wrong_port(port))?;
        // Dropping it would take the program off the port.
        std::mem::forget(link);
        Ok(())
    }

    /// Takes the program off a port.
    pub fn detach(&mut self, port: &str) -> Result<(), PlaneError> {
        let there =
            SchedClassifierLink::attached(port, TcAttachType::Ingress, PRIORITY, HANDLE, None)
                .map_err(wrong_port(port))?;
        use aya::programs::Link;
        there.detach().map_err(wrong_port(port))
    }

    /// Forgets all groups: the pinned maps go when no port has the program any more.
    pub fn unpin(self) -> Result<(), PlaneError> {
        std::fs::remove_dir_all(&self.directory)
            .map_err(|source| PlaneError::Directory { directory: self.directory.clone(), source })
    }

    /// Tells the program of a group that was checked; see [`mcrdma::Tables::insert`]. If it fails,
    /// what was told is taken back.
    pub fn insert(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        let told = self.tell(key, replication, merging);
        if told.is_err() {
            // The first error is the one to report.
            let _ = self.remove(key, replication, merging);
        }
        told
    }

    fn tell(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        self.settle()?;
        let failed = self.failed("write a group");
        let mut write = || {
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

    /// Writes the regions of a new version, then the group that names it: from that one write on,
    /// packets are copied by the new version, and those that are being copied end by the old one.
    fn write_branches(&mut self, key: GroupKey, replication: &Replication) -> Result<(), MapError> {
        let (key, generation) = (layout::group_key(key.sender, key.id), self.generation);
        self.generation += 1;
        let old = self.maps.groups.get(&key, 0).ok();
        let group = layout::group(replication, generation);
        let written = self
            .write_regions(generation, replication)
            .and_then(|()| self.maps.groups.insert(key, group, 0));
        if written.is_err() {
            // No program has found them: nothing has named them.
            for key in layout::regions_keys(&group) {
                let _ = self.maps.regions.remove(&key);
            }
        } else if let Some(old) = old {
            self.retire(&old);
        }
        written
    }

    fn write_regions(
        &mut self,
        generation: u64,
        replication: &Replication,
    ) -> Result<(), MapError> {
        for (index, branch) in replication.branches.iter().enumerate() {
            let regions = branch.rewriting.iter().map(|rewriting| &rewriting.regions);
            for regions in regions.filter(|regions| !regions.is_empty()) {
                let key = layout::regions_key(generation, index);
                self.maps.regions.insert(key, layout::regions(regions), 0)?;
            }
        }
        Ok(())
    }

    /// A version of a group has just been replaced or removed.
    fn retire(&mut self, group: &GroupBytes) {
        self.retired.extend(layout::regions_keys(group));
        self.is_unsettled = true;
    }

    /// Waits until no program can read any more what was freed or retired before, some milliseconds,
    /// if there is such. Only then may anything be written.
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

    /// Gives a group other branches; what was answered is kept. Blocks for some milliseconds if
    /// another change was made before.
    pub fn replace(&mut self, key: GroupKey, new: &Replication) -> Result<(), PlaneError> {
        self.settle()?;
        let failed = self.failed("change a group");
        self.write_branches(key, new).map_err(failed)
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

    /// Answers of these members, who were told in this order, come in elsewhere from now on.
    pub fn relocate(
        &mut self,
        sender: IpAddr,
        qpn: u32,
        members: &[Source],
    ) -> Result<(), PlaneError> {
        for (index, member) in (0..).zip(members) {
            let (key, member) = Self::member(sender, qpn, index, member);
            if self.maps.members.get(&key, 0).is_ok_and(|told| told == member) {
                continue;
            }
            self.settle()?;
            self.is_unsettled = true;
            self.maps.members.insert(key, member, 0).map_err(self.failed("move a member"))?;
        }
        Ok(())
    }

    /// Forgets a group; with `merging` if it was told with it. Its virtual address is answered for until
    /// [`KernelPlane::remove_address`].
    pub fn remove(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        let failed = self.failed("remove a group");
        let group_key = layout::group_key(key.sender, key.id);
        self.is_unsettled = true;
        if let Ok(group) = self.maps.groups.get(&group_key, 0) {
            self.retire(&group);
        }
        let removed = self.maps.groups.remove(&group_key);
        // What is not there need not be removed.
        if let Some(merging) = merging {
            let qpn = replication.sender_qpn;
            let sender = layout::group_key(key.sender, qpn);
            let _ = self.maps.senders.remove(&sender);
            let _ = self.maps.answers.remove(&sender);
            for member in &merging.members {
                let _ =
                    self.maps.members.remove(&layout::member_key(key.sender, qpn, member.address));
            }
        }
        removed.map_err(failed)
    }

    /// No longer answers for a virtual address.
    pub fn remove_address(&mut self, address: IpAddr) {
        self.is_unsettled = true;
        let _ = self.maps.addresses.remove(&layout::address(address));
    }

    /// The group goes on without a member's answers. Whether it was one, and not the last.
    pub fn remove_member(
        &mut self,
        sender: IpAddr,
        qpn: u32,
        member: IpAddr,
    ) -> Result<bool, PlaneError> {
        let key = layout::group_key(sender, qpn);
        let member = layout::member_key(sender, qpn, member);
        let (Ok(index), Ok(mut bytes)) =
            (self.maps.members.get(&member, 0), self.maps.senders.get(&key, 0))
        else {
            return Ok(false);
        };
        let (index, _) = layout::read_member(&index);
        let is_there = layout::remove_member(&mut bytes, index);
        if is_there {
            self.settle()?;
            let failed = self.failed("remove a member");
            self.is_unsettled = true;
            self.maps.senders.insert(key, bytes, 0).map_err(failed)?;
        }
        Ok(is_there)
    }

    /// What the members of a group have answered, which was told with this merging.
    pub fn members(&self, sender: IpAddr, qpn: u32, merging: &Merging) -> Vec<MemberState> {
        let Ok(answers) = self.maps.answers.get(&layout::group_key(sender, qpn), 0) else {
            return Vec::new();
        };
        // Records are in the members' order.
        let state = |(index, source): (u32, &Source)| {
            let (expected, msn) = layout::read_record(&answers, index);
            MemberState { address: source.address, expected, msn }
        };
        (0..).zip(&merging.members).map(state).collect()
    }

    /// All groups that the program knows, as an agent that starts needs them.
    pub fn groups(&self) -> Result<Vec<(GroupKey, Replication, Option<Merging>)>, PlaneError> {
        let mut members = Members::new();
        for entry in self.maps.members.iter() {
            let (key, told) = entry.map_err(self.failed("read the members"))?;
            let (sender, qpn, member) = layout::read_member_key(&key);
            let (index, ports) = layout::read_member(&told);
            members.entry((sender, qpn)).or_default().push((index, member, ports));
        }
        let mut found = Vec::new();
        for entry in self.maps.groups.iter() {
            let (key, bytes) = entry.map_err(self.failed("read the groups"))?;
            let key = layout::read_group_key(&key);
            let regions = |key: &RegionsKeyBytes| self.maps.regions.get(key, 0).ok();
            let replication = layout::read_group(&bytes, regions);
            let merging = self.merging(key, replication.sender_qpn, &members);
            found.push((key, replication, merging));
        }
        Ok(found)
    }

    fn merging(&self, group: GroupKey, qpn: u32, members: &Members) -> Option<Merging> {
        let key = layout::group_key(group.sender, qpn);
        let told = self.maps.senders.get(&key, 0).ok()?;
        if layout::sender_group(&told) != group.id {
            return None;
        }
        let answers = self.maps.answers.get(&key, 0).ok()?;
        let address = layout::address(layout::virtual_address(&told));
        let mac = self.maps.addresses.get(&address, 0).ok().map(layout::read_mac);
        let mac = mac.filter(|_| layout::is_answered(&told));
        let members = members.get(&(group.sender, qpn)).cloned().unwrap_or_default();
        Some(layout::read_merging(&told, &answers, mac, members))
    }

    /// The time, where it has to be told.
    pub fn tell_time(&mut self, now_ns: u64) -> Result<(), PlaneError> {
        let failed = self.failed("tell the time");
        self.told_time.set(0, now_ns, 0).map_err(failed)
    }

    /// What has happened, on all processors.
    pub fn counters(&self) -> Result<Counters, PlaneError> {
        let mut counts = [0; mcrdma::Counter::ALL.len()];
        for (index, count) in (0..).zip(&mut counts) {
            let values = self.counters.get(&index, 0).map_err(self.failed("read the counters"))?;
            *count = values.iter().sum();
        }
        Ok(Counters::new(counts))
    }

    /// From now on the kernel keeps statistics of all of its programs, until what is answered is
    /// dropped. That costs some ns for each frame.
    ///
    /// Needs CAP_SYS_ADMIN.
    pub fn enable_statistics() -> Result<OwnedFd, PlaneError> {
        enable_stats(Stats::RunTime).map_err(|error| PlaneError::Statistics { why: whole(&error) })
    }

    /// What the program has cost since it was loaded, while there were statistics.
    pub fn statistics(&self) -> Result<Statistics, PlaneError> {
        let program = self.ebpf.program(NAME).ok_or(PlaneError::Program { missing: NAME })?;
        let info = program.info().map_err(self.failed("read its statistics"))?;
        Ok(Statistics { frames: info.run_count(), time: info.run_time() })
    }
}

/// Loads the program. The verifier gives up with EAGAIN when a signal is pending for the thread, as it may
/// be on a busy machine; libbpf tries as often.
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

/// An error with all its causes, which say what the kernel did not like.
fn whole(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn failed<E: Error>(step: &'static str, directory: &Path) -> impl FnOnce(E) -> PlaneError + use<E> {
    let directory = directory.to_owned();
    move |error| PlaneError::Kernel { step, directory, why: whole(&error) }
}

fn wrong_port<E: Error>(port: &str) -> impl FnOnce(E) -> PlaneError + use<E> {
    let port = port.to_owned();
    move |error| PlaneError::Port { port, why: whole(&error) }
}

/// Where the BPF file system is by convention.
const FILE_SYSTEM: &str = "/sys/fs/bpf";
/// Its number (`BPF_FS_MAGIC`).
const FILE_SYSTEM_MAGIC: u64 = 0xcafe_4a11;

/// Makes a switch's directory, and mounts the file system if that is its usual place.
fn prepare(directory: &Path) -> io::Result<()> {
    /// Two that mount at once would hide what the first has made.
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
