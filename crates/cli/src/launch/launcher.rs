//! The command that starts receivers.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use super::{
    order::{Order, Recipient},
    program::Program,
    tree::{self, parts},
};
use crate::{failure::Failure, network::Choice, recording::Recording};

/// The default of how many launchers start at the same time: enough for all processors, few enough for the ssh servers
/// behind one gateway.
pub const FANOUT: u16 = 32;

/// The default launcher. Its options are those of scp: what users have configured for interactive logins (forwards, a command,
/// a terminal) would end a login or change its output. An existing connection master is used, and none is created: it would end
/// with the push, and the logins of others with it. All options are in OpenSSH 7.6 (2017): an ssh that does not know one would
/// end every login.
pub const SSH: &str = "ssh -x -o BatchMode=yes -o ClearAllForwardings=yes -o RequestTTY=no -o RemoteCommand=none \
                       -o PermitLocalCommand=no -o ControlMaster=no {host}";

/// The command that starts a receiver on a host.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The arguments before the receiver's own; `{host}` stands for the host. Empty: on this machine.
    words: Vec<String>,
    /// One process starts receivers on all hosts at once: `{host}` stands for a list of hosts, `{count}` for their number.
    pub takes_lists: bool,
    /// The receiver's program, quoted if the launcher needs that.
    rdmc: String,
    /// The program that is copied to hosts instead.
    pub program: Option<Arc<Program>>,
    /// Receivers create missing directories for their copies.
    pub makes_directories: bool,
    /// The networks at which receivers reach this machine.
    pub networks: Choice,
    pub verbose: bool,
    pub recording: Option<Arc<Recording>>,
    /// The maximum number of concurrent starts.
    pub fanout: usize,
    /// The depth of the tree of logins; `None`: as the number of hosts needs.
    depth: Option<u8>,
    /// The time that all receivers together may take to connect.
    pub timeout: Duration,
}

impl Launcher {
    /// A launcher from a template like `ssh {host}`, split into words as a shell would.
    pub fn from_template(template: &str, rdmc: &str, verbose: bool) -> Result<Self, Failure> {
        let words = shlex::split(template).filter(|words| !words.is_empty()).ok_or_else(|| {
            Failure::Usage(format!("--launcher \"{template}\" is not a command (unclosed quotes?)"))
        })?;
        if !words.iter().any(|word| word.contains("{host}")) {
            let why = "has no {host}, so all receivers would start on the same host";
            return Err(Failure::Usage(format!("--launcher \"{template}\" {why}")));
        }
        let rdmc = match joins(&words) {
            true => quoted(rdmc)?,
            false => rdmc.to_owned(),
        };
        Ok(Self::new(words, rdmc, verbose))
    }

    fn new(words: Vec<String>, rdmc: String, verbose: bool) -> Self {
        let (fanout, timeout) = (FANOUT.into(), Duration::from_secs(30));
        Self {
            words,
            takes_lists: false,
            rdmc,
            program: None,
            makes_directories: false,
            networks: Choice::Any,
            verbose,
            recording: None,
            fanout,
            depth: None,
            timeout,
        }
    }

    /// Starts this program on this machine.
    pub fn local(verbose: bool) -> Self {
        // Works even if the program's file has been replaced or removed.
        Self::new(Vec::new(), "/proc/self/exe".into(), verbose)
    }

    /// A launcher of these words that starts receivers on many hosts at once. Each receiver gets its name from the variable
    /// [`crate::invitation::NODE_NAME`].
    pub fn of_lists(words: &[&str], rdmc: &str, verbose: bool) -> Self {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Self { takes_lists: true, ..Self::new(words, rdmc.to_owned(), verbose) }
    }

    /// The launcher that executes an order.
    ///
    /// Errors: this program is to be copied and cannot be read.
    pub fn of_order(order: &Order) -> Result<Self, Failure> {
        let launcher = Self::new(order.words.clone(), order.rdmc.clone(), order.verbose);
        let program = order.copies_self.then(Program::own).transpose()?;
        let timeout = Duration::from_millis(order.timeout_ms);
        Ok(launcher.copying(program).limited(order.fanout, Some(order.depth), timeout))
    }

    /// Copies this program to each host and runs it there.
    pub fn copying(self, program: Option<Program>) -> Self {
        Self { program: program.map(Arc::new), ..self }
    }

    /// The order for a host that starts receivers on these hosts; it is the first of them.
    pub fn order(&self, hosts: &[Recipient]) -> Order {
        Order {
            hosts: hosts.to_vec(),
            words: self.words.clone(),
            rdmc: self.rdmc.clone(),
            copies_self: self.program.is_some(),
            fanout: self.fanout,
            depth: self.depth.unwrap_or(1).saturating_sub(1).max(1),
            timeout_ms: self.timeout.as_millis() as u64,
            verbose: self.verbose,
        }
    }

    /// Sets whether receivers create missing directories for their copies.
    pub fn making_directories(self, makes_directories: bool) -> Self {
        Self { makes_directories, ..self }
    }

    /// Sets the networks at which receivers reach this machine.
    pub fn over(self, networks: Choice) -> Self {
        Self { networks, ..self }
    }

    /// Limits concurrent starts, the depth of the tree of logins, and the time for all receivers.
    pub fn limited(self, fanout: usize, depth: Option<u8>, timeout: Duration) -> Self {
        Self { fanout, depth, timeout, ..self }
    }

    /// Sets the depth for these hosts: one on this machine and with traces, which are received through
    /// standard output.
    pub fn with_depth_for(self, hosts: usize) -> Self {
        let is_flat = self.words.is_empty() || self.takes_lists || self.recording.is_some();
        let found = self.depth.unwrap_or_else(|| tree::depth(hosts, self.fanout));
        Self { depth: Some(if is_flat { 1 } else { found }), ..self }
    }

    /// The hosts of each login from here.
    pub fn parts<T: Clone>(&self, hosts: &[T]) -> Vec<Vec<T>> {
        // Each receiver's trace is read from its own standard output.
        if self.takes_lists && self.recording.is_none() {
            return vec![hosts.to_vec()];
        }
        parts(hosts, self.fanout, self.depth.unwrap_or(1))
    }

    /// How long a receiver that does not connect delays the next ones: even if none connects, all
    /// are started within half of the timeout.
    pub fn start_timeout(&self, hosts: usize) -> Duration {
        let rounds = hosts.div_ceil(self.fanout).max(1);
        self.timeout / 2 / u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    /// After this time, hosts that others should have started are started from here.
    pub fn tree_timeout(&self) -> Duration {
        // Copying a program takes time, and from here even more.
        if self.program.is_some() { self.timeout * 2 / 3 } else { self.timeout / 3 }
    }

    /// Lets receivers write their parts of this trace.
    pub fn recorded(self, recording: Option<&Arc<Recording>>) -> Self {
        Self { recording: recording.cloned(), ..self }
    }

    /// Whether one process starts receivers on all of these at once.
    pub fn starts_at_once(&self, hosts: &[Recipient]) -> bool {
        self.takes_lists && hosts.len() > 1
    }

    /// The command that runs receivers on these hosts: on the first only, on all at once, or on the first with `rdmc launch`
    /// for the others.
    pub fn command(&self, hosts: &[Recipient]) -> Command {
        let at_once = self.starts_at_once(hosts);
        let launches = hosts.len() > 1 && !at_once;
        let started = &hosts[..if at_once { hosts.len() } else { 1 }];
        let names: Vec<&str> = started.iter().map(|to| to.name.as_str()).collect();
        let (names, count) = (names.join(","), started.len().to_string());
        let fill = |word: &String| word.replace("{count}", &count).replace("{host}", &names);
        let mut words = self.words.iter().map(fill);
        let mut command = Command::new(words.next().unwrap_or_else(|| self.rdmc.clone()));
        command.args(words);
        match &self.program {
            Some(program) => {
                let script = program.script();
                // The script has no single quotes.
                let script = if joins(&self.words) { format!("'{script}'") } else { script };
                command.args(["sh", "-c", &script, "rdmc"]);
            }
            None if self.words.is_empty() => {}
            None => drop(command.arg(&self.rdmc)),
        }
        let own: &[&str] = if launches { &["launch"] } else { &["receive", "--session"] };
        command.args(own).stdin(Stdio::piped()).stderr(Stdio::piped());
        command.stdout(if launches { Stdio::piped() } else { Stdio::null() });
        command
    }
}

/// Whether the launcher joins its arguments with spaces and a shell at the host splits them, as ssh does.
fn joins(words: &[String]) -> bool {
    let is_ssh = |word: &String| Path::new(word).file_name().is_some_and(|name| name == "ssh");
    words.iter().any(is_ssh)
}

/// Quotes a path for the shell at the host, except a leading `~/`.
fn quoted(path: &str) -> Result<String, Failure> {
    let (home, rest) = match path.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", path),
    };
    let rest = shlex::try_quote(rest)
        .map_err(|error| Failure::Usage(format!("--remote-rdmc {path:?}: {error}")))?;
    Ok(format!("{home}{rest}"))
}

#[cfg(test)]
mod tests {
    use rdmc::Secret;

    use super::*;

    fn hosts(names: &[&str]) -> Vec<Recipient> {
        let token = Secret::from_bytes([0; 32]);
        let recipient = |(host, name): (usize, &&str)| {
            let (name, token) = ((*name).to_owned(), token.clone());
            Recipient { host, name, token }
        };
        names.iter().enumerate().map(recipient).collect()
    }

    fn program(template: &str, rdmc: &str) -> String {
        let launcher = Launcher::from_template(template, rdmc, false).unwrap();
        let command = launcher.command(&hosts(&["a"]));
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        words[words.len() - 3].clone().into_owned()
    }

    #[test]
    fn a_remote_path_is_quoted_as_one_word() {
        for ssh in ["ssh {host}", "/usr/bin/ssh -p 22 {host}", "timeout 9 ssh {host} sudo"] {
            assert_eq!(program(ssh, "/opt/rdmc"), "/opt/rdmc");
            assert_eq!(program(ssh, "/opt/my tools/rdmc"), "'/opt/my tools/rdmc'");
            assert_eq!(program(ssh, "~/my tools/rdmc"), "~/'my tools/rdmc'");
            assert_eq!(program(ssh, "~/bin/rdmc"), "~/bin/rdmc");
        }
        assert_eq!(program("ip netns exec {host}", "/opt/my tools/rdmc"), "/opt/my tools/rdmc");
    }

    #[test]
    fn all_are_started_within_the_timeout_whoever_fails() {
        let launcher = Launcher::from_template("ssh {host}", "rdmc", false).unwrap();
        for hosts in [0_usize, 1, 32, 33, 1000, 10_000] {
            let rounds = u32::try_from(hosts.div_ceil(32)).unwrap();
            let flat = launcher.start_timeout(hosts) * rounds;
            assert!(launcher.tree_timeout() + flat <= launcher.timeout, "{hosts}");
            assert!(launcher.start_timeout(hosts) > Duration::from_millis(20), "{hosts}");
        }
    }

    #[test]
    fn lists_are_started_by_one_command() {
        let launcher = Launcher::of_lists(&["srun", "-N{count}", "-w{host}"], "rdmc", false);
        let words = |names: &[&str]| format!("{:?}", launcher.command(&hosts(names)));
        assert_eq!(words(&["a", "b"]), r#""srun" "-N2" "-wa,b" "rdmc" "receive" "--session""#);
        assert_eq!(words(&["a"]), r#""srun" "-N1" "-wa" "rdmc" "receive" "--session""#);
        assert_eq!(launcher.parts(&[1, 2, 3]), [[1, 2, 3]]);
    }

    #[test]
    fn an_order_makes_the_same_command() {
        let launcher = Launcher::from_template("ssh -p 7 {host}", "my rdmc", true).unwrap();
        let launcher = launcher.limited(4, None, Duration::from_secs(9)).with_depth_for(1000);
        let order = launcher.order(&[]);
        assert_eq!((order.depth, order.fanout), (3, 4));
        let again = Launcher::of_order(&order).unwrap();
        let words = |launcher: &Launcher| format!("{:?}", launcher.command(&hosts(&["b", "c"])));
        assert_eq!(words(&again), words(&launcher));
        assert_eq!((again.timeout, again.verbose), (Duration::from_secs(9), true));
        assert_eq!(again.order(&[]).depth, 2);
    }
}
