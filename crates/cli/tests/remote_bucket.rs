//! `rdmc push s3://...`, from the S3 server of moto.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::common::{Outcome, Place};

/// A server of S3 that is ended when this is dropped, and what goes to it.
struct Moto {
    child: Child,
    endpoint: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    /// With the objects that `tests/remote/moto.py` makes; `None` where moto is not installed.
    fn start() -> Option<Self> {
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = top.join("../../target/python/bin/python");
        let has = Command::new(&python).args(["-c", "import moto.server, boto3"]).output();
        if !has.is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: needs moto[server] in target/python (./dev test installs it)");
            return None;
        }
        let mut command = Command::new(&python);
        command.arg(top.join("tests/remote/moto_server.py")).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let endpoint = lines.map_while(Result::ok).find(|line| line.starts_with("http://"));
        let endpoint = endpoint.expect("the server prints its URL");
        Some(Self { child, endpoint })
    }

    fn push(&self, place: &Place, words: &str, key: &str) -> Outcome {
        let words: Vec<&str> = words.split(' ').collect();
        let mut command =
            place.rdmc(&[&["push"], &words[..], &["--local", "3", "--mkdir"]].concat());
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env("AWS_ACCESS_KEY_ID", "user");
        command.env("AWS_SECRET_ACCESS_KEY", key).env("AWS_REGION", "us-east-1");
        Outcome::of(command.output().unwrap())
    }
}

fn contents(path: PathBuf) -> Vec<u8> {
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As the server's script makes it.
fn made(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 31 + seed) % 251) as u8).collect()
}

#[test]
fn objects_in_a_bucket_are_pushed_alone_and_as_a_directory() {
    let Some(moto) = Moto::start() else { return };
    let place = Place::with(0);
    let one = moto.push(&place, "s3://models/llama/weights.bin --dest {host}/", "secret");
    assert_eq!(one.code, Some(0), "{one:?}");
    let all = moto.push(&place, "s3://models/llama --dest {host}/all --exclude *.tmp", "secret");
    assert_eq!(all.code, Some(0), "{all:?}");
    let inside = moto.push(&place, "s3://models/llama/ --dest {host}/inside", "secret");
    assert_eq!(inside.code, Some(0), "{inside:?}");
    let together = "s3://models/llama --dest {host}/together --together";
    let together = moto.push(&place, together, "secret");
    assert_eq!(together.code, Some(0), "{together:?}");
    for host in ["local-1", "local-2", "local-3"] {
        let at = |path: &str| contents(place.path(host).join(path));
        let weights = made(1, 20_000_000);
        for path in [
            "weights.bin",
            "all/llama/weights.bin",
            "inside/weights.bin",
            "together/llama/weights.bin",
        ] {
            assert!(at(path) == weights, "{path}");
        }
        assert_eq!(at("all/llama/nested/a b+c.json"), made(2, 1000));
        assert_eq!(at("inside/notes.tmp"), made(3, 10));
        assert!(!place.path(host).join("all/llama/notes.tmp").exists());
        // Made by a tool that has directories.
        assert!(place.path(host).join("inside/nested").is_dir());
    }
    assert!(place.temporaries().is_empty());
    let again = moto.push(&place, "s3://models/llama/ --dest {host}/inside --json", "secret");
    assert_eq!(again.code, Some(0), "{again:?}");
    let kept = &again.json()["hosts"][0]["changes"]["kept"];
    assert_eq!(kept.as_u64(), Some(4), "{again:?}");
    for outcome in [one, all, inside, together, again] {
        assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
    }
}

#[test]
fn what_is_not_in_a_bucket_is_named_with_a_remedy() {
    let Some(moto) = Moto::start() else { return };
    let place = Place::with(0);
    for url in ["s3://models/other", "s3://none/llama", "s3://models/llama/weights"] {
        let outcome = moto.push(&place, &format!("{url} --dest {{host}}/"), "secret");
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(
            outcome.err.contains(url) && outcome.err.contains("AWS_ACCESS_KEY_ID"),
            "{outcome:?}"
        );
    }
}

#[test]
fn without_credentials_the_message_says_where_they_are_looked_for() {
    let place = Place::with(0);
    let mut command = place.rdmc(&["push", "s3://bucket/key", "--local", "1"]);
    let others = ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"];
    for name in others {
        command.env_remove(name);
    }
    // Where an instance of a cloud would answer.
    command.env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9").env("HOME", place.directory.path());
    let outcome = Outcome::of(command.output().unwrap());
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.err.contains("s3://bucket/key: ") && outcome.err.contains("~/.aws"),
        "{outcome:?}"
    );
}
