//! What packages contain beside the program: completions, manual pages, services, manifests for Kubernetes.

mod fetching_pods;
mod manifests;
mod units;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::Place;

/// The user of the image and of pods.
const USER: u32 = 65532;

/// A file of what packages are made of.
fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

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

/// The last stage has the command alone, and pods that may not run as root run as its user.
#[test]
fn the_image_has_a_user_and_bases_that_can_be_pinned() {
    let text = fs::read_to_string(packaged("Dockerfile")).unwrap();
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
