//! Units of systemd: those that packages install, and that of docs/guide/service.md.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Child, Command},
};

use super::packaged;
use crate::common::{Outcome, Place, signal};

const SERVICES: [&str; 2] = ["rdmc-receive", "rdmc-serve"];

/// The text of a unit.
struct Unit(String);

impl Unit {
    fn packaged(service: &str) -> Self {
        Self(fs::read_to_string(packaged(&format!("{service}.service"))).unwrap())
    }

    /// The one of docs/guide/service.md that fetches at boot.
    fn of_boot() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/service.md");
        let text = fs::read_to_string(path).unwrap();
        let blocks = text.split("\n```ini\n").skip(1).filter_map(|rest| rest.split("```").next());
        let found: Vec<&str> = blocks.filter(|block| block.contains("Type=oneshot")).collect();
        let [unit] = found[..] else { panic!("{found:?}") };
        Self(unit.to_owned())
    }

    /// The values of a key.
    fn values(&self, key: &str) -> Vec<&str> {
        self.0.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
    }

    /// Whether the unit has each of these keys once, with this value.
    fn assert_has(&self, all: &[(&str, &str)]) {
        for (key, value) in all {
            assert_eq!(self.values(key), [*value], "{key}");
        }
    }

    /// Starts the command, with other values for some of its words and parts of words.
    fn start(&self, place: &Place, values: &[(&str, &str)]) -> Child {
        let text = self.0.replace("\\\n", " ");
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/rdmc "));
        let replaced = |word: &str| {
            values.iter().fold(word.to_owned(), |word, (old, new)| word.replace(old, new))
        };
        let words: Vec<String> = line.unwrap().split_whitespace().map(replaced).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        place.rdmc(&words).spawn().unwrap()
    }

    /// Errors: what systemd finds wrong with it. Prints SKIPPED where there is no systemd.
    fn verify(&self, name: &str) {
        let place = Place::with(0);
        // The program that it names is not installed here.
        let path = place.path(&format!("{name}.service"));
        fs::write(&path, self.0.replace("/usr/bin/rdmc", "/bin/true")).unwrap();
        let mut verify = Command::new("systemd-analyze");
        match verify.args(["verify", "--man=no"]).arg(path).output() {
            Ok(output) => {
                let words = String::from_utf8_lossy(&output.stderr);
                let ours: Vec<&str> = words.lines().filter(|line| line.contains(name)).collect();
                assert!(output.status.success() && ours.is_empty(), "{output:?}");
            }
            Err(error) => println!("SKIPPED: systemd-analyze: {error}"),
        }
    }
}

/// With a secret in `secret`.
fn place(bytes: usize) -> Place {
    let place = Place::with(bytes);
    place.write_private("secret", &place.run_words("secret").out);
    place
}

/// The first line that a command prints to standard error.
fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

fn end(mut service: Child) {
    signal(service.id(), "TERM");
    assert_eq!(service.wait().unwrap().code(), Some(0), "SIGTERM ends it with 0");
}

/// The command line of the unit is one that this program takes.
#[test]
fn the_receiver_runs_a_command_that_works() {
    let place = place(0);
    fs::create_dir(place.path("incoming")).unwrap();
    // The port may be in use here.
    let values = [("%d/", ""), ("%S/rdmc", "incoming"), ("[::]:7000", "127.0.0.1:0")];
    let mut receiver = Unit::packaged("rdmc-receive").start(&place, &values);
    let line = first_line(&mut receiver);
    assert!(line.contains("listening on"), "{line}");
    end(receiver);
}

#[test]
fn a_host_fetches_at_boot_from_the_server() {
    let place = place(200_000);
    for directory in ["served/llama", "state/rdmc"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    fs::rename(place.path("object"), place.path("served/llama/object")).unwrap();
    let values = [("%d/", ""), ("/srv/rdmc", "served"), ("[::]:7700", "127.0.0.1:0")];
    let mut server = Unit::packaged("rdmc-serve").start(&place, &values);
    let line = first_line(&mut server);
    let address = line.split_whitespace().nth(3).expect(&line).to_owned();
    let origin = format!("{address}:llama");
    let values = [
        ("%d/", ""),
        ("%S/", "state/"),
        ("node0:llama", origin.as_str()),
        ("node1", address.as_str()),
    ];
    // At two boots.
    let inodes = [(); 2].map(|()| {
        let fetch = Unit::of_boot().start(&place, &values);
        let fetched = Outcome::of(fetch.wait_with_output().unwrap());
        assert_eq!(fetched.code, Some(0), "{fetched:?}");
        assert!(place.is_copy("state/rdmc/llama/object"));
        fs::metadata(place.path("state/rdmc/llama/object")).unwrap().ino()
    });
    assert_eq!(inodes[0], inodes[1], "what is there stays");
    end(server);
}

/// What docs/guide/service.md says of their limits.
#[test]
fn services_are_limited() {
    for service in SERVICES {
        let unit = Unit::packaged(service);
        unit.assert_has(&[
            ("LimitCORE", "0"),
            ("PrivateUsers", "yes"),
            ("ProcSubset", "pid"),
            ("ProtectProc", "invisible"),
            ("ProtectSystem", "strict"),
            ("ProtectHome", "yes"),
            ("NoNewPrivileges", "yes"),
            ("CapabilityBoundingSet", ""),
            ("RestartPreventExitStatus", "2"),
            ("User", "rdmc"),
            ("Group", "rdmc"),
        ]);
        for example in ["#IPAddressDeny=any", "#IPAddressAllow="] {
            assert!(unit.0.contains(&format!("\n{example}")), "a commented example: {example}");
        }
    }
    Unit::packaged("rdmc-receive").assert_has(&[
        ("StateDirectoryMode", "0750"),
        ("UMask", "0027"),
        ("MemoryMax", "50%"),
        ("TasksMax", "4096"),
    ]);
    let serve = Unit::packaged("rdmc-serve");
    serve.assert_has(&[
        ("MemoryMax", "80%"),
        ("TasksMax", "16384"),
        ("PrivateDevices", "yes"),
        ("LoadCredential", "secret:/etc/rdmc/fetch-secret"),
    ]);
    for writable in ["ReadWritePaths", "StateDirectory", "CacheDirectory", "DeviceAllow"] {
        assert_eq!(serve.values(writable), Vec::<&str>::new(), "{writable}");
    }
    // Otherwise hosts that are started with --protect none would want RDMA devices.
    assert!(serve.values("ExecStart")[0].contains(" --protect encrypt "));
}

/// Who may fetch cannot push to hosts with a receiver.
#[test]
fn services_have_secrets_of_their_own() {
    let secrets = SERVICES.map(|service| {
        let unit = Unit::packaged(service);
        unit.values("LoadCredential").iter().map(ToString::to_string).collect::<Vec<_>>()
    });
    assert_ne!(secrets[0], secrets[1]);
    assert_eq!(Unit::of_boot().values("LoadCredential"), secrets[1]);
}

/// From 0, exposed to nothing, to 100; they have 16 and 14 in systemd 252. Versions count a little differently.
#[test]
fn systemd_counts_services_as_hardly_exposed() {
    for service in SERVICES {
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=yes", "--threshold=20"]);
        match security.arg(packaged(&format!("{service}.service"))).output() {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => println!("SKIPPED: systemd-analyze: {error}"),
        }
    }
}

/// Nor take descriptors out of them (docs/guide/service.md). What systemd allows services in general has the first two of these calls.
#[test]
fn services_may_not_read_the_memory_of_other_processes() {
    let refused = ["process_vm_readv", "process_vm_writev"];
    let none = format!("~{}", refused.join(" "));
    let landlock = "landlock_create_ruleset landlock_add_rule landlock_restrict_self";
    let expected = ["@system-service", "~@privileged", &none, landlock];
    for (service, lines) in SERVICES.into_iter().zip([3, 4]) {
        let filter = Unit::packaged(service);
        assert_eq!(filter.values("SystemCallFilter"), expected[..lines], "{service}");
    }
    let mut list = Command::new("systemd-analyze");
    let sets = |set: &str, list: &mut Command| {
        let output = list.args(["syscall-filter", set]).output()?;
        assert!(output.status.success(), "{output:?}");
        Ok::<_, io::Error>(String::from_utf8(output.stdout).unwrap())
    };
    let (mut open, mut read) = (vec!["@system-service".to_owned()], Vec::new());
    while let Some(set) = open.pop() {
        let text = match sets(&set, &mut list) {
            Ok(text) => text,
            Err(error) => return println!("SKIPPED: systemd-analyze: {error}"),
        };
        list = Command::new("systemd-analyze");
        let names = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let (sets, calls): (Vec<&str>, Vec<&str>) =
            names.filter(|name| *name != set).partition(|name| name.starts_with('@'));
        open.extend(sets.into_iter().map(str::to_owned));
        read.extend(calls.into_iter().map(str::to_owned));
    }
    let has = |call: &str| read.iter().any(|it| it == call);
    assert!(has("recvmsg"), "{read:?}");
    // A misspelt name in the filter would refuse nothing.
    assert!(refused.iter().all(|call| has(call)), "{read:?}");
    for call in ["pidfd_getfd", "ptrace"] {
        assert!(!has(call), "{read:?}");
    }
}

/// A home below which roots may write lets them log in as the service's user.
#[test]
fn the_user_of_services_has_no_home() {
    let text = fs::read_to_string(packaged("rdmc.sysusers")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("u rdmc ")).collect();
    assert_eq!(lines, [r#"u rdmc - "rdmc receiver" /nonexistent"#]);
}

/// Without a secret they could not start.
#[test]
fn packages_neither_enable_nor_start_services() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let tables = manifest.split("\n[[package.metadata.deb.systemd-units]]\n").skip(1);
    let tables: Vec<&str> =
        tables.map(|table| table.split("\n[").next().unwrap().trim_end()).collect();
    let options = "enable = false\nstart = false\nrestart-after-upgrade = true";
    assert_eq!(tables, SERVICES.map(|service| format!("unit-name = \"{service}\"\n{options}")));
    for (script, verb) in [("rpm/preun", "disable --now"), ("rpm/postun", "try-restart")] {
        let text = fs::read_to_string(packaged(script)).unwrap();
        let all = SERVICES.map(|service| format!("{service}.service")).join(" ");
        assert!(text.contains(&format!("{verb} {all}")), "{script}");
    }
}

/// What a package's script after installation does to the user of the service, by stubs for the commands that it calls.
struct Upgrade {
    place: Place,
}

impl Upgrade {
    /// Stubs: the user has this home; the service runs or not; usermod ends with this code.
    fn with(home: &str, service_runs: bool, usermod: i32) -> Self {
        let place = Place::with(0);
        fs::create_dir(place.path("bin")).unwrap();
        let user = format!("rdmc:x:990:990:rdmc receiver:{home}:/usr/sbin/nologin");
        let active = i32::from(!service_runs);
        let log = r#"echo "$(basename "$0") $*" >>"$LOG""#;
        let systemctl = format!(r#"case "$*" in *is-active*) exit {active} ;; esac; {log}"#);
        for (name, script) in [
            ("getent", format!(r#"[ "$*" = "passwd rdmc" ] && echo "{user}""#)),
            ("usermod", format!("{log}; exit {usermod}")),
            ("systemctl", systemctl),
            ("deb-systemd-invoke", log.into()),
            ("systemd-sysusers", "exit 0".into()),
        ] {
            let path = place.path("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { place }
    }

    /// Runs the script as a package manager does. Returns its outcome, and the commands that changed something.
    fn run(&self, script: &str, arguments: &[&str]) -> (Outcome, Vec<String>) {
        let path = format!("{}:/usr/bin:/bin", self.place.path("bin").display());
        let log = self.place.path("log");
        let mut command = Command::new("sh");
        command.arg(packaged(script)).args(arguments).env("PATH", path);
        let outcome = Outcome::of(command.env("LOG", &log).output().unwrap());
        let done = fs::read_to_string(log).unwrap_or_default();
        // The rest of the .rpm's script, where systemd runs.
        let done = done.lines().filter(|line| *line != "systemctl daemon-reload");
        (outcome, done.map(str::to_owned).collect())
    }
}

const CHANGE: &str = "usermod --home /nonexistent rdmc";

/// systemd-sysusers leaves a user that exists as it is.
#[test]
fn upgrades_take_the_home_of_the_services_user() {
    for (script, arguments, manager) in [
        ("deb/postinst", ["configure", "0.1.0"], "deb-systemd-invoke"),
        ("rpm/post", ["2", ""], "systemctl"),
    ] {
        let [stop, start] =
            ["stop", "start"].map(|verb| format!("{manager} {verb} rdmc-receive.service"));
        let (stop, start) = (stop.as_str(), start.as_str());
        for (home, runs, expected) in [
            ("/var/lib/rdmc", false, &[CHANGE][..]),
            // usermod refuses users whose processes run.
            ("/var/lib/rdmc", true, &[stop, CHANGE, start]),
            ("/nonexistent", true, &[]),
            // Set by an administrator.
            ("/srv/rdmc", true, &[]),
        ] {
            let (outcome, done) = Upgrade::with(home, runs, 0).run(script, &arguments);
            assert_eq!(outcome.code, Some(0), "{script}, {home}: {outcome:?}");
            assert_eq!(done, expected, "{script}, {home}");
            assert!(!outcome.err.contains("usermod"), "{outcome:?}");
        }
        // The service starts again, and refuses this directory.
        let (outcome, done) = Upgrade::with("/var/lib/rdmc", true, 8).run(script, &arguments);
        assert_eq!(
            (outcome.code, &done[..]),
            (Some(0), &[stop, CHANGE, start].map(String::from)[..])
        );
        assert!(outcome.err.contains(CHANGE), "the remedy: {outcome:?}");
    }
}

#[test]
fn units_are_such_as_systemd_accepts() {
    for service in SERVICES {
        Unit::packaged(service).verify(service);
    }
    Unit::of_boot().verify("fetch-llama");
}
