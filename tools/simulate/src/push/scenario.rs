//! What a simulated push is made of, as plain data: printed, kept in files, and made smaller.
//!
//! Machine 0 is the root's; host `h` of the push is machine `h + 1`.

use std::fmt;

use rdmc::Algorithm;
use serde::{Deserialize, Serialize};

use crate::scenario::NetworkPlan;

/// Everything about a push. The same scenario gives the same run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PushScenario {
    /// Of all that is random while it runs.
    pub seed: u64,
    /// Length of the object.
    pub bytes: u64,
    /// Length of a block.
    pub block_bytes: u64,
    /// What of an earlier session differs somewhere in so many bytes is sent again.
    pub chunk_bytes: u64,
    /// Name of the algorithm; none: what should be fastest.
    pub algorithm: Option<String>,
    /// How often each host may be lost and come back.
    pub retries: u32,
    /// The least speed, in parts of 100 of the network's rate, so that nobody is set aside; 0: none.
    #[serde(default)]
    pub rate_min_percent: u64,
    /// The network between the machines.
    pub network: NetworkPlan,
    /// The longest that a word on a control connection takes besides the network's latency.
    pub word_ns_max: u64,
    /// The longest that a thread takes to look at what has happened.
    pub look_ns_max: u64,
    /// How long the root reads the source until it knows its digest.
    pub digest_ns: u64,
    /// All receivers.
    pub hosts: Vec<HostScenario>,
    /// What is the matter with the source.
    #[serde(default)]
    pub source: SourceTrouble,
    /// What goes wrong, by step.
    pub planned_faults: Vec<PlannedFault>,
}

/// What may be the matter with the source during the first push; seeds draw nothing of it.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct SourceTrouble {
    /// Its attributes tell from then on that it has changed.
    pub changes_ns: Option<u64>,
    /// It is not the same when it is read for the second time.
    pub reads_differently: bool,
}

/// What may be the matter with a host during the first push; seeds draw nothing of it.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct HostTrouble {
    /// It cannot be started before then, which is reported.
    pub absent_ns: u64,
    /// How long it takes to prepare its target, besides its disk's time.
    pub prepare_ns: u64,
    /// How long it takes to start its fabric.
    pub fabric_ns: u64,
    /// It reports progress while it digests its copy.
    pub tells_work: bool,
    /// Its digest is not that of the source.
    pub differs: bool,
    /// It never reports that a group has failed.
    pub is_mute: bool,
}

/// One host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostScenario {
    /// When its receiver is started; also how long starting it again takes.
    pub start_ns: u64,
    /// It cannot be started.
    pub is_absent: bool,
    /// Nobody has named it: it asks to take part once it is started.
    #[serde(default)]
    pub joins: bool,
    /// How long its disk takes to prepare a target, and to publish it.
    pub disk_ns: u64,
    /// From when its last byte is in place until its digest is known.
    pub verify_ns: u64,
    /// Of its ports, where it is not the network's.
    pub rate_bytes_per_s: Option<u64>,
    /// What an earlier session has left: so many parts of 100 from the start.
    pub leftover_percent: u64,
    /// What else is the matter with it.
    #[serde(default)]
    pub trouble: HostTrouble,
}

/// Something that goes wrong.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlannedFault {
    /// After so many steps of the run.
    pub step: u64,
    /// What.
    pub what: Fault,
}

/// Kinds of faults. `for_ns: None` is for ever.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Fault {
    /// All of rdmc on a machine is killed.
    Kill {
        /// Which.
        machine: u32,
        /// What it leaves is damaged, as by a machine that has crashed.
        damages: bool,
    },
    /// A machine stands still, with its network.
    Freeze {
        /// Which.
        machine: u32,
        /// How long.
        for_ns: Option<u64>,
    },
    /// The programs on a machine stand still; its network goes on.
    Pause {
        /// Which.
        machine: u32,
        /// How long.
        for_ns: Option<u64>,
    },
    /// All connections that carry blocks between two machines are lost.
    Reset {
        /// Both.
        machines: [u32; 2],
    },
    /// A host's control connection is lost.
    HangUp {
        /// Machine of the host.
        machine: u32,
    },
    /// Nothing passes between these machines and the others.
    Partition {
        /// One side of it.
        machines: Vec<u32>,
        /// How long.
        for_ns: Option<u64>,
    },
    /// A machine's ports become slow, or fast.
    Rate {
        /// Which.
        machine: u32,
        /// From the next block on.
        bytes_per_s: u64,
    },
    /// A byte that a host has received and not yet digested changes in its memory.
    Spoil {
        /// Machine of the host.
        machine: u32,
    },
    /// The push is interrupted at the root.
    Cancel,
}

impl Fault {
    /// Kinds, in the order of [`Fault::kind`].
    pub const KINDS: [&'static str; 10] = [
        "death",
        "root's death",
        "freeze",
        "pause",
        "reset",
        "hang-up",
        "partition",
        "rate",
        "bad memory",
        "interruption",
    ];

    /// Index of its kind.
    pub fn kind(&self) -> usize {
        match self {
            Self::Kill { machine: 0, .. } => 1,
            Self::Kill { .. } => 0,
            Self::Freeze { .. } => 2,
            Self::Pause { .. } => 3,
            Self::Reset { .. } => 4,
            Self::HangUp { .. } => 5,
            Self::Partition { .. } => 6,
            Self::Rate { .. } => 7,
            Self::Spoil { .. } => 8,
            Self::Cancel => 9,
        }
    }

    /// For how long it holds something up; `u64::MAX` for ever, 0 if it does not.
    pub fn holds_ns(&self) -> u64 {
        match self {
            Self::Freeze { for_ns, .. }
            | Self::Pause { for_ns, .. }
            | Self::Partition { for_ns, .. } => for_ns.unwrap_or(u64::MAX),
            _ => 0,
        }
    }

    /// Every machine that it names.
    pub fn machines(&self) -> Vec<u32> {
        match self {
            Self::Reset { machines } => machines.to_vec(),
            Self::Partition { machines, .. } => machines.clone(),
            Self::Kill { machine, .. }
            | Self::Freeze { machine, .. }
            | Self::Pause { machine, .. }
            | Self::HangUp { machine }
            | Self::Rate { machine, .. }
            | Self::Spoil { machine } => vec![*machine],
            Self::Cancel => Vec::new(),
        }
    }
}

impl PushScenario {
    /// How many machines there are, the root's included.
    pub fn machines(&self) -> u32 {
        self.hosts.len() as u32 + 1
    }

    /// Hosts that the command names.
    pub fn named(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.hosts.len()).filter(|&host| !self.hosts[host].joins)
    }

    /// Byte `index` of the object.
    pub fn byte(index: usize) -> u8 {
        ((index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    /// The object.
    pub fn contents(&self) -> Vec<u8> {
        (0..self.bytes as usize).map(Self::byte).collect()
    }

    /// The hosts of a push.
    ///
    /// Errors: there is no such algorithm.
    pub fn algorithm(&self) -> Result<Option<Algorithm>, String> {
        let Some(name) = &self.algorithm else { return Ok(None) };
        let is_it = |algorithm: &&Algorithm| algorithm.name() == name;
        match Algorithm::ALL.iter().find(is_it) {
            Some(&algorithm) => Ok(Some(algorithm)),
            None => Err(format!("there is no algorithm {name:?}")),
        }
    }

    /// Whether everything fits together: for scenarios out of files.
    ///
    /// Errors: what does not.
    pub fn check(&self) -> Result<(), String> {
        if self.hosts.iter().all(|host| host.joins)
            || self.block_bytes == 0
            || self.chunk_bytes == 0
        {
            return Err(
                "a push needs a host that is named, and blocks and chunks of bytes".to_owned()
            );
        }
        self.algorithm()?;
        let machines = self.machines();
        for PlannedFault { what, .. } in &self.planned_faults {
            let named = what.machines();
            let needs_host = matches!(what, Fault::HangUp { .. } | Fault::Spoil { .. });
            if named.iter().any(|&machine| machine >= machines) || needs_host && named == [0] {
                return Err(format!("{what:?} names no machine for this"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for PushScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, planned_faults, .. } = self;
        let rest = Self { hosts: Vec::new(), planned_faults: Vec::new(), ..self.clone() };
        writeln!(f, "{} hosts; {rest:?}", hosts.len())?;
        for (host, plan) in hosts.iter().enumerate() {
            writeln!(f, "host {host} (machine {}): {plan:?}", host + 1)?;
        }
        for planned in planned_faults {
            writeln!(f, "at step {}: {:?}", planned.step, planned.what)?;
        }
        Ok(())
    }
}
