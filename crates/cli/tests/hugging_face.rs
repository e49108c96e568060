//! Pushes of caches that the Python library huggingface_hub has made itself, and opens without a network afterwards.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::Place;

/// The Python of the environment that `./dev test` makes.
fn python() -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = top.join("target/python/bin/python");
    let has = Command::new(&python).args(["-c", "import huggingface_hub"]).output();
    if has.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("SKIPPED: needs huggingface_hub in target/python (./dev test installs it)");
    None
}

fn cache(python: &Path, what: &str, directory: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hugging_face/cache.py");
    let output = Command::new(python).arg(script).arg(what).arg(directory).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

const MODEL: &str = "models--org--name";

fn push(place: &Place, what: &str) -> crate::common::Outcome {
    let outcome = place.run(&["push", what, "--local", "2", "--dest", "copies/{host}"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome
}

#[test]
fn a_copy_of_a_cache_is_opened_without_a_network() {
    let Some(python) = python() else { return };
    let place = Place::with(0);
    fs::create_dir(place.path("hub")).unwrap();
    cache(&python, "make", &place.path("hub"));
    let expected = cache(&python, "open", &place.path("hub"));
    fs::create_dir(place.path("copies")).unwrap();
    let first = push(&place, &format!("hub/{MODEL}"));
    assert!(first.out.contains("1.95 MiB in "), "the payload once: {first:?}");
    for host in ["copies/local-1", "copies/local-2"] {
        assert_eq!(cache(&python, "open", &place.path(host)), expected);
    }
    let again = push(&place, &format!("hub/{MODEL}"));
    assert!(again.out.contains("only the list was sent"), "{again:?}");
}

#[test]
fn payloads_that_lie_elsewhere_travel_once_and_missing_ones_are_named() {
    let Some(python) = python() else { return };
    let place = Place::with(0);
    fs::create_dir(place.path("hub")).unwrap();
    cache(&python, "make", &place.path("hub"));
    let expected = cache(&python, "open", &place.path("hub"));
    // The layout with payloads of all models in one store.
    let blobs = place.path("hub").join(MODEL).join("blobs");
    let mut stored = Vec::new();
    for entry in fs::read_dir(&blobs).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let store = place.path("hub/blobs").join(&name[..2]);
        fs::create_dir_all(&store).unwrap();
        fs::rename(blobs.join(&name), store.join(&name)).unwrap();
        symlink(format!("../../blobs/{}/{name}", &name[..2]), blobs.join(&name)).unwrap();
        stored.push(store.join(&name));
    }
    fs::create_dir(place.path("copies")).unwrap();
    let first = push(&place, &format!("hub/{MODEL}"));
    assert!(first.out.contains("1.95 MiB in "), "the payload once: {first:?}");
    let copy = place.path("copies/local-2");
    assert_eq!(cache(&python, "open", &copy), expected);
    let snapshot = |name: &str| {
        let snapshots = fs::read_dir(copy.join(MODEL).join("snapshots")).unwrap();
        snapshots.map(|entry| entry.unwrap().path().join(name)).next().unwrap()
    };
    assert!(fs::read_link(snapshot("config.json")).unwrap().starts_with("../../blobs"));
    assert!(push(&place, &format!("hub/{MODEL}")).out.contains("only the list was sent"));
    fs::remove_file(&stored[0]).unwrap();
    let refused = place.run(&["push", &format!("hub/{MODEL}"), "--local", "1"]);
    let name = stored[0].file_name().unwrap().to_str().unwrap();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains(name) && refused.err.contains("does not exist"), "{refused:?}");
}
