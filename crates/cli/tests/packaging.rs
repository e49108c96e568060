//! What packages contain beside the program: completions, manual pages, the service, the manifest for Kubernetes.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::common::{Outcome, Place, await_that, has_thread, signal};

#[test]
fn completions_have_all_commands_and_options() {
    let place = Place::with(0);
    for shell in ["bash", "zsh", "fish"] {
        let outcome = place.run_words(&format!("completions {shell}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        for word in ["push", "receive", "remote-rdmc", "round-trips"] {
            assert!(outcome.out.contains(word), "{shell}: {word}");
        }
    }
    // It is a script that bash accepts.
    let script = place.run_words("completions bash").out;
    fs::write(place.path("script"), script).unwrap();
    let checked = Command::new("bash").arg("-n").arg(place.path("script")).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    place.run_words("completions cmd.exe").has_failed_with(2, "possible values");
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::with(0);
    let outcome = place.run_words("man pages/man1");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let printed: Vec<PathBuf> = outcome.out.lines().map(|line| place.path(line)).collect();
    let directory = fs::read_dir(place.path("pages/man1")).unwrap();
    let mut there: Vec<PathBuf> = directory.map(|entry| entry.unwrap().path()).collect();
    let mut sorted = printed.clone();
    sorted.sort();
    there.sort();
    assert_eq!(sorted, there, "what is printed is there");
    for command in ["rdmc", "rdmc-push", "rdmc-receive", "rdmc-bench", "rdmc-plan", "rdmc-man"] {
        let page = place.path(&format!("pages/man1/{command}.1"));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(text.contains(".TH") && text.contains(".SH NAME"), "{command}: {text}");
    }
    let push = fs::read_to_string(place.path("pages/man1/rdmc-push.1")).unwrap();
    for part in ["USUAL OPTIONS", "FOR EXPERTS", "min\\-rate", "config.toml"] {
        assert!(push.contains(part), "{part}");
    }
    place.run_words("man object").has_failed_with(1, "object");
}

/// The user of the image and of pods.
const USER: u32 = 65532;

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/rdmc-receive.service")
}

/// The command line of the unit is one that this program takes.
#[test]
fn the_service_runs_a_command_that_works() {
    let text = fs::read_to_string(unit()).unwrap().replace("\\\n", " ");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let place = Place::with(0);
    let secret = place.run_words("secret").out;
    fs::write(place.path("secret"), secret).unwrap();
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(place.path("incoming")).unwrap();
    let words: Vec<String> = line
        .split_whitespace()
        .skip(1)
        .map(|word| match word {
            "%d/secret" => "secret".into(),
            "%S/rdmc" => "incoming".into(),
            // The port may be in use here.
            word => word.replace(":7000", ":0").replace("[::]", "127.0.0.1"),
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut receiver = place.rdmc(&words).spawn().unwrap();
    let mut line = String::new();
    let stderr = receiver.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut line).unwrap();
    assert!(line.contains("listening on"), "{line}");
    signal(receiver.id(), "TERM");
    assert_eq!(receiver.wait().unwrap().code(), Some(0), "SIGTERM ends it with 0");
}

/// The values of a key of the unit.
fn unit_values(key: &str) -> Vec<String> {
    let text = fs::read_to_string(unit()).unwrap();
    let values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

/// What docs/guide/service.md says of its limits.
#[test]
fn the_service_is_limited() {
    for (key, value) in [
        ("StateDirectoryMode", "0750"),
        ("UMask", "0027"),
        ("LimitCORE", "0"),
        ("MemoryMax", "50%"),
        ("TasksMax", "4096"),
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
    ] {
        assert_eq!(unit_values(key), [value], "{key}");
    }
    let text = fs::read_to_string(unit()).unwrap();
    for example in ["#IPAddressDeny=any", "#IPAddressAllow="] {
        assert!(text.contains(&format!("\n{example}")), "a commented example: {example}");
    }
}

/// From 0, exposed to nothing, to 100; the unit has 16 in systemd 252. Versions count a little differently.
#[test]
fn systemd_counts_the_service_as_hardly_exposed() {
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=yes", "--threshold=20"]).arg(unit());
    match security.output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => println!("SKIPPED: systemd-analyze: {error}"),
    }
}

/// Nor take descriptors out of it (docs/guide/service.md). What systemd allows services in general has the first two of these calls.
#[test]
fn the_service_may_not_read_the_memory_of_other_processes() {
    let filter = unit_values("SystemCallFilter");
    let refused = ["process_vm_readv", "process_vm_writev"];
    assert_eq!(filter, ["@system-service", "~@privileged", &format!("~{}", refused.join(" "))]);
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
    // Refused by name, which says nothing if the name is wrong.
    assert!(refused.iter().all(|call| has(call)), "{read:?}");
    for call in ["pidfd_getfd", "ptrace"] {
        assert!(!has(call), "{read:?}");
    }
}

/// A home below which roots may write lets them log in as the service's user.
#[test]
fn the_user_of_the_service_has_no_home() {
    let text = fs::read_to_string(unit().with_file_name("rdmc.sysusers")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("u rdmc ")).collect();
    assert_eq!(lines, [r#"u rdmc - "rdmc receiver" /nonexistent"#]);
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
        command.arg(unit().with_file_name(script)).args(arguments).env("PATH", path);
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
            // Somebody has chosen it.
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
fn the_service_is_one_that_systemd_accepts() {
    let place = Place::with(0);
    // The program that it names is not installed here.
    let text = fs::read_to_string(unit()).unwrap().replace("/usr/bin/rdmc", "/bin/true");
    fs::write(place.path("rdmc-receive.service"), text).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(place.path("rdmc-receive.service"));
    match verify.output() {
        Ok(output) => {
            let words = String::from_utf8_lossy(&output.stderr);
            let ours: Vec<&str> =
                words.lines().filter(|line| line.contains("rdmc-receive")).collect();
            assert!(output.status.success() && ours.is_empty(), "{output:?}");
        }
        Err(error) => println!("SKIPPED: systemd-analyze: {error}"),
    }
}

/// The objects of the manifest for Kubernetes, as JSON; none where there is nothing to parse YAML with.
fn manifest() -> Option<Vec<Value>> {
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";
    let path = unit().with_file_name("kubernetes.yaml");
    let mut python = Command::new("python3");
    let output = python.args(["-c", script]).stdin(fs::File::open(path).unwrap()).output();
    match output {
        Ok(output) if output.status.success() => {
            Some(serde_json::from_slice(&output.stdout).unwrap())
        }
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("No module named") => {
            println!("SKIPPED: YAML needs python3-yaml");
            None
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("SKIPPED: YAML needs python3 and python3-yaml: {error}");
            None
        }
    }
}

/// The arguments of a job's container, with other values for some of them.
fn arguments(job: &Value, values: &[(&str, &str)]) -> Vec<String> {
    let words = job["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let words = words.iter().map(|word| word.as_str().expect("arguments are text"));
    let replaced = |word: &str| values.iter().find(|(old, _)| *old == word).map(|(_, new)| *new);
    words.map(|word| replaced(word).unwrap_or(word).to_owned()).collect()
}

/// The pods of the manifest: of the receivers and of the source.
fn pods(objects: &[Value]) -> [&Value; 2] {
    ["StatefulSet", "Job"].map(|kind| &find(objects, kind)["spec"]["template"])
}

/// The one object of this kind.
fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = objects.iter().filter(|object| object["kind"] == kind).collect();
    let [one] = found[..] else { panic!("{kind}: {found:?}") };
    one
}

/// Whether an option of a container has this value.
fn has_option(job: &Value, option: &str, value: &str) -> bool {
    arguments(job, &[]).windows(2).any(|words| words == [option, value])
}

#[test]
fn the_manifest_for_kubernetes_fits_together() {
    let Some(objects) = manifest() else { return };
    assert_eq!(objects.len(), 4, "Service, NetworkPolicy, StatefulSet, Job");
    let [service, copies, source] =
        ["Service", "StatefulSet", "Job"].map(|kind| find(&objects, kind));
    let (spec, pod) = (&copies["spec"], &copies["spec"]["template"]["spec"]);
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let labels = &spec["template"]["metadata"]["labels"];
    assert_eq!(&service["spec"]["selector"], labels);
    assert_eq!(&spec["selector"]["matchLabels"], labels);
    assert_eq!(spec["serviceName"], service["metadata"]["name"]);
    assert_eq!(spec["podManagementPolicy"], "Parallel", "none waits for the one before");
    let names = |list: &Value| -> Vec<String> {
        let names = list.as_array().into_iter().flatten();
        names
            .map(|it| it["metadata"]["name"].as_str().or(it["name"].as_str()).unwrap().to_owned())
            .collect()
    };
    for of in [copies, source] {
        let pod = &of["spec"]["template"]["spec"];
        let volumes = [names(&pod["volumes"]), names(&of["spec"]["volumeClaimTemplates"])].concat();
        assert_eq!(names(&pod["containers"][0]["volumeMounts"]), volumes);
        assert_eq!(pod["volumes"][0]["secret"]["defaultMode"], 0o400, "nobody else may read it");
    }
    // The names of the pods are those that are pushed to.
    let count = spec["replicas"].as_u64().unwrap();
    let (name, port) = (&copies["metadata"]["name"], &service["spec"]["ports"][0]["port"]);
    let (name, domain) = (name.as_str().unwrap(), spec["serviceName"].as_str().unwrap());
    let to = format!("{name}-[0-{}].{domain}:{port}", count - 1);
    assert!(has_option(source, "--to", &to), "{to}");
    assert!(has_option(copies, "--listen", &format!("0.0.0.0:{port}")));
    assert!(has_option(source, "--protect", "encrypt"));
    assert_eq!(
        pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"]
            ["matchLabels"],
        *labels
    );
}

/// The rules of the Pod Security Standard "restricted", and more.
#[test]
fn pods_of_the_manifest_may_do_little() {
    let Some(objects) = manifest() else { return };
    for pod in pods(&objects).map(|template| &template["spec"]) {
        for host in ["hostNetwork", "hostPID", "hostIPC", "hostUsers"] {
            assert!(pod[host].is_null(), "{host}");
        }
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(
            pod["securityContext"],
            json!({
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
            })
        );
        for volume in pod["volumes"].as_array().unwrap() {
            let kinds: Vec<&String> = volume.as_object().unwrap().keys().collect();
            let allowed = ["name", "persistentVolumeClaim", "secret"];
            assert!(kinds.iter().all(|kind| allowed.contains(&kind.as_str())), "{kinds:?}");
        }
        assert!(pod["initContainers"].is_null());
        for container in pod["containers"].as_array().unwrap() {
            assert_eq!(
                container["securityContext"],
                json!({
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                })
            );
            for (what, unit) in [("cpu", ""), ("memory", "Gi")] {
                let limit = container["resources"]["limits"][what].as_str();
                assert!(limit.is_some_and(|limit| limit.ends_with(unit)), "{container}");
            }
            let mounts = container["volumeMounts"].as_array().unwrap();
            let writable = mounts.iter().filter(|mount| mount["readOnly"] != true);
            assert!(writable.map(|mount| &mount["name"]).all(|name| name == "copies"));
        }
    }
}

/// Only pods of the manifest talk to each other, and look up names.
#[test]
fn the_network_policy_of_the_manifest_is_for_its_pods() {
    let Some(objects) = manifest() else { return };
    let policy = &find(&objects, "NetworkPolicy")["spec"];
    let expression = &policy["podSelector"]["matchExpressions"];
    let values: Vec<&Value> =
        pods(&objects).iter().map(|pod| &pod["metadata"]["labels"]["app"]).collect();
    assert_eq!(*expression, json!([{"key": "app", "operator": "In", "values": values}]));
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let peers = json!([{"podSelector": policy["podSelector"]}]);
    // The ports are the system's choice.
    assert_eq!(policy["ingress"], json!([{"from": peers}]));
    let names = json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]);
    assert_eq!(policy["egress"], json!([{"to": peers}, {"ports": names}]));
}

/// The last stage has the command alone, and pods that may not run as root run as its user.
#[test]
fn the_image_has_a_user_and_bases_that_can_be_pinned() {
    let text = fs::read_to_string(unit().with_file_name("Dockerfile")).unwrap();
    let (_, last) = text.rsplit_once("\nFROM ").unwrap();
    assert!(last.starts_with("scratch\n"), "{last}");
    assert!(
        last.contains(&format!("\nUSER {USER}:{USER}\n")),
        "a number: Kubernetes looks up none"
    );
    assert!(text.contains("\nARG RUST_IMAGE=rust:"), "{text}");
    assert!(text.contains("\nFROM ${RUST_IMAGE} AS build\n"), "{text}");
}

/// Arguments are visible to all users of a machine (docs/guide/security.md).
#[test]
fn no_command_in_a_document_has_a_secret_in_its_arguments() {
    let parts = ["guide", "reference", "internals"];
    let folders =
        parts.map(|part| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(part));
    let paths = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = paths.map(|entry| entry.unwrap().path());
    let documents: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    assert!(documents.iter().any(|path| path.ends_with("kubernetes.md")), "{documents:?}");
    for path in documents {
        let text = fs::read_to_string(&path).unwrap();
        for wrong in ["--from-literal", "$(rdmc secret"] {
            let found = text.lines().find(|line| line.contains(wrong));
            assert_eq!(found, None, "{}", path.display());
        }
    }
}

/// The push first, as when pods start in any order.
#[test]
fn the_pods_of_the_manifest_copy_a_file() {
    let Some(objects) = manifest() else { return };
    let place = Place::with(100_000);
    place.write_private("secret", &place.run_words("secret").out);
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let addresses = [free(), free()];
    let to = addresses.join(",");
    let pods = "rdmc-copies-[0-3].rdmc:7000";
    let values =
        [("/models/model.bin", "object"), (pods, to.as_str()), ("/secret/secret", "secret")];
    let words = arguments(find(&objects, "Job"), &values);
    let push = place.rdmc(&words.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap();
    await_that("the push runs", || has_thread(push.id(), "rdmc-signals"));
    let receivers = addresses.each_ref().map(|address| {
        let directory = address.replace(':', "-");
        fs::create_dir(place.path(&directory)).unwrap();
        let values = [
            ("0.0.0.0:7000", address.as_str()),
            ("/secret/secret", "secret"),
            ("/copies", directory.as_str()),
        ];
        let words = arguments(find(&objects, "StatefulSet"), &values);
        place.rdmc(&words.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap()
    });
    let pushed = Outcome::of(push.wait_with_output().unwrap());
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    for (receiver, address) in receivers.into_iter().zip(&addresses) {
        // As when the set is deleted.
        signal(receiver.id(), "TERM");
        let ended = Outcome::of(receiver.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(place.is_copy(&format!("{}/object", address.replace(':', "-"))));
    }
}
