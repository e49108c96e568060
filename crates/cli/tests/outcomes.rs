//! How commands end: exit codes, standard output and error, and which files are written.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::common::{Outcome, Place, RDMC, await_that, signal};

/// A push to hosts of this machine: `dead` ones have a launcher that fails.
fn push(place: &Place, hosts: &str, more: &[&str]) -> Command {
    let launcher =
        "sh -c 'case $0 in dead*) echo no route to $0 >&2; exit 255;; esac; exec \"$@\"' {host}";
    let dest = place.path("{host}/copy");
    for host in hosts.split(',') {
        let _ = fs::create_dir(place.path(host));
    }
    let to = ["push", "object", "--to", hosts, "--dest", dest.to_str().unwrap()];
    let how = ["--launcher", launcher, "--remote-rdmc", RDMC, "--advertise", "127.0.0.1"];
    place.rdmc(&[&to[..], &how, more].concat())
}

fn outcome(mut command: Command) -> Outcome {
    Outcome::of(command.output().unwrap())
}

/// The exit code is in the JSON object as well, which is the only thing on standard output.
fn ends_with(outcome: &Outcome, code: i32) -> Value {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    let json = outcome.json();
    assert_eq!(json["exit_code"], code, "{outcome:?}");
    json
}

#[test]
fn every_outcome_of_a_push_has_its_exit_code_and_json_object() {
    let place = Place::with(100_000);
    let json = ends_with(&outcome(push(&place, "a,b", &["--json"])), 0);
    assert_eq!(json["hosts"][1]["state"], "published");

    let some = outcome(push(&place, "a,dead", &["--json"]));
    let json = ends_with(&some, 3);
    assert!(json["hosts"][1]["error"].as_str().unwrap().contains("no route to dead"), "{json}");
    assert!(some.err.contains("dead: ") && !some.err.contains("a: "), "{some:?}");

    let none = outcome(push(&place, "dead1,dead2", &["--json"]));
    assert_eq!(ends_with(&none, 1)["hosts"][0]["state"], "failed");
    assert!(none.err.contains("dead1: ") && none.err.contains("dead2: "), "{none:?}");

    let full = outcome(push(&place, "a", &["--json", "--trace", "/dev/full"]));
    assert_eq!(ends_with(&full, 4)["hosts"][0]["state"], "published");
    assert!(full.err.contains("the trace is not complete"), "{full:?}");
    // Failures of hosts take precedence.
    let full = outcome(push(&place, "a,dead", &["--json", "--trace", "/dev/full"]));
    ends_with(&full, 3);
    assert!(full.err.contains("the trace is not complete"), "{full:?}");
}

#[test]
fn failures_before_anything_is_sent_print_one_json_object() {
    let place = Place::with(10);
    fs::write(place.path("empty"), "# nobody\n").unwrap();
    place.write_private("bad", "1234");
    for (arguments, code, words) in [
        ("push missing --local 1 --json", 1, "missing does not exist"),
        ("push /dev/null --local 1 --json", 1, "not a regular file"),
        ("push object --json", 2, "required arguments"),
        ("push object --local 0 --json", 2, "--local"),
        ("push object --no-such-option --json", 2, "--no-such-option"),
        ("push object --local 2 --dest copy --json", 2, "put {host} into --dest"),
        ("push object --to a,a --json", 2, "named twice"),
        ("push object --hosts-file empty --json", 2, "no hosts"),
        ("push object --hosts-file missing --json", 1, "missing: No such file"),
        ("push object --to a:7000 --json", 2, "--secret-file"),
        ("push object --to a:7000 --secret-file bad --json", 2, "64 hexadecimal digits"),
        ("push object --to a:7000 --secret-file missing --json", 1, "missing: No such file"),
        ("push object --local 1 --fabric shm --protect encrypt --json", 2, "does not encrypt"),
        ("push object --local 1 --fabric no-such --json", 1, "no-such"),
        ("push object --local 1 --trace missing/trace --json", 1, "--trace missing/trace"),
        ("push object --local 1 --trace object --json", 2, "would overwrite"),
        ("bench --local 1 --size 0 --json", 2, "at least 1 byte"),
        ("bench --local 1 --fabric shm --protect encrypt --json", 2, "does not encrypt"),
        ("bench --to a,b,a --json", 2, "named twice"),
        ("bench --json", 2, "required arguments"),
        ("bench a --json", 2, "rdmc bench --to HOSTS"),
        ("push object --local 1 --encrypt --json", 2, "`--protect encrypt`"),
        ("push object --local 1 --drop-slower-than 1gbit --json", 2, "`--min-rate RATE`"),
        ("bench --local 1 --trace missing/trace --json", 1, "--trace missing/trace"),
        ("plan --members 4 --json", 2, "--blocks"),
        ("plan --members 4 --blocks 4 --racks 1 --json", 2, "has 1 members"),
        ("plan --in-switch missing --json", 1, "missing: No such file"),
        ("plan --in-switch empty --json", 2, "there are no switches"),
        ("switch show nowhere:1 --json", 2, "--cert"),
        ("switch host --socket missing --json", 1, "missing"),
    ] {
        let outcome = place.run_words(arguments);
        outcome.has_failed_with(code, words);
        let json = ends_with(&outcome, code);
        assert!(json["error"].as_str().unwrap().contains(words), "{arguments}: {json}");
    }
}

#[test]
fn an_interrupted_push_prints_one_json_object_and_exits_with_130() {
    for name in ["INT", "TERM", "HUP"] {
        let place = Place::with(20 << 20);
        let arguments = ["push", "object", "--local", "2", "--block-size", "1KiB", "--json"];
        let push = place.start_and_await_blocks(&arguments, "local-1");
        signal(push.id(), name);
        let outcome = Outcome::of(push.wait_with_output().unwrap());
        let json = ends_with(&outcome, 130);
        assert_eq!(json["error"], "interrupted", "{name}: {json}");
        assert_eq!(json["hosts"].as_array().unwrap().len(), 2);
        assert!(outcome.err.contains("0 of 2 hosts have a copy"), "{outcome:?}");
    }
}

/// Of programs that run the command: they may have a wrapper between, so that the process need not be its parent.
#[test]
fn a_push_ends_with_the_process_that_it_watches() {
    let place = Place::with(20 << 20);
    let mut watched = Command::new("sleep").arg("3600").spawn().unwrap();
    let process = watched.id().to_string();
    let arguments = [
        "push",
        "object",
        "--local",
        "2",
        "--block-size",
        "1KiB",
        "--json",
        "--end-with",
        &process,
    ];
    let push = place.start_and_await_blocks(&arguments, "local-1");
    watched.kill().unwrap();
    watched.wait().unwrap();
    let json = ends_with(&Outcome::of(push.wait_with_output().unwrap()), 130);
    assert_eq!(json["error"], "interrupted");

    // No process has the first of these numbers: it has ended before. The second is of none.
    for (number, code, words) in [("2147483647", 130, "interrupted"), ("0", 2, "not a process")] {
        let outcome =
            place.run(&["push", "object", "--local", "1", "--json", "--end-with", number]);
        let json = ends_with(&outcome, code);
        assert!(json["error"].as_str().unwrap().contains(words), "{json}");
    }
}

/// Also while it waits for its own arguments.
#[test]
fn a_command_interrupted_before_it_begins_prints_one_json_object() {
    let place = Place::with(10);
    assert!(Command::new("mkfifo").arg(place.path("hosts")).status().unwrap().success());
    for command in ["push object --hosts-file hosts --json", "bench --hosts-file hosts --json"] {
        let waiting = place.rdmc(&command.split(' ').collect::<Vec<_>>()).spawn().unwrap();
        // It is started when signals are caught; one that comes while that is set up would be lost.
        await_that("signals have a thread", || {
            let threads = fs::read_dir(format!("/proc/{}/task", waiting.id())).unwrap();
            let names =
                threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
            names.flatten().any(|name| name.trim() == "rdmc-signals")
        });
        signal(waiting.id(), "INT");
        let json = ends_with(&Outcome::of(waiting.wait_with_output().unwrap()), 130);
        assert_eq!(json["error"], "interrupted");
    }
}

/// Output without a reader changes no exit code, and hosts that failed are named on standard error.
#[test]
fn exit_codes_do_not_depend_on_standard_output() {
    let place = Place::with(100_000);
    for (hosts, code) in [("a", 0), ("a,dead", 3), ("dead", 1)] {
        for more in [&[][..], &["--json"], &["--quiet"]] {
            for out in ["closed pipe", "/dev/full", "closed"] {
                let mut command = push(&place, hosts, more);
                let ended = match out {
                    "closed pipe" => {
                        let (reader, writer) = std::io::pipe().unwrap();
                        drop(reader);
                        command.stdout(writer);
                        outcome(command)
                    }
                    "/dev/full" => {
                        command.stdout(File::options().write(true).open("/dev/full").unwrap());
                        outcome(command)
                    }
                    _ => outcome(through_shell(&command, "exec \"$@\" >&-")),
                };
                assert_eq!(ended.code, Some(code), "{hosts} {more:?} {out}: {ended:?}");
                let names_it = ended.err.contains("no route to dead");
                assert_eq!(names_it, hosts.contains("dead"), "{out}: {ended:?}");
            }
        }
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure_unless_its_reader_closed_the_pipe() {
    let place = Place::with(10);
    let plan = place.rdmc(&["plan", "--members", "64", "--blocks", "1000"]);
    for words in [&["--version"][..], &["push", "--help"]] {
        let full = outcome(through_shell(&place.rdmc(words), "exec \"$@\" >/dev/full"));
        full.has_failed_with(4, "standard output: No space left on device");
    }
    let full = outcome(through_shell(&plan, "exec \"$@\" >/dev/full"));
    full.has_failed_with(4, "standard output: No space left on device");
    // A reader that closes the pipe early is no failure.
    let enough = outcome(through_shell(&plan, "{ \"$@\"; echo $? >&2; } | head -1"));
    assert!(enough.err.trim() == "0" && enough.out.lines().count() == 1, "{enough:?}");
    let secret = outcome(through_shell(&place.rdmc(&["secret"]), "exec \"$@\" >/dev/full"));
    secret.has_failed_with(4, "standard output");
}

/// The same command as `"$@"` of a shell's script.
fn through_shell(command: &Command, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    shell.current_dir(command.get_current_dir().unwrap());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[test]
fn inputs_are_never_overwritten() {
    let place = Place::with(300_000);
    place.write_private("secret", &place.run_words("secret").out);
    fs::write(place.path("hosts"), "a\n").unwrap();
    fs::hard_link(place.path("object"), place.path("hard")).unwrap();
    symlink("object", place.path("soft")).unwrap();
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d/old"), "an old copy").unwrap();
    let precious = |name: &str| fs::read(place.path(name)).unwrap();
    fs::create_dir_all(place.path("to/d")).unwrap();
    fs::write(place.path("to/d/old"), "a copy").unwrap();
    let all = ["object", "secret", "hosts", "d/old", "to/d/old"];
    let before = all.map(precious);
    for arguments in [
        "push object --local 1 --trace object",
        "push object --local 1 --trace ./d/../object",
        "push object --local 1 --trace hard",
        "push hard --local 1 --trace object",
        "push object --local 1 --trace soft",
        "push object --hosts-file hosts --trace hosts",
        "push object --to a:1 --secret-file secret --trace secret",
        "push object --local 1 --dest d/old --trace d/old",
        "push object --local 1 --dest d/new --trace d/new",
        "push d --local 1 --trace d/old",
        "push d object --local 1 --dest to --trace d/old",
        "push d --local 1 --dest to --trace to/d/old",
        "push object --follow --local 1 --dest to/o --trace object",
        "push object --follow --local 1 --dest object",
        "push object --local 1 --dest object",
        "push object --local 1 --dest hard",
        "demo object --receivers 1 --trace soft",
        "bench --hosts-file hosts --trace hosts",
        "bench a:1 --secret-file secret --trace secret",
        "receive --listen 127.0.0.1:0 --dir d --secret-file secret --trace secret",
    ] {
        let outcome = place.run_words(arguments);
        assert_eq!(outcome.code, Some(2), "{arguments}: {outcome:?}");
    }
    for more in ["--json >>object", ">>object", "--trace /dev/fd/3 3>>object"] {
        let script = format!("exec \"$@\" {more}");
        let push = place.rdmc(&["push", "object", "--local", "1"]);
        let ended = outcome(through_shell(&push, &script));
        assert_eq!(ended.code, Some(2), "{more}: {ended:?}");
    }
    for more in ["--trace object", "--dest object"] {
        let push = place.rdmc(&["push", "-", "--local", "1"]);
        let ended = outcome(through_shell(&push, &format!("exec \"$@\" {more} <object")));
        assert_eq!(ended.code, Some(2), "{more}: {ended:?}");
    }
    assert!(all.map(precious) == before);
    assert!(!place.path("d/new").exists() && !place.path("rdmc-local").exists());
}

#[test]
fn outputs_are_untouched_until_everything_is_checked() {
    let place = Place::with(10);
    fs::write(place.path("precious"), "precious").unwrap();
    for arguments in [
        "push missing --local 1 --trace precious",
        "push object --to a,a --trace precious",
        "push object --hosts-file missing --trace precious",
        "push object --local 2 --dest one --trace precious",
        "push object --to a:1 --trace precious",
        "push object --to a --launcher ssh --trace precious",
        "bench --local 1 --size 0 --trace precious",
        "bench a:1 --trace precious",
        "demo missing --trace precious",
        "demo --size 9999TiB --trace precious",
        "receive --listen 127.0.0.1:0 --dir missing --secret-file missing --trace precious",
    ] {
        let outcome = place.run_words(arguments);
        assert!(matches!(outcome.code, Some(1 | 2)), "{arguments}: {outcome:?}");
        assert_eq!(fs::read(place.path("precious")).unwrap(), b"precious", "{arguments}");
    }
    // Then it is replaced, links and all.
    symlink("precious", place.path("link")).unwrap();
    assert_eq!(place.run_words("bench --local 1 --size 1MiB --trace link").code, Some(0));
    assert!(fs::read_to_string(place.path("precious")).unwrap().starts_with('['));
}

#[test]
fn endless_inputs_are_refused_and_pipes_are_read() {
    let place = Place::with(10);
    for arguments in [
        "push object --to a:1 --secret-file /dev/zero",
        "push object --to a:1 --cert /dev/zero --key /dev/zero --ca /dev/zero",
        "plan --in-switch /dev/zero",
        "receive --listen 127.0.0.1:0 --dir . --secret-file /dev/zero",
        "switch show a:1 --cert /dev/zero --key /dev/zero --ca /dev/zero",
    ] {
        place.run_words(arguments).has_failed_with(1, "longer than");
    }
    // Invalid lists of hosts are invalid arguments.
    fs::write(place.path("binary"), [b'a', 0xff]).unwrap();
    for (arguments, words) in [
        ("push object --hosts-file /dev/zero", "longer than"),
        ("bench --hosts-file /dev/zero", "longer than"),
        ("push object --hosts-file binary", "binary is not UTF-8 text"),
    ] {
        place.run_words(arguments).has_failed_with(2, words);
    }
    let mut push = push(&place, "a", &[]);
    push.args(["--hosts-file", "/dev/stdin"]);
    let script = "printf 'b\nc\n' | exec \"$@\"";
    let ended = outcome(through_shell(&push, script));
    // They have no directory.
    ended.has_failed_with(3, "c: the directory");
    assert!(place.is_copy("a/copy"), "{ended:?}");
}

#[test]
fn exit_codes_are_documented() {
    let help = Place::with(0).run_words("help push").out;
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/exit-codes.md");
    let page = fs::read_to_string(page).unwrap();
    for code in ["0", "1", "2", "3", "4", "130"] {
        assert!(
            help.lines().any(|line| line.starts_with(&format!("  {code:<5}"))),
            "{code}: {help}"
        );
        assert!(page.lines().any(|line| line.starts_with(&format!("| {code} |"))), "{code}");
    }
}
