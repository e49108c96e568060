//! The command line.

use std::process::{Command, Output};

fn simulate(arguments: &str) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rdmc-simulate"))
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

#[test]
fn the_trace_of_one_run_is_printed() {
    let (output, text) = simulate("--seed 0 --trace 50");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("the last 50 events") && text.contains("application at 0"), "{text}");
}

#[test]
fn wrong_arguments_are_refused() {
    for arguments in [
        "--canary none",
        "--pushes --canary misplaces-block",
        "--teams --canary misplaces-block",
        "--teams --pushes",
        "--creations --teams",
        "--copies --pushes",
        "--copies --members 2..3",
        "--copies --canary misplaces-block",
        "--wire --members 2..3",
        "--wire --teams",
        "--wire --canary misplaces-block",
        "--members 0..3",
        "--members 5..3",
        "--scenario nowhere.json",
    ] {
        let (output, text) = simulate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {text}");
    }
}

/// Runs seeds of a kind of scenario; and one that fails with this planted bug again, by the command that is printed.
/// `event` is in its trace.
fn assert_replayed(option: &str, members: &str, canary: &str, event: &str) {
    let (output, text) = simulate(&format!("{option} --seed 5 --count 20 {members}"));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("20 runs, ") && text.contains("runs per second"), "{text}");
    let (output, text) = simulate(&format!("{option} --canary {canary} --count 300 --jobs 1"));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(event), "{text}");
    let again = text.lines().find_map(|line| line.split_once("; again: ./dev sim ")).unwrap().1;
    assert!(again.contains(option), "{again}");
    let (output, repeated) = simulate(again);
    assert_eq!(output.status.code(), Some(1), "{repeated}");
    let violation =
        |text: &str| text.lines().find(|it| it.starts_with("VIOLATION: ")).map(str::to_owned);
    assert!(violation(&text).is_some(), "{text}");
    assert_eq!(violation(&text), violation(&repeated));
}

#[test]
fn every_kind_of_scenario_is_run_shown_and_replayed() {
    let members = "--members 2..4";
    assert_replayed("", members, "misplaces-block", "simulated network");
    assert_replayed("--pushes", members, "forgets-publish", "simulated network");
    assert_replayed("--teams", members, "drops-notice", "simulated network");
    assert_replayed("--copies", "", "links-early", "session of version");
    assert_replayed("--wire", "", "loses-completion", "connection 0");
    assert_replayed("--creations", members, "loses-answers", "Deliver {");
}

/// With `--help` appended, a command is only parsed.
#[test]
fn the_nightly_commands_are_understood() {
    let steps = concat!(env!("CARGO_MANIFEST_DIR"), "/../nightly/steps");
    let steps = std::fs::read_to_string(steps).unwrap();
    let commands: Vec<&str> =
        steps.lines().filter_map(|it| Some(it.split_once("./dev sim ")?.1)).collect();
    assert_eq!(commands.len(), 6, "groups, pushes, teams, copies, wires and creations");
    for command in commands {
        let command = command.replace("{}", "7").replace("{seed}", "7");
        let (output, text) = simulate(&format!("{command} --help"));
        assert!(output.status.success(), "{command}: {text}");
    }
}
