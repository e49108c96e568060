//! What people do to `rdmc push` on real hosts, over a real ssh server where one can be had, and by a launcher that
//! only runs commands. Each trial has a directory of its own, with a directory for each host.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::common::{
    Outcome, Place, RDMC, await_that, is_running, signal, sshd::Sshd, without_signals,
};

/// With blocks of 1 KiB, long enough on its way to be disturbed in the middle.
const BYTES: usize = 16 << 20;
const HOSTS: [&str; 4] = ["h1", "h2", "h3", "h4"];

/// How hosts are reached.
struct Way {
    launcher: String,
    /// Of the host `full`: below it there is no space for the object.
    full: Option<PathBuf>,
}

impl Way {
    fn over(sshd: &Sshd) -> Self {
        let launcher = format!("ssh -F {} {{host}}", sshd.path("client").display());
        Self { launcher, full: Some(sshd.path("")) }
    }

    /// Runs a shell here for each host.
    fn of_this_machine(directory: &Path) -> Self {
        let full = directory.join("full");
        fs::create_dir(&full).unwrap();
        let mount = format!("mount -t tmpfs -o size=1m none {}", full.display());
        let try_it = Command::new("unshare").args(["-m", "sh", "-c", &mount]).output();
        let can_mount = try_it.is_ok_and(|output| output.status.success());
        let on_full_disk =
            format!("exec unshare -m sh -c \"{mount} && exec \\\"\\$@\\\"\" sh \"$@\"");
        let launcher = format!(
            "sh -c 'case $0 in dead) echo no route to $0 >&2; exit 255;; full) {on_full_disk};; esac; exec \"$@\"' {{host}}"
        );
        Self { launcher, full: can_mount.then(|| directory.to_owned()) }
    }

    /// `rdmc push` to these hosts, into their directories at the place.
    fn push(&self, place: &Place, hosts: &str, more: &[&str]) -> Command {
        for host in hosts.split(',') {
            fs::create_dir_all(place.path(host)).unwrap();
        }
        self.push_to(place, hosts, &place.path("{host}/"), more)
    }

    fn push_to(&self, place: &Place, hosts: &str, dest: &Path, more: &[&str]) -> Command {
        let dest = dest.to_str().unwrap();
        let to = ["push", "--to", hosts, "--dest", dest, "--launcher", &self.launcher];
        let how = ["--remote-rdmc", RDMC, "--advertise", "127.0.0.1", "--block-size", "1KiB"];
        place.rdmc(&[&to[..], &how, more].concat())
    }

    /// The object, to all hosts, so far that one has a part of it.
    fn begin(&self, place: &Place) -> Child {
        let push = self.push(place, &HOSTS.join(","), &["--json", "object"]).spawn().unwrap();
        place.await_bytes("/h2/", 3 << 20);
        push
    }

    /// The same again sends the rest: at least what this host has stays.
    fn again(&self, place: &Place, resumed_host: usize) {
        let again = run(self.push(place, &HOSTS.join(","), &["--json", "object"]));
        assert_eq!(again.code, Some(0), "{again:?}");
        let resumed = host(&again.json(), resumed_host)["resumed_bytes"].as_u64().unwrap();
        assert!(resumed >= 2 << 20, "{resumed}");
        assert!(has_copies(place, &HOSTS) && place.temporaries().is_empty());
    }
}

fn run(mut command: Command) -> Outcome {
    Outcome::of(command.output().unwrap())
}

fn ended(child: Child) -> Outcome {
    Outcome::of(child.wait_with_output().unwrap())
}

fn host(summary: &Value, index: usize) -> &Value {
    &summary["hosts"][index]
}

fn has_copies(place: &Place, hosts: &[&str]) -> bool {
    hosts.iter().all(|host| place.is_copy(&format!("{host}/object")))
}

/// Processes that have a temporary file open whose path has this part: receivers, whatever their parent process.
fn receivers(place: &Place, part: &str) -> Vec<u32> {
    let below = place.directory.path().to_str().unwrap();
    let is_open = |process: &u32| {
        let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|path| {
            let path = path.to_string_lossy();
            path.starts_with(below) && path.contains(part) && path.contains(".rdmc-")
        })
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_open).collect()
}

/// Name and function of a trial.
type Trial = (&'static str, fn(&Way));

fn all_trials(way: &Way) {
    let trials: [Trial; 10] = [
        ("several hosts get odd names", several_hosts_get_odd_names),
        ("a receiver that is killed, and one that is ended", lost_receivers),
        ("a killed root", a_killed_root),
        ("SIGTERM at the root", sigterm_at_the_root),
        ("nohup", nohup),
        ("closed standard output, and /dev/full", standard_output),
        ("a source that is written to", a_source_that_is_written_to),
        ("a source that is replaced", a_source_that_is_replaced),
        ("a full disk", a_full_disk),
        ("hosts without rdmc and directories", hosts_without_rdmc_and_directories),
    ];
    for (name, trial) in trials {
        eprintln!("trial: {name}");
        trial(way);
    }
}

fn several_hosts_get_odd_names(way: &Way) {
    let place = Place::with(100_000);
    let hosts = HOSTS.join(",");
    let plain = run(way.push(&place, &hosts, &["--json", "object"]));
    assert_eq!(plain.code, Some(0), "{plain:?}");
    assert!(has_copies(&place, &HOSTS) && plain.json()["hosts"].as_array().unwrap().len() == 4);
    let names = [
        "two words",
        "-dash",
        "'\"\\",
        "$(touch made)",
        "line\nbreak",
        "\u{fc}n\u{ef}",
        "{host}",
        "a:1",
    ];
    let pushes = names.map(|name| {
        fs::write(place.path(name), name).unwrap();
        way.push(&place, "h1,h2", &["-q", "--", name]).spawn().unwrap()
    });
    for (name, push) in names.into_iter().zip(pushes) {
        let odd = ended(push);
        assert_eq!(odd.code, Some(0), "{name:?}: {odd:?}");
        for host in ["h1", "h2"] {
            let copy = place.path(host).join(name);
            assert_eq!(fs::read_to_string(&copy).ok().as_deref(), Some(name), "{}", copy.display());
        }
    }
    let strange = place.directory.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    fs::write(&strange, "not UTF-8").unwrap();
    let mut renamed = way.push_to(&place, "h1", &place.path("h1/renamed"), &["-q"]);
    renamed.arg(&strange);
    let renamed = run(renamed);
    assert_eq!(renamed.code, Some(0), "{renamed:?}");
    assert_eq!(fs::read(place.path("h1/renamed")).unwrap(), b"not UTF-8");
    assert!(!place.path("made").exists() && !place.path("h1/made").exists());
    assert!(place.temporaries().is_empty());
}

fn lost_receivers(way: &Way) {
    let place = Place::with(BYTES);
    let push = way.begin(&place);
    receivers(&place, "/h2/").into_iter().for_each(|process| signal(process, "KILL"));
    receivers(&place, "/h3/").into_iter().for_each(|process| signal(process, "TERM"));
    let outcome = ended(push);
    outcome.has_failed_with(3, "h2: ");
    outcome.has_failed_with(3, "h3: the receiver was interrupted");
    assert!(has_copies(&place, &["h1", "h4"]) && !place.is_copy("h2/object"));
    assert_eq!(host(&outcome.json(), 1)["state"], "failed");
    // The partial copies of both, and the lock file of the killed one.
    assert_eq!(place.temporaries().len(), 3);
    way.again(&place, 1);
}

fn a_killed_root(way: &Way) {
    let place = Place::with(BYTES);
    let mut push = way.begin(&place);
    push.kill().unwrap();
    push.wait().unwrap();
    await_that("receivers are gone", || receivers(&place, "/").is_empty());
    assert_eq!(place.temporaries().len(), HOSTS.len());
    way.again(&place, 1);
}

fn sigterm_at_the_root(way: &Way) {
    let place = Place::with(BYTES);
    let push = way.begin(&place);
    let process = push.id();
    let all = receivers(&place, "/");
    assert!(all.len() >= HOSTS.len(), "{all:?}");
    signal(process, "TERM");
    let outcome = ended(push);
    outcome.has_failed_with(130, "0 of 4 hosts have a copy");
    assert_eq!(
        (&outcome.json()["exit_code"], &outcome.json()["error"]),
        (&130.into(), &"interrupted".into())
    );
    await_that("receivers are gone", || !all.iter().any(|&process| is_running(process)));
    assert!(HOSTS.iter().all(|host| !place.path(host).join("object").exists()));
    let again = run(way.push(&place, &HOSTS.join(","), &["-q", "object"]));
    assert!(again.code == Some(0) && has_copies(&place, &HOSTS), "{again:?}");
    assert!(place.temporaries().is_empty());
}

/// The same command by a shell that does something first.
fn through_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).args(without_signals(command));
    shell.current_dir(command.get_current_dir().unwrap());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn nohup(way: &Way) {
    let place = Place::with(BYTES);
    let push = way.push(&place, &HOSTS.join(","), &["object"]);
    let push = through_shell("exec nohup \"$@\"", &push).spawn().unwrap();
    place.await_bytes("/h2/", 0);
    signal(push.id(), "HUP");
    let outcome = ended(push);
    assert!(outcome.code == Some(0) && has_copies(&place, &HOSTS), "{outcome:?}");
}

fn standard_output(way: &Way) {
    let place = Place::with(100_000);
    let push = way.push(&place, "h1,dead", &["--json", "object"]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    for script in ["exec \"$@\" >/dev/full", "exec \"$@\" >&-"] {
        run(through_shell(script, &push)).has_failed_with(3, "dead: ");
    }
    let mut closed = through_shell("\"$@\" | true; exit 0", &push);
    let both = closed.stderr(writer).status().unwrap();
    drop(closed);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(both.success() && said.contains("dead: "), "{said}");
    let whole = way.push(&place, "h1,h2", &["object"]);
    let full = run(through_shell("exec \"$@\" >/dev/full", &whole));
    assert!(full.code == Some(0) && has_copies(&place, &["h1", "h2"]), "{full:?}");
}

fn a_source_that_is_written_to(way: &Way) {
    use std::io::Write;
    let place = Place::with(BYTES);
    let push = way.begin(&place);
    File::options().append(true).open(place.path("object")).unwrap().write_all(b"more").unwrap();
    ended(push).has_failed_with(1, "object changed while it was sent");
    assert!(HOSTS.iter().all(|host| !place.path(host).join("object").exists()));
}

fn a_source_that_is_replaced(way: &Way) {
    let place = Place::with(BYTES);
    let push = way.begin(&place);
    fs::write(place.path("new"), "another version").unwrap();
    fs::rename(place.path("new"), place.path("object")).unwrap();
    ended(push).has_failed_with(1, "object changed while it was sent");
    let again = run(way.push(&place, &HOSTS.join(","), &["-q", "object"]));
    assert_eq!(again.code, Some(0), "{again:?}");
    let is_new =
        |host: &&str| fs::read(place.path(host).join("object")).unwrap() == b"another version";
    assert!(HOSTS.iter().all(is_new) && place.temporaries().is_empty());
}

fn a_full_disk(way: &Way) {
    let Some(directory) = &way.full else {
        eprintln!("SKIPPED: a full disk needs the right to mount one (root, or CAP_SYS_ADMIN)");
        return;
    };
    let place = Place::with(BYTES);
    fs::create_dir(directory.join("h1")).unwrap();
    let outcome =
        run(way.push_to(&place, "h1,full", &directory.join("{host}/"), &["--json", "object"]));
    outcome.has_failed_with(3, "full: no space for");
    assert_eq!(host(&outcome.json(), 1)["state"], "failed");
    assert!(fs::read(directory.join("h1/object")).is_ok_and(|copy| copy == place.contents));
}

/// The second is started by the first.
fn hosts_without_rdmc_and_directories(way: &Way) {
    let place = Place::with(100_000);
    let dest = place.path("a/{host}/object").to_str().unwrap().to_owned();
    let to = ["push", "object", "--to", "h1,h2", "--dest", &dest, "--launcher", &way.launcher];
    let missing = run(place.rdmc(&[&to[..], &["--remote-rdmc", "/none/rdmc"]].concat()));
    missing.has_failed_with(1, "copy it with --copy-self");
    let how = ["--copy-self", "--mkdir", "--advertise", "127.0.0.1", "--timeout", "600"];
    let tree = ["--fanout", "1", "--launch-depth", "2"];
    let pushed = run(place.rdmc(&[&to[..], &how, &tree].concat()));
    assert_eq!((pushed.code, pushed.err.as_str()), (Some(0), ""), "{pushed:?}");
    assert!(place.is_copy("a/h1/object") && place.is_copy("a/h2/object"));
}

#[test]
fn trials_by_a_launcher() {
    let directory = tempfile::tempdir().unwrap();
    all_trials(&Way::of_this_machine(directory.path()));
}

#[test]
fn trials_over_ssh() {
    match Sshd::start("MaxStartups 100", "") {
        Ok(sshd) => all_trials(&Way::over(&sshd)),
        Err(why) => eprintln!("SKIPPED: all trials over ssh: {why}"),
    }
}
