//! `rdmc push hf://...`, from a server that answers as the hub does.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use testing::{HubFile, HubRepository, WebServer};

use crate::common::{Outcome, Place};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const BYTES: usize = 20_000_000;

/// With the object of a place as its weights.
fn repository(place: &Place) -> HubRepository {
    HubRepository {
        name: "org/model".into(),
        commit: COMMIT.into(),
        files: vec![
            HubFile::small("config.json", b"{}"),
            HubFile::large("weights.bin", b"old"),
            HubFile::large("model.safetensors", &place.contents),
            HubFile::small("nested/tokenizer.json", b"[1]"),
        ],
        token: Some("secret".into()),
        large_files: None,
    }
}

fn push(place: &Place, server: &WebServer, words: &str) -> Outcome {
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = place.rdmc(&[&["push"], &words[..], &["--local", "3", "--mkdir"]].concat());
    command.env("HF_ENDPOINT", server.url("")).env("HF_TOKEN", "secret");
    Outcome::of(command.output().unwrap())
}

fn serve(repository: HubRepository) -> WebServer {
    WebServer::start(move |request| repository.answer(request))
}

#[test]
fn a_model_is_fetched_once_for_all_hosts() {
    let place = Place::with(BYTES);
    let repository = repository(&place);
    let server = serve(repository.clone());
    let outcome = push(&place, &server, "hf://org/model@v1 --dest {host} --exclude *.bin");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for host in ["local-1", "local-2", "local-3"] {
        assert!(place.is_copy(&format!("{host}/model/model.safetensors")));
        assert_eq!(fs::read(place.path(host).join("model/nested/tokenizer.json")).unwrap(), b"[1]");
        assert!(!place.path(host).join("model/weights.bin").exists());
    }
    assert!(server.sent() <= BYTES as u64 * 102 / 100, "{} bytes sent", server.sent());
    assert!(place.temporaries().is_empty());
    // Again: no file is asked for.
    let files = |server: &WebServer| {
        let requests = server.requests();
        requests.iter().filter(|request| request.target.contains("/resolve/")).count()
    };
    let before = files(&server);
    let again = push(&place, &server, "hf://org/model@v1 --dest {host} --exclude *.bin");
    assert_eq!((again.code, files(&server)), (Some(0), before), "{again:?}");
    // Another revision, whose weights have the same length.
    let mut other = place.contents.clone();
    other[BYTES / 2] ^= 1;
    let files = vec![HubFile::large("model.safetensors", &other)];
    let server = serve(HubRepository { commit: COMMIT.replace('0', "f"), files, ..repository });
    let newer = push(&place, &server, "hf://org/model --dest {host}");
    assert_eq!(newer.code, Some(0), "{newer:?}");
    assert!(fs::read(place.path("local-2/model/model.safetensors")).unwrap() == other);
    for outcome in [outcome, again, newer] {
        assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
    }
}

#[test]
fn contents_with_another_digest_are_not_published() {
    let place = Place::with(BYTES);
    let mut repository = repository(&place);
    repository.files[2].contents[BYTES - 1] ^= 1;
    let server = serve(repository);
    let outcome = push(&place, &server, "hf://org/model --dest {host}");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let expected = "hf://org/model/model.safetensors: the bytes that came have the sha256";
    assert!(outcome.err.contains(expected), "{outcome:?}");
    for host in ["local-1", "local-2", "local-3"] {
        assert!(!place.path(host).join("model/model.safetensors").exists());
    }
}

/// The Python of the environment that `./dev test` makes.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/python");
    let has = Command::new(&python).args(["-c", "import huggingface_hub"]).output();
    if has.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("SKIPPED: needs huggingface_hub in target/python (./dev test installs it)");
    None
}

#[test]
fn the_hubs_own_library_opens_a_copy_without_a_network() {
    const OPEN: &str = "
import sys
from huggingface_hub import scan_cache_dir, snapshot_download
for revision in ['main', sys.argv[2]]:
    print(snapshot_download('org/model', revision=revision, cache_dir=sys.argv[1]))
info = scan_cache_dir(sys.argv[1])
assert not info.warnings, info.warnings
print(info.size_on_disk)
";
    let Some(python) = python() else { return };
    let place = Place::with(BYTES);
    let server = serve(repository(&place));
    let outcome = push(&place, &server, "hf://org/model --hub-cache --dest {host}/hub");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(server.sent() <= BYTES as u64 * 102 / 100, "{} bytes sent", server.sent());
    let hub = place.path("local-2/hub");
    let mut command = Command::new(python);
    command.args(["-c", OPEN]).arg(&hub).arg(COMMIT).env("HF_HUB_OFFLINE", "1");
    let opened = Outcome::of(command.output().unwrap());
    assert_eq!(opened.code, Some(0), "{opened:?}");
    let snapshot = hub.join(format!("models--org--model/snapshots/{COMMIT}"));
    let expected = BYTES + b"{}old[1]".len();
    let shown = snapshot.display();
    assert_eq!(opened.out, format!("{shown}\n{shown}\n{expected}\n"), "{opened:?}");
    assert!(fs::read(snapshot.join("model.safetensors")).unwrap() == place.contents);
    assert_eq!(fs::read(snapshot.join("nested/tokenizer.json")).unwrap(), b"[1]");
    let refused =
        push(&place, &server, "hf://org/model --hub-cache --dest {host}/hub --exclude *.bin");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let refused = push(&place, &server, "https://host/a --hub-cache --dest {host}/hub");
    assert_eq!(refused.code, Some(2), "{refused:?}");
}
