//! `rdmc push --slurm` with programs in place of `srun` and `scontrol`. `./dev slurm test` has the real ones.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::common::{Outcome, Place, RDMC};

/// Runs tasks on this machine; those of the node `bad` fail. Each call is a line of `calls`.
const SRUN: &str = r#"#!/bin/sh
while :; do
  case $1 in --nodelist=*) list=${1#*=} ;; --nodes=*) count=${1#*=} ;; --*) ;; *) break ;; esac
  shift
done
echo "$count $list" >>calls
input=$(cat)
status=0
for node in $(echo "$list" | tr , ' '); do
  if [ "$node" = bad ]; then
    echo "execve(): $1: No such file or directory" >&2
    echo "srun: error: bad: task 0: Exited with exit code 2" >&2
    status=2
  else
    printf '%s\n' "$input" | SLURMD_NODENAME=$node "$@" &
  fi
done
wait
exit "$status"
"#;

const SCONTROL: &str = "#!/bin/sh
echo 'SwitchName=left Level=0 LinkSpeed=1 Nodes=n[1-2]'
echo 'SwitchName=right Level=0 LinkSpeed=1 Nodes=n3,bad'
";

fn push(place: &Place, nodes: Option<&str>, more: &[&str]) -> Outcome {
    for (name, text) in [("srun", SRUN), ("scontrol", SCONTROL)] {
        fs::create_dir_all(place.path("bin")).unwrap();
        let path = place.path("bin").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let how = ["push", "object", "--slurm", "--remote-rdmc", RDMC, "--timeout", "600"];
    let mut push: Command = place.rdmc(&[&how[..], more].concat());
    let path = std::env::var("PATH").unwrap();
    push.env("PATH", format!("{}:{path}", place.path("bin").display()));
    push.env_remove("SLURM_JOB_NODELIST").env_remove("SLURMD_NODENAME");
    push.envs(nodes.map(|nodes| ("SLURM_JOB_NODELIST", nodes)));
    Outcome::of(push.output().unwrap())
}

#[test]
fn all_nodes_of_a_job_are_started_by_one_command() {
    let place = Place::with(100_000);
    let dest = place.path("copies/{host}/object").to_str().unwrap().to_owned();
    let more = ["--dest", &dest, "--mkdir", "--json", "--algorithm", "chain-of-racks"];
    let outcome = push(&place, Some("n[1-3]"), &more);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert!((1..=3).all(|node| place.is_copy(&format!("copies/n{node}/object"))));
    assert_eq!(outcome.json()["algorithm"], "chain-of-racks");
    assert_eq!(fs::read_to_string(place.path("calls")).unwrap(), "3 n1,n2,n3\n");
}

/// The template is filled in, and never guessed from a path that has the node's name elsewhere.
#[test]
fn names_of_nodes_may_be_anywhere_in_paths() {
    let place = Place::with(1000);
    let dest = place.path("data/{host}").to_str().unwrap().to_owned();
    let outcome = push(&place, Some("a,data"), &["--dest", &dest, "--mkdir"]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(place.is_copy("data/a") && place.is_copy("data/data"), "{outcome:?}");
}

/// It is tried once more by itself, and the others do not wait.
#[test]
fn a_node_that_cannot_start_is_named() {
    let place = Place::with(100_000);
    let dest = place.path("{host}.copy").to_str().unwrap().to_owned();
    let outcome = push(&place, Some("n[1-2],bad"), &["--dest", &dest, "--json"]);
    outcome.has_failed_with(3, "bad: its receiver could not be started: execve()");
    assert!(outcome.err.contains("[before: srun: error: bad: task 0"), "{outcome:?}");
    assert!(place.is_copy("n1.copy") && place.is_copy("n2.copy"), "{outcome:?}");
    assert_eq!(fs::read_to_string(place.path("calls")).unwrap(), "3 n1,n2,bad\n1 bad\n");
    let single = push(&place, Some("n2"), &["--dest", &dest, "--quiet"]);
    assert_eq!(single.code, Some(0), "{single:?}");
}

#[test]
fn outside_of_a_job_it_is_refused() {
    let place = Place::with(10);
    push(&place, None, &[]).has_failed_with(2, "--slurm works only in a Slurm job");
    push(&place, Some("n[1-"), &[]).has_failed_with(2, "SLURM_JOB_NODELIST: ");
    push(&place, Some("n1"), &["--to", "a"]).has_failed_with(2, "cannot be used with");
}
