//! The processes of a push, and those that a host starts for one.

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
/// How long processes may take to end by themselves after the push.
const END_TIMEOUT: Duration = Duration::from_secs(4);
/// The same where another host has started them, with so many logins left below: less than that host's own superior waits, so
/// that it can end its processes before it is killed itself.
const END_TIMEOUTS_BELOW: [Duration; DEPTH_MAX as usize] = [
    Duration::from_millis(1500),
    Duration::from_secs(2),
    Duration::from_millis(2500),
    Duration::from_secs(3),
];
/// The same for those of lost hosts, which may still print the reason.
const LOST_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Who is told of failures.
#[derive(Clone)]
pub enum Superior {
    /// The push on this machine.
    Push(PushHandle),
    /// The process that reads this one's standard output, which has said how many logins are left below.
    Launcher(u8),
}

impl Superior {
    fn tell(&self, start: u32, report: Report) {
        match self {
            Self::Push(push) => push.host_failed(report.host, start, report.reason),
            // If nobody reads them any more, the push is over.
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
    /// Of hosts without a started receiver.
    logins: Logins,
    /// Logins that are neither waiting nor launched yet.
    starting: usize,
    launched: Vec<Launched>,
    /// Hosts that have connected, or are given up.
    settled: HashSet<usize>,
    /// Hosts that another one could not start, and why.
    detours: HashMap<usize, String>,
    /// Last lines of receivers that other hosts have started.
    lines: HashMap<usize, String>,
}

impl Receivers {
    /// Starts a thread that starts a receiver on each host, and one that reads what they print. Receivers that cannot be started, or
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

    /// Starts another process, for which no login waits.
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

    /// A host's receiver has connected or is given up: the next one may start.
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
            // One that starts others stays for them.
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

    /// Whether all have been started and have ended, which is reported.
    pub fn have_ended(&self) -> bool {
        let processes = lock(&self.processes);
        let have_ended = processes.launched.iter().all(Launched::is_reported);
        have_ended && processes.logins.is_empty() && processes.starting == 0
    }

    /// Waits a short time for all processes to end, less for those of lost hosts, and kills the rest.
    pub fn end(&mut self, is_lost: &dyn Fn(usize) -> bool) {
        let started = Instant::now();
        // First the watching thread, so that it does not report processes that are killed here.
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

    /// Faster networks that hosts share with this machine, and how many have named each.
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
    /// Logins that were refused are tried again, as long as that may help; others stay, and are reported.
    fn try_refused_again(&mut self, now: Duration) {
        let logins = &mut self.logins;
        let lines = &mut self.lines;
        self.launched.retain(|launched| {
            let is_tried = launched.was_refused() && {
                // Without random numbers all come at the same time, and some of them again.
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

    /// The next logins, which do not wait for receivers longer than this timeout.
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
            // A new process has lines of its own.
            self.lines.remove(&login.hosts[0].host);
        }
        next
    }

    /// Failures to report, each with the number of the start. Where the push is, hosts that another one could not start,
    /// or has not started for long, are first tried from here.
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

    /// Once for each host that is still awaited.
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

    /// Takes the last reports, of which only the lines matter after the push.
    fn take_lines(&mut self) {
        for report in self.launched.iter_mut().flat_map(Launched::news) {
            self.lines.extend(report.line.map(|line| (report.host, line)));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
