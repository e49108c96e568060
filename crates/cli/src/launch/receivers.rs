//! The receiver processes of a push, on the root or on a host that starts receivers for it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Write as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use files::PushHandle;

use super::{
    launched::Launched,
    launcher::Launcher,
    line_reader::LineReader,
    logins::{Login, Logins},
    order::{Callback, Recipient, Report},
    repetition::is_in,
    tree::DEPTH_MAX,
};
use crate::{failure::Failure, standard_output};

/// How often processes are checked.
const TICK: Duration = Duration::from_millis(20);
/// The time that processes get to end by themselves after the push.
const END_TIMEOUT: Duration = Duration::from_secs(4);
/// The same for processes started by another host, by the number of levels of logins below: less than that host's superior
/// waits, so that it can end its processes before it is killed itself.
const END_TIMEOUTS_BELOW: [Duration; DEPTH_MAX as usize] = [
    Duration::from_millis(1500),
    Duration::from_secs(2),
    Duration::from_millis(2500),
    Duration::from_secs(3),
];
/// The same for processes of lost hosts, which may still print the reason.
const LOST_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The recipient of failures.
#[derive(Clone)]
pub enum Superior {
    /// The push on this machine.
    Push(PushHandle),
    /// The process that reads this one's standard output, with the number of levels of logins left below.
    Launcher(u8),
}

impl Superior {
    fn tell(&self, start: u32, report: Report) {
        match self {
            Self::Push(push) => push.host_failed(report.host, start, report.reason),
            // If the reports are no longer read, the push is over.
            Self::Launcher(_) => {
                drop(standard_output::write(|out| out.write_all(report.to_line().as_bytes())))
            }
        }
    }

    fn end_timeout(&self) -> Duration {
        match *self {
            Self::Push(_) => END_TIMEOUT,
            Self::Launcher(depth) => {
                END_TIMEOUTS_BELOW[usize::from(depth).min(END_TIMEOUTS_BELOW.len() - 1)]
            }
        }
    }
}

/// The processes of a push.
pub struct Receivers {
    processes: Arc<Mutex<Processes>>,
    reader: Arc<LineReader>,
    superior: Superior,
    ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Processes {
    /// Logins for hosts without a started receiver.
    logins: Logins,
    /// The number of logins that have left the queue and are not launched yet.
    starting: usize,
    launched: Vec<Launched>,
    /// Hosts that have connected or were given up.
    settled: HashSet<usize>,
    /// Hosts that another host could not start, with the reason.
    detours: HashMap<usize, String>,
    /// Last lines of receivers that other hosts have started.
    lines: HashMap<usize, String>,
}

impl Receivers {
    /// Starts a thread that starts a receiver on each host, and one that reads their output. Receivers that cannot be started, or
    /// end, are reported to the superior.
    ///
    /// Errors: no thread.
    pub fn launch(
        launcher: &Launcher,
        hosts: &[Recipient],
        callback: &Callback,
        superior: &Superior,
    ) -> Result<Self, Failure> {
        let launcher = launcher.clone().with_depth_for(hosts.len());
        let logins = Logins::new(launcher.parts(hosts), launcher.fanout, launcher.timeout);
        let processes = Arc::new(Mutex::new(Processes { logins, ..Processes::default() }));
        let (ended, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let timeout = launcher.start_timeout(hosts.len());
        let (watched, stop) = (Arc::clone(&processes), Arc::clone(&ended));
        let (callback, to) = (callback.clone(), superior.clone());
        let no_thread = || Failure::while_doing("starting a thread");
        let reader = Arc::new(LineReader::start().map_err(no_thread())?);
        let lines = Arc::clone(&reader);
        let watch = move || {
            while !stop.load(Ordering::Relaxed) {
                lock(&watched).try_refused_again(begun.elapsed());
                let failed = lock(&watched).failed(&launcher, &to);
                failed.into_iter().for_each(|(start, report)| to.tell(start, report));
                let next = lock(&watched).next(timeout, begun.elapsed());
                for login in next.into_iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let launched = Launched::start(&launcher, &login, &callback, &lines);
                    if let Err(reason) = &launched {
                        login.hosts.iter().for_each(|to_host| {
                            let (host, reason) = (to_host.host, reason.clone());
                            to.tell(login.start, Report { host, reason, line: None });
                        });
                    }
                    let mut processes = lock(&watched);
                    processes.starting -= 1;
                    processes.launched.extend(launched);
                }
                thread::sleep(TICK);
            }
        };
        let watch = thread::Builder::new().name("rdmc-watch".into()).spawn(watch);
        let watcher = Some(watch.map_err(no_thread())?);
        Ok(Self { processes, reader, superior: superior.clone(), ended, watcher })
    }

    /// Starts another process, without the queue of logins.
    ///
    /// Errors: why it cannot be started.
    pub fn add(
        &self,
        launcher: &Launcher,
        login: &Login,
        callback: &Callback,
    ) -> Result<(), String> {
        let launched = Launched::start(launcher, login, callback, &self.reader)?;
        let mut processes = lock(&self.processes);
        processes.settled.insert(launched.own().host);
        processes.launched.push(launched);
        Ok(())
    }

    /// Notes that a host's receiver has connected or was given up: the next one may start.
    pub fn has_connected(&self, host: usize) {
        lock(&self.processes).settled.insert(host);
    }

    /// Starts another receiver on a host whose last one was lost: the `start`th after the first.
    pub fn launch_again(
        &self,
        launcher: &Launcher,
        host: &Recipient,
        start: u32,
        callback: &Callback,
    ) {
        let mut processes = lock(&self.processes);
        processes.logins.forget(host.host);
        processes.launched.retain_mut(|launched| {
            // A process that starts other hosts is kept for them.
            let is_kept = launched.own().host != host.host || !launched.others().is_empty();
            if !is_kept {
                launched.kill();
            }
            is_kept
        });
        let login = Login { start, ..Login::to(vec![host.clone()]) };
        match Launched::start(launcher, &login, callback, &self.reader) {
            Ok(launched) => processes.launched.push(launched),
            Err(reason) => {
                self.superior.tell(start, Report { host: host.host, reason, line: None });
            }
        }
    }

    /// Whether all processes have been started and have ended, and their ends were reported.
    pub fn have_ended(&self) -> bool {
        let processes = lock(&self.processes);
        let have_ended = processes.launched.iter().all(Launched::is_reported);
        have_ended && processes.logins.is_empty() && processes.starting == 0
    }

    /// Waits a short time for all processes to end, less for processes of lost hosts, and kills the rest.
    pub fn end(&mut self, is_lost: &dyn Fn(usize) -> bool) {
        let started = Instant::now();
        // The watching thread ends first, so that it does not report processes that are killed here.
        self.ended.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        lock(&self.processes).launched.iter_mut().for_each(Launched::close_input);
        let end_timeout = self.superior.end_timeout();
        let is_waited_for = |launched: &mut Launched| {
            let all_lost = launched.hosts().iter().all(|to| is_lost(to.host));
            let timeout = if all_lost { LOST_END_TIMEOUT } else { end_timeout };
            !launched.is_over() && started.elapsed() < timeout
        };
        while lock(&self.processes).launched.iter_mut().any(is_waited_for) {
            thread::sleep(TICK);
        }
        let mut processes = lock(&self.processes);
        processes.take_lines();
        processes.launched.iter_mut().for_each(Launched::kill);
    }

    /// Faster networks that hosts share with this machine, each with the number of hosts that have named it.
    pub fn faster_networks(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for network in lock(&self.processes).launched.iter().filter_map(Launched::faster_network) {
            *counts.entry(network).or_default() += 1;
        }
        counts
    }

    /// The last line of a host's process, else its exit status if it failed.
    pub fn last_line(&self, host: usize) -> Option<String> {
        let processes = lock(&self.processes);
        let launched = processes.launched.iter().rev().find(|launched| launched.is_on(host));
        let own = launched.and_then(Launched::last_line);
        own.or_else(|| processes.lines.get(&host).cloned())
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        if self.watcher.is_some() {
            self.end(&|_| false);
        }
    }
}

impl Processes {
    /// Retries refused logins as long as that may help; others are kept and reported.
    fn try_refused_again(&mut self, now: Duration) {
        let logins = &mut self.logins;
        let lines = &mut self.lines;
        self.launched.retain(|launched| {
            let is_tried = launched.was_refused() && {
                // Without random numbers all retries coincide, and some are refused again.
                let random = getrandom::u64().unwrap_or_default();
                let begun = now.saturating_sub(launched.age());
                logins.refused(launched.login(), begun, now, random)
            };
            if is_tried {
                lines.extend(launched.last_line().map(|line| (launched.own().host, line)));
            }
            !is_tried
        });
    }

    /// Takes the next logins; a starting receiver delays them no longer than this timeout.
    fn next(&mut self, timeout: Duration, now: Duration) -> Vec<Login> {
        let is_starting = |launched: &&Launched| {
            let is_settled = |host: &usize| self.settled.contains(host);
            let is_left =
                |to: &Recipient| !is_settled(&to.host) && !self.detours.contains_key(&to.host);
            let own = launched.own().host;
            let is_awaited =
                (launched.is_on(own) && !is_settled(&own)) || launched.others().iter().any(is_left);
            is_awaited && launched.age() < timeout && !launched.has_ended()
        };
        let starting = self.launched.iter().filter(is_starting).count();
        let next = self.logins.take(starting, now);
        self.starting = next.len();
        for login in &next {
            // A new process has its own lines.
            self.lines.remove(&login.hosts[0].host);
        }
        next
    }

    /// Failures to report, each with the number of the start. On the root, hosts that another host could not start,
    /// or has not started in time, are first tried from here.
    fn failed(&mut self, launcher: &Launcher, to: &Superior) -> Vec<(u32, Report)> {
        let mut failed = Vec::new();
        let mut detours = Vec::new();
        for launched in &mut self.launched {
            for report in launched.news() {
                self.lines.extend(report.line.clone().map(|line| (report.host, line)));
                let is_direct = launched.is_on(report.host) || matches!(to, Superior::Launcher(_));
                if is_direct {
                    failed.push((launched.login().start, report));
                } else {
                    detours.push((report.host, report.reason));
                }
            }
            if matches!(to, Superior::Push(_)) && launched.is_late_now(launcher.tree_timeout()) {
                let reason = "its receiver did not connect in time".to_owned();
                let others = launched.others().iter().map(|to| (to.host, reason.clone()));
                detours.extend(others);
            }
        }
        for (host, reason) in detours {
            self.start_from_here(host, reason);
        }
        for (_, report) in &mut failed {
            if let Some(before) = self.detours.get(&report.host)
                && !is_in(&report.reason, before)
            {
                report.reason += &format!(" [before: {before}]");
            }
        }
        failed
    }

    /// Starts a host from here, once, if it is still awaited.
    fn start_from_here(&mut self, host: usize, reason: String) {
        if self.settled.contains(&host) || self.detours.contains_key(&host) {
            return;
        }
        let mut all = self.launched.iter().flat_map(Launched::others);
        if let Some(found) = all.find(|to| to.host == host) {
            self.logins.add(Login::to(vec![found.clone()]));
            self.detours.insert(host, reason);
        }
    }

    /// Takes the last reports; after the push only their lines matter.
    fn take_lines(&mut self) {
        for report in self.launched.iter_mut().flat_map(Launched::news) {
            self.lines.extend(report.line.map(|line| (report.host, line)));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
