//! What packages contain beside the program: completions, manual pages, the service.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{Place, signal};

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
