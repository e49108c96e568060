//! The ways in which a tree gets to the hosts.

use clap::ValueEnum;

/// How a tree is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Way {
    /// `rdmc push` to receivers that listen
    Rdmc,
    /// A process of rsync for each host, all at the same time
    RsyncToAll,
    /// One process of rsync to one host
    RsyncToOne,
    /// `tar | socat` from each host to the next
    Tar,
    /// A program of MPI's that passes chunks of files from each host to the next, as dbcast does
    Mpi,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdmc => "rdmc push",
            Self::RsyncToAll => "rsync to all at once",
            Self::RsyncToOne => "rsync to one host",
            Self::Tar => "chain of tar | socat",
            Self::Mpi => "chain of Open MPI",
        }
    }

    /// The programs that it needs, and the Debian packages that have them.
    pub fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Rdmc => &[],
            Self::RsyncToAll | Self::RsyncToOne => &[("rsync", "rsync")],
            Self::Tar => &[("bash", "bash"), ("tar", "tar"), ("socat", "socat")],
            Self::Mpi => &[
                ("mpirun.openmpi", "openmpi-bin"),
                ("mpicc.openmpi", "libopenmpi-dev"),
                ("setpriv", "util-linux"),
            ],
        }
    }

    pub fn is_rsync(self) -> bool {
        matches!(self, Self::RsyncToAll | Self::RsyncToOne)
    }

    /// Whether it looks at what hosts have, so that the same command once more copies less.
    pub fn can_repeat(self) -> bool {
        self == Self::Rdmc || self.is_rsync()
    }

    /// Whether copies are on disk when it ends.
    pub fn writes_to_disk(self) -> bool {
        self == Self::Rdmc
    }

    /// How many of so many receivers get a copy.
    pub fn copies(self, receivers: u32) -> u32 {
        if self == Self::RsyncToOne { 1 } else { receivers }
    }
}
