//! Runs the sessions of a scenario, on a real file system.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use files::{
    TargetError,
    simulation::{CopySession, CopySource, Fate, Injection},
};

use super::{
    canary::CopyCanary,
    checks,
    counts::CopyCounts,
    host::Host,
    record::{Act, Record},
    scenario::{COPY, CopyFault, CopyScenario, CopySessionPlan, PlannedCopyFault},
    snapshot::{Seen, Snapshot},
};
use crate::{
    counts::{Kinds, Most},
    panics::{caught, lock},
    subject::{Options, Outcome},
    trace::short,
};

/// The most sessions without faults until one has to succeed; after each, somebody moves away what was in the way.
const ATTEMPTS_MAX: usize = 12;

/// What hooks and the run share.
struct Shared {
    host: Host,
    seen: Seen,
    acts: Vec<Act>,
    /// What was injected, by kind.
    injected: Kinds<{ CopyFault::KINDS.len() }>,
    /// What the last call with a name was about.
    name: String,
    /// How many calls there were on what is open.
    on_open: u64,
    /// Acts that make something as soon as nothing has the name.
    waiting: Vec<CopyFault>,
    problem: Option<io::Error>,
}

impl Shared {
    fn look(&mut self) -> io::Result<Snapshot> {
        Snapshot::take(&self.host.top, self.host.folds_case, &mut self.seen)
    }

    /// Before a call.
    fn before(
        &mut self,
        (call, name): (u64, Option<&OsStr>),
        faults: &[PlannedCopyFault],
        listed: &[String],
    ) -> Fate {
        let on_open = name.is_none().then_some(self.on_open);
        self.on_open += u64::from(name.is_none());
        if let Some(name) = name.and_then(|name| Path::new(name).file_name()) {
            self.name = name.to_string_lossy().into_owned();
        }
        let is_now = |planned: &&PlannedCopyFault| match planned.on_open {
            true => on_open == Some(planned.call),
            false => planned.call == call,
        };
        for act in std::mem::take(&mut self.waiting) {
            self.act(call, &act, listed);
        }
        let mut fate = Fate::Succeeds;
        for PlannedCopyFault { what, .. } in faults.iter().filter(is_now) {
            self.injected.0[what.kind()] += 1;
            match what {
                CopyFault::Kill => return Fate::Killed,
                CopyFault::Fail(error) => fate = Fate::Fails(*error),
                act => self.act(call, act, listed),
            }
        }
        fate
    }

    fn act(&mut self, call: u64, what: &CopyFault, listed: &[String]) {
        if self.host.has_to_wait(what) {
            return self.waiting.push(what.clone());
        }
        if let Err(error) = self.try_act(call, what, listed) {
            self.problem.get_or_insert(error);
        }
    }

    fn try_act(&mut self, call: u64, what: &CopyFault, listed: &[String]) -> io::Result<()> {
        let before = self.look()?;
        let this = Host::this(&before, &self.name, listed);
        self.host.act(what, &this);
        let after = self.look()?;
        self.acts.push(Act { call, before, after });
        Ok(())
    }
}

/// Runs a scenario. It changes nothing outside of a directory for temporary files; equal scenarios give equal outcomes for the
/// same user and kind of file system.
pub(super) fn run(scenario: &CopyScenario, options: Options<CopyCanary>) -> CopyOutcome {
    let mut outcome = CopyOutcome::default();
    let checked = scenario.check().and_then(|()| {
        let host = Host::new(scenario.folds_case, &scenario.before);
        host.map_err(|error| format!("cannot make a host: {error}"))
    });
    match checked {
        Ok(host) => {
            let top = host.top.clone();
            let mut run = Run::new(scenario, options, host);
            let ran = caught(|| run.all(&mut outcome).map_err(|error| error.to_string()));
            outcome.violations.extend(ran.err());
            outcome.counts.injected = run.shared().injected.clone();
            let name = |text: &String| text.replace(&format!("{}/", top.display()), "");
            outcome.violations = outcome.violations.iter().map(name).collect();
            outcome.trace = name(&outcome.trace);
        }
        Err(problem) => outcome.violations.push(problem),
    }
    let Outcome { violations, counts, .. } = &mut outcome;
    counts.longest = Most { value: counts.calls, seed: scenario.seed };
    outcome.digest = short(blake3::hash(format!("{violations:?} {counts:?}").as_bytes()));
    outcome
}

type CopyOutcome = Outcome<CopyCounts>;

struct Run<'a> {
    scenario: &'a CopyScenario,
    options: Options<CopyCanary>,
    shared: Arc<Mutex<Shared>>,
    path: PathBuf,
    /// Paths of the versions' entries in the directory of the run.
    listed: Arc<Vec<String>>,
    floating: checks::Floating,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a CopyScenario, options: Options<CopyCanary>, host: Host) -> Self {
        let path = host.top.join(COPY);
        let name = |path: &String| match scenario.is_tree {
            true => format!("{COPY}/{path}"),
            false => path.clone(),
        };
        let things = scenario.versions.iter().flatten();
        let listed = Arc::new(things.map(|thing| name(&thing.path)).collect());
        let shared = Shared {
            host,
            seen: Seen::new(),
            acts: Vec::new(),
            injected: Default::default(),
            name: String::new(),
            on_open: 0,
            waiting: Vec::new(),
            problem: None,
        };
        let floating = checks::Floating::default();
        let shared = Arc::new(Mutex::new(shared));
        Self { scenario, options, shared, path, listed, floating }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    fn all(&mut self, outcome: &mut CopyOutcome) -> io::Result<()> {
        let mut last = None;
        for plan in &self.scenario.sessions {
            last = Some(self.session(plan, last.as_ref(), outcome)?);
        }
        self.finish(last, outcome)
    }

    /// One session, and what has to hold after it.
    fn session(
        &mut self,
        plan: &CopySessionPlan,
        previous: Option<&Record>,
        outcome: &mut CopyOutcome,
    ) -> io::Result<Record> {
        let source = self.scenario.source(plan.version).map_err(io::Error::other)?;
        let start = {
            let mut shared = self.shared();
            shared.acts.clear();
            shared.on_open = 0;
            shared.waiting.clear();
            shared.look()?
        };
        let session = self.copy(&source, &plan.faults);
        let (acts, end) = {
            let mut shared = self.shared();
            if let Some(problem) = shared.problem.take() {
                return Err(problem);
            }
            (std::mem::take(&mut shared.acts), shared.look()?)
        };
        let record = Record { plan: plan.clone(), source, session, start, acts, end };
        self.trace(&record, outcome);
        outcome.counts.count(&record.session);
        let violations = &mut outcome.violations;
        checks::session(self.scenario, &record, &mut self.floating, violations);
        checks::nothing_is_sent_again(previous, &record, violations);
        let mut shared = self.shared();
        shared.host.settle(&record.end);
        Ok(record)
    }

    fn copy(&self, source: &CopySource, faults: &[PlannedCopyFault]) -> CopySession {
        let (shared, listed) = (Arc::clone(&self.shared), Arc::clone(&self.listed));
        let faults = faults.to_vec();
        let hook = move |call: u64, name: Option<&OsStr>| {
            lock(&shared).before((call, name), &faults, &listed)
        };
        let bug = self.options.canary.map(|canary| canary.0);
        let folds_case = self.scenario.folds_case;
        source.session(&self.path, Injection { hook: Box::new(hook), bug, folds_case })
    }

    fn trace(&self, record: &Record, outcome: &mut CopyOutcome) {
        if self.options.trace_events == 0 {
            return;
        }
        let text = &mut outcome.trace;
        let session = &record.session;
        let _ = writeln!(
            text,
            "session of version {}: {} calls, looked before {}, published from {:?}, received {:?}, killed: {}: {}",
            record.plan.version,
            session.faults.calls(),
            session.looked_at,
            session.published_at,
            session.received,
            session.faults.is_killed(),
            shown(&session.outcome)
        );
        for act in &record.acts {
            let changed = act.after.changed_since(&act.before);
            let _ =
                writeln!(text, "  before call {} another process changed {changed:?}", act.call);
        }
        for (path, node) in record.end.nodes.iter().chain(&record.end.hidden) {
            let bytes = match node.kind {
                super::snapshot::NodeKind::Link => {
                    String::from_utf8_lossy(&node.bytes).into_owned()
                }
                _ => format!("{} of {:?}", node.bytes.len(), node.bytes.first()),
            };
            let time_s = node.modified_ns / 1_000_000_000;
            let time = if time_s < 1_000_000 { time_s.to_string() } else { "now".to_owned() };
            let _ = writeln!(
                text,
                "    {path:?} {:?} {:o} {time} #{} {bytes}",
                node.kind, node.mode, node.inode
            );
        }
    }

    /// Sessions without faults, until one succeeds.
    fn finish(&mut self, mut last: Option<Record>, outcome: &mut CopyOutcome) -> io::Result<()> {
        let Some(plan) = self.scenario.sessions.last() else { return Ok(()) };
        let plan = CopySessionPlan { version: plan.version, faults: Vec::new() };
        let mut is_first = true;
        for _ in 0..ATTEMPTS_MAX {
            let record = self.session(&plan, last.as_ref(), outcome)?;
            let violations = &mut outcome.violations;
            match &record.session.outcome {
                // Further names of what was replaced are removed by the next push.
                Ok(false) if self.scenario.deletes && is_first => is_first = false,
                Ok(_) => {
                    checks::nothing_is_left(self.scenario, &record, &self.floating, violations);
                    let again = self.session(&plan, None, outcome)?;
                    checks::nothing_changes(self.scenario, &again, &mut outcome.violations);
                    return Ok(());
                }
                Err(error) => {
                    let path = in_the_way(&self.shared().host, error);
                    let Some(path) = path else {
                        // Without root's permissions some directories cannot be exchanged.
                        let is_refused = matches!(error, TargetError::NotAtomic { .. });
                        let is_refused = is_refused && !rustix::process::geteuid().is_root();
                        if !is_refused && !checks::collides(self.scenario, &record, true) {
                            violations.push(format!("without faults: {error}"));
                        }
                        return Ok(());
                    };
                    outcome.counts.moved_away += 1;
                    let mut shared = self.shared();
                    shared.host.clear(&path)?;
                    let after = shared.look()?;
                    drop(shared);
                    self.floating.settle(&after);
                }
            }
            last = None;
        }
        outcome.violations.push("something is always in the way".to_owned());
        Ok(())
    }
}

/// What a user moves away after this error.
fn in_the_way(host: &Host, error: &TargetError) -> Option<PathBuf> {
    let path = match error {
        TargetError::InTheWay { path, .. }
        | TargetError::DirectoryInTheWay { path, .. }
        | TargetError::Left { old: path, .. } => path,
        _ => return None,
    };
    let path = host.path(path.strip_prefix(&host.top).ok()?.to_str()?);
    path.symlink_metadata().is_ok().then_some(path)
}

fn shown(outcome: &Result<bool, TargetError>) -> String {
    match outcome {
        Ok(true) => "it was there".to_owned(),
        Ok(false) => "published".to_owned(),
        Err(error) => error.to_string(),
    }
}
