//! The public interface of measurements.

use std::cell::RefCell;

use files::{Gathering, HostState, PushError, PushEvent, PushHandle, PushSettings};
use rdmc::{Algorithm, Fabric};

use super::{
    groups::measure_all,
    measurement::{BenchEvent, BenchPlan, Measurement},
    session::Session,
    team,
};
use crate::{CollectiveMeasurement, CollectivePlan, MEASURED_BYTES_MAX};

/// How a bench ended.
#[derive(Debug)]
pub struct BenchReport {
    /// For each host, in the order of [`PushSettings::hosts`]: why it has failed, if it has.
    pub failures: Vec<Option<String>>,
    /// All measurements, in order.
    pub measurements: Vec<Measurement>,
    /// Measurements of a collective operation, in order.
    pub collectives: Vec<CollectiveMeasurement>,
    /// The network that was used; `None` if none was chosen.
    pub fabric: Option<Fabric>,
    /// Why it ended early, if one reason covers all hosts.
    pub error: Option<PushError>,
}

/// A bench that is ready to run and listens for receivers.
pub struct Bench {
    gathering: Gathering,
    plan: BenchPlan,
}

impl Bench {
    /// Starts to listen for receivers. The hosts' destinations are ignored.
    ///
    /// Errors: a setting is out of range; the system refuses.
    pub fn open(settings: PushSettings, plan: BenchPlan) -> Result<Self, PushError> {
        let longest = plan.latency_bytes.iter().copied().chain([plan.bytes]).max().unwrap_or(0);
        if longest > MEASURED_BYTES_MAX {
            let what = format!("{longest} bytes are too long; use {MEASURED_BYTES_MAX} or less");
            return Err(PushError::Setting(what));
        }
        if let Some(algorithm) = settings.algorithm.filter(|algorithm| algorithm.needs_racks()) {
            let what = format!("a bench has no racks, which {algorithm} needs");
            return Err(PushError::Setting(what));
        }
        if settings.algorithm == Some(Algorithm::InSwitch) {
            let what = "a bench uses no switches, which in-switch needs".to_owned();
            return Err(PushError::Setting(what));
        }
        if let Some(Err(what)) = plan.collective.as_ref().map(CollectivePlan::check) {
            return Err(PushError::Setting(what));
        }
        Ok(Self { gathering: Gathering::open(settings, longest)?, plan })
    }

    /// The TCP port that receivers connect to.
    pub fn control_port(&self) -> u16 {
        self.gathering.control_port()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        self.gathering.handle()
    }

    /// Measures. Blocks until everything is measured or has failed, and all receivers have the last message. Calls
    /// `observe` on this thread.
    pub fn run(self, observe: &mut dyn FnMut(BenchEvent)) -> BenchReport {
        let observe = RefCell::new(observe);
        let mut on_push = |event| {
            if let PushEvent::Host { host, state } = event {
                (observe.borrow_mut())(BenchEvent::Host { host, state });
            }
        };
        let mut session = Session::new(&self.gathering, &mut on_push);
        let (mut measurements, mut collectives) = (Vec::new(), Vec::new());
        let mut observe = |event| (observe.borrow_mut())(event);
        let outcome = match &self.plan.collective {
            Some(plan) => team::measure_all(&mut session, plan, &mut collectives, &mut |bytes| {
                observe(BenchEvent::Collective { bytes });
            }),
            None => measure_all(&mut session, &self.plan, &mut measurements, &mut observe),
        };
        if let Err(error) = outcome {
            session.root.stop(error);
        }
        let error = session.root.end();
        let failure = |state: HostState| match state {
            HostState::Failed(reason) => Some(reason),
            _ => None,
        };
        let failures = session.root.states().into_iter().map(failure).collect();
        let fabric = self.gathering.context().map(|context| context.fabric().clone());
        BenchReport { failures, measurements, collectives, fabric, error }
    }
}
