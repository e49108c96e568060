//! Repositories on a hub of models.

use std::{sync::Arc, time::Duration};

use remote::{Entry, Kind, Location, Remote, RemoteError, Settings};
use testing::{HubFile, HubRepository, WebAnswer, WebServer};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn repository() -> HubRepository {
    let weights: Vec<u8> = (0..100_000).map(|at| (at % 251) as u8).collect();
    HubRepository {
        name: "org/model".into(),
        commit: COMMIT.into(),
        files: vec![
            HubFile::small("config.json", b"{}"),
            HubFile::large("model.safetensors", &weights),
            HubFile::small("nested/a/tokenizer.json", b"[1]"),
            HubFile::large("nested/same.safetensors", &weights),
        ],
        token: None,
        large_files: None,
    }
}

fn open(server: &WebServer, url: &str, as_hub_cache: bool) -> Result<Remote, RemoteError> {
    let environment = [("HF_ENDPOINT", server.url("")), ("HF_TOKEN", "token".into())];
    let environment =
        environment.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    let settings = Settings { patience: Duration::from_secs(3), environment, as_hub_cache };
    Remote::open(&Location::parse(url).unwrap(), &settings)
}

fn read(remote: &Remote, number: usize) -> Vec<u8> {
    let (mut read, mut checking) = (Vec::new(), remote.checking(number));
    let Kind::File { bytes, .. } = remote.entries()[number].kind else { panic!("a link") };
    let mut take = |bytes: &[u8]| {
        read.extend_from_slice(bytes);
        checking.iter_mut().for_each(|checking| checking.update(bytes));
    };
    remote.read(number, 0..bytes, &mut take).unwrap();
    checking.map_or(Ok(()), |checking| checking.finish()).unwrap();
    read
}

fn paths(remote: &Remote) -> Vec<&str> {
    remote.entries().iter().map(|entry| entry.path.as_str()).collect()
}

#[test]
fn a_snapshot_is_listed_and_read_with_its_digests() {
    let repository = repository();
    let files = repository.files.clone();
    let server = WebServer::start(move |request| repository.answer(request));
    let remote = open(&server, "hf://org/model@v1", false).unwrap();
    assert!(remote.is_directory());
    for (number, file) in files.iter().enumerate() {
        assert_eq!(remote.entries()[number].path, file.path);
        assert_eq!(read(&remote, number), file.contents);
    }
    remote.look_again().unwrap();
    // Times follow from contents: the same in every repository, and other ones for others.
    let times: Vec<i64> = remote.entries().iter().map(|entry| entry.modified_ns).collect();
    assert!(times[1] == times[3] && times[0] != times[2], "{times:?}");
    let versions: Vec<String> = (0..4).map(|number| remote.version(number)).collect();
    assert!(versions[1] == versions[3] && versions[0] != versions[2], "{versions:?}");
    let part = open(&server, "hf://org/model/nested", false).unwrap();
    assert_eq!(
        (paths(&part), part.is_directory()),
        (vec!["a/tokenizer.json", "same.safetensors"], true)
    );
    let one = open(&server, "hf://org/model/config.json", false).unwrap();
    assert_eq!((paths(&one), one.is_directory()), (vec![""], false));
}

#[test]
fn the_token_goes_to_the_hub_and_not_to_where_it_redirects() {
    let mut repository = HubRepository { token: Some("token".into()), ..repository() };
    let files = repository.files.clone();
    let contents = files.clone();
    let elsewhere = Arc::new(WebServer::start(move |request| {
        let file = contents.iter().find(|file| request.target.contains(&file.digest)).unwrap();
        request.answer(&file.contents, "\"other\"")
    }));
    repository.large_files = Some(elsewhere.url(""));
    let server = WebServer::start(move |request| repository.answer(request));
    let remote = open(&server, "hf://org/model", false).unwrap();
    for _ in 0..2 {
        assert_eq!(read(&remote, 1), files[1].contents);
    }
    let asked = elsewhere.requests();
    assert_eq!(asked.len(), 2);
    assert!(
        asked.iter().all(|request| !request.headers.contains_key("authorization")),
        "{asked:?}"
    );
    let is_resolve = |target: &str| target.contains("/resolve/");
    let resolved = server.requests().iter().filter(|request| is_resolve(&request.target)).count();
    assert_eq!(resolved, 1);
}

#[test]
fn a_cache_has_contents_by_number_and_links_to_them() {
    let repository = repository();
    let files = repository.files.clone();
    let server = WebServer::start(move |request| repository.answer(request));
    let remote = open(&server, "hf://org/model", true).unwrap();
    let of = |path: &str| -> (usize, &Entry) {
        let found = remote.entries().iter().enumerate().find(|(_, entry)| entry.path == path);
        found.unwrap_or_else(|| panic!("{path} in {:?}", paths(&remote)))
    };
    assert_eq!(remote.entries().len(), 4 + 3 + 1);
    assert_eq!(read(&remote, of("refs/main").0), COMMIT.as_bytes());
    for file in &files {
        let Kind::Link { target } = &of(&format!("snapshots/{COMMIT}/{}", file.path)).1.kind else {
            panic!("{}", file.path);
        };
        let up = "../".repeat(2 + file.path.matches('/').count());
        assert_eq!(*target, format!("{up}blobs/{}", file.digest));
        assert_eq!(read(&remote, of(&format!("blobs/{}", file.digest)).0), file.contents);
    }
}

#[test]
fn what_is_not_there_is_named_with_a_remedy() {
    let server = WebServer::start(move |request| repository().answer(request));
    for (url, expected) in [
        ("hf://org/other", "HF_TOKEN"),
        ("hf://org/model@none", "HF_TOKEN"),
        ("hf://org/model/absent.bin", "check the spelling"),
    ] {
        let error = open(&server, url, false).unwrap_err().to_string();
        assert!(error.contains(url) && error.contains(expected), "{error}");
        assert!(!error.contains("token\""), "{error}");
    }
}

#[test]
fn a_hostile_hub_is_refused() {
    type Fault = fn(&str) -> Option<WebAnswer>;

    let cases: [(Fault, &str); 6] = [
        (|target| target.contains("/revision/").then(|| WebAnswer::text("{}")), "not understood"),
        (
            |target| target.contains("/revision/").then(|| WebAnswer::text(r#"{"sha":"../x"}"#)),
            "names no commit",
        ),
        (
            |target| {
                target.contains("/tree/").then(|| {
                    WebAnswer::text(r#"[{"type":"file","oid":"xyz","size":1,"path":"a"}]"#)
                })
            },
            "no digest of a",
        ),
        (
            |target| {
                target.contains("/tree/").then(|| {
                    WebAnswer::text("[]").with("Link", "<http://127.0.0.1:1/x>; rel=\"next\"")
                })
            },
            "another server",
        ),
        (
            |target| {
                let list = format!(
                    r#"[{{"type":"file","oid":"{}","size":1,"path":"a"}}]"#,
                    "0".repeat(40)
                );
                let next = format!("<{target}>; rel=\"next\"");
                target.contains("/tree/").then(|| WebAnswer::text(list).with("Link", &next))
            },
            "too many files",
        ),
        (
            |target| target.contains("/tree/").then(|| WebAnswer::text(" ".repeat(65 << 20))),
            "longer than",
        ),
    ];
    for (fault, expected) in cases {
        let repository = repository();
        let server = WebServer::start(move |request| {
            fault(&request.target).unwrap_or_else(|| repository.answer(request))
        });
        let error = open(&server, "hf://org/model", false).unwrap_err().to_string();
        assert!(error.contains("hf://org/model: ") && error.contains(expected), "{error}");
    }
}
