//! Options from the configuration file and from variables.

use std::fs;

use crate::common::{Outcome, Place, RDMC};

/// Runs with this file, and these variables.
fn run(place: &Place, file: &str, variables: &[(&str, &str)], words: &str) -> Outcome {
    fs::create_dir_all(place.path("xdg/rdmc")).unwrap();
    fs::write(place.path("xdg/rdmc/config.toml"), file).unwrap();
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut command = place.rdmc(&words);
    command.env_remove("RDMC_CONFIG").env("XDG_CONFIG_HOME", place.path("xdg"));
    command.envs(variables.iter().copied());
    Outcome::of(command.output().unwrap())
}

/// The line of usage names options, too, which the error is not about.
#[test]
fn an_unknown_option_is_not_said_to_be_configured() {
    let place = Place::with(10);
    let mut push = place.rdmc(&["push", "object", "--to", "a", "--nonsense"]);
    push.env("RDMC_LAUNCHER", "ssh {host}");
    let refused = Outcome::of(push.output().unwrap());
    refused.has_failed_with(2, "--nonsense");
    assert!(!refused.err.contains("variable"), "{refused:?}");
}

#[test]
fn what_never_changes_is_configured_once() {
    let place = Place::with(100_000);
    let file = "launcher = \"no-such-launcher {host}\"\nprogress = \"none\"\n";
    let push = |variables, words| run(&place, file, variables, words);
    push(&[], "push object --to a").has_failed_with(1, "\"no-such-launcher\" is not installed");
    push(&[], "bench --to a").has_failed_with(1, "\"no-such-launcher\" is not installed");
    push(&[], "doctor --to a").has_failed_with(1, "\"no-such-launcher\" is not installed");
    let variable = [("RDMC_LAUNCHER", "other-launcher {host}")];
    push(&variable, "push object --to a").has_failed_with(1, "\"other-launcher\" is not installed");
    let words = ["push", "object", "--to", "a", "--launcher", "third-launcher {host}"];
    let mut given = place.rdmc(&words);
    given.env("RDMC_LAUNCHER", "other-launcher {host}");
    let given = Outcome::of(given.output().unwrap());
    given.has_failed_with(1, "\"third-launcher\" is not installed");
    // Launchers are not for this machine.
    let local = push(&variable, "push object --local 1");
    assert_eq!(local.code, Some(0), "{local:?}");
    assert!(place.is_copy("rdmc-local/local-1/object"));
}

#[test]
fn errors_in_the_configuration_are_named() {
    let place = Place::with(10);
    let push = "push object --local 1 --json";
    let outcome = run(&place, "retry = 1\ncolour = 1\n", &[], push);
    outcome.has_failed_with(2, "config.toml, line 2: there is no key \"colour\"; the keys are ");
    let error = outcome.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("line 2"), "{error}");
    let outcome = run(&place, "", &[("RDMC_RATE", "fast")], push);
    outcome.has_failed_with(2, "variable RDMC_RATE: invalid value 'fast'");
    // An option that is invalid only together with others.
    let outcome = run(&place, "switch = \"tor:4790\"\n", &[], push);
    outcome.has_failed_with(2, "config.toml, line 1: --switch=tor:4790");
    run(&place, "colour = 1\n", &[], "doctor").has_failed_with(2, "config.toml, line 1: ");
    let missing = run(&place, "", &[("RDMC_CONFIG", "missing.toml")], push);
    missing.has_failed_with(2, "missing.toml: No such file");
    assert!(!place.path("rdmc-local").exists());
    // Help is there all the same.
    let help = run(&place, "colour = 1\n", &[], "push --help");
    assert_eq!(help.code, Some(0), "{help:?}");
    assert!(help.out.contains("RDMC_REMOTE_RDMC"), "{help:?}");
}

/// What a receiver does is said by its root, or by its own command line.
#[test]
fn receivers_read_no_configuration() {
    let place = Place::with(100_000);
    // The configuration at the host is an error, which a receiver that read it would end with.
    let launcher = "env RDMC_CONFIG=missing.toml RDMC_RATE=fast HOST={host}";
    let dest = place.path("copy");
    let to = ["push", "object", "--to", "a", "--dest", dest.to_str().unwrap()];
    let how = ["--launcher", launcher, "--remote-rdmc", RDMC, "--advertise", "127.0.0.1"];
    let outcome = place.run(&[&to[..], &how].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(place.is_copy("copy"));
    let listen = "receive --listen 127.0.0.1:0 --dir .";
    run(&place, "secret-file = \"secret\"\n", &[], listen).has_failed_with(2, "--secret-file");
    run(&place, "colour = 1\n", &[], listen).has_failed_with(2, "--secret-file");
}

#[test]
fn a_trace_does_not_replace_the_configuration() {
    let place = Place::with(10);
    let words = "push object --local 1 --trace xdg/rdmc/config.toml";
    let outcome = run(&place, "retry = 1\n", &[], words);
    outcome.has_failed_with(2, "would overwrite the configuration");
    let kept = fs::read_to_string(place.path("xdg/rdmc/config.toml")).unwrap();
    assert_eq!(kept, "retry = 1\n");
}
