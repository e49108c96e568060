//! The times that tables have.

use collective::model::{Parameters, degrees};

use super::{
    super::cell::{Cell, Operation},
    times::{BLOCK, Program, Source, Times},
};

/// Everything that figures are made of.
pub struct Data {
    pub times: Times,
    /// Numbers of members that are only simulated and predicted.
    pub many: Vec<u32>,
    /// Fitted to the measured and to the simulated times of up to 16 members.
    pub fitted: [(Source, Parameters); 2],
}

impl Data {
    /// The time of a broadcast by a team with blocks of this size.
    pub fn broadcast(&self, source: Source, members: u32, block: u32, bytes: u64) -> f64 {
        let cell = Cell { operation: Operation::Broadcast, bytes };
        // With a slot of the paper's best size, runs of allreduces have other degrees, which broadcasts do not use.
        let times = [3, 1]
            .map(|degree| self.times.get(source, members, Program::Team { block, degree }, cell));
        if times[0].is_nan() { times[1] } else { times[0] }
    }

    /// The time of an operation by send/receive.
    pub fn two_sided(&self, source: Source, members: u32, cell: Cell) -> f64 {
        self.times.get(source, members, Program::TwoSided, cell)
    }

    /// The time of an allreduce with a degree; NaN if it was not run.
    pub fn reduced(&self, source: Source, members: u32, degree: u32, bytes: u64) -> f64 {
        let program = Program::Team { block: BLOCK, degree };
        let cell = Cell { operation: Operation::AllReduce, bytes };
        self.times.get(source, members, program, cell)
    }

    /// The degree with the least time, and that time.
    pub fn best(&self, source: Source, members: u32, bytes: u64) -> (u32, f64) {
        let timed =
            degrees(members).map(|degree| (degree, self.reduced(source, members, degree, bytes)));
        let known = timed.filter(|(_, us)| !us.is_nan());
        known.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((1, f64::NAN))
    }
}
