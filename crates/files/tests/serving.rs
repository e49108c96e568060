//! Servers and hosts that fetch, which are threads of this process.

use std::{
    fs,
    io::Read,
    net::Ipv4Addr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use files::{
    HostState, ListOptions, PushSettings, Selection, Server, ServerEvent, ServerSettings,
    receiver::{self, Fetch, Placement, ReceiveError, ReceiverSettings, Reception, VerifiedFile},
};
use rdmc::Secret;

const TIMEOUT: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// A directory with `served` in it.
struct World {
    directory: tempfile::TempDir,
    secret: Secret,
}

struct Serving {
    server: Server,
    events: Mutex<Receiver<ServerEvent>>,
}

type Fetching = JoinHandle<Result<Option<PathBuf>, ReceiveError>>;

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("served")).unwrap();
        Self { directory, secret: Secret::random().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, contents: &[u8]) {
        let path = self.path("served").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    fn serve(&self, change: impl FnOnce(&mut ServerSettings)) -> Serving {
        let mut session = PushSettings::new(Vec::new(), self.secret.clone());
        session.local_only = true;
        let mut settings = ServerSettings {
            directories: vec![self.path("served")],
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            credentials: self.secret.clone().into(),
            options: ListOptions::new(Selection::default()),
            objects_max: 8,
            session,
        };
        change(&mut settings);
        let (sender, events) = mpsc::channel();
        let server = Server::open(settings, move |event| drop(sender.send(event))).unwrap();
        Serving { server, events: Mutex::new(events) }
    }

    fn fetch(&self, serving: &Serving, path: &str, to: &str) -> Fetching {
        self.fetch_until(serving, path, to, None, &Arc::default())
    }

    fn fetch_until(
        &self,
        serving: &Serving,
        path: &str,
        to: &str,
        shares: Option<Duration>,
        stop: &Arc<AtomicBool>,
    ) -> Fetching {
        let (path, destination) = (path.to_owned(), self.path(to).to_str().unwrap().to_owned());
        let settings = ReceiverSettings {
            fetch: Some(Fetch { path, destination, shares, reports_files: false }),
            stop: Arc::clone(stop),
            ..ReceiverSettings::new("host".to_owned(), Placement::Anywhere)
        };
        self.fetch_by(serving, settings)
    }

    fn fetch_by(&self, serving: &Serving, settings: ReceiverSettings) -> Fetching {
        let (address, secret) = (serving.server.address().to_string(), self.secret.clone());
        thread::spawn(move || {
            let channel = receiver::join(&address, &secret.into(), TIMEOUT).unwrap();
            receiver::serve(channel, &settings)
        })
    }

    /// The settings of a host that reports each file of a copy.
    fn reporting(&self, path: &str, to: &str) -> ReceiverSettings {
        let (path, destination) = (path.to_owned(), self.path(to).to_str().unwrap().to_owned());
        let fetch = Fetch { path, destination, shares: None, reports_files: true };
        let settings = ReceiverSettings::new("host".to_owned(), Placement::Anywhere);
        ReceiverSettings { fetch: Some(fetch), ..settings }
    }

    /// Names of rdmc beside the copies.
    fn temporaries(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory.path()).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains(".rdmc-")).collect()
    }
}

impl Serving {
    /// Waits until a host has published its copy.
    fn await_published(&self) {
        let events = self.events.lock().unwrap();
        while !matches!(
            events.recv_timeout(TIMEOUT).unwrap(),
            ServerEvent::Host { state: HostState::Published, .. }
        ) {}
    }

    /// Waits until the session of an object has ended; returns what was sent here, and the last state of each host.
    fn closed(&self) -> (u64, Vec<(String, HostState)>) {
        let mut hosts: Vec<(String, HostState)> = Vec::new();
        loop {
            match self.events.lock().unwrap().recv_timeout(TIMEOUT).unwrap() {
                ServerEvent::Closed { sent_bytes, error: None, .. } => return (sent_bytes, hosts),
                ServerEvent::Host { name, state, .. } => {
                    hosts.retain(|(known, _)| *known != name);
                    hosts.push((name, state));
                }
                ServerEvent::Opened { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ (at / MIB) as u8).collect()
}

fn is_copy(copy: &Path, contents: &[u8]) -> bool {
    fs::read(copy).is_ok_and(|read| read == contents)
}

/// Waits for the next file that a host reports.
fn next_file(reception: &Reception) -> VerifiedFile {
    let mut file = None;
    wait_until(|| {
        file = file.take().or_else(|| reception.take_verified_file());
        file.is_some()
    });
    file.unwrap()
}

/// What a reader finds that opens a reported file where it was, or else where it is in the copy.
fn read(file: &VerifiedFile) -> Vec<u8> {
    let opened = fs::File::open(&file.at).or_else(|_| fs::File::open(&file.destination));
    let (mut opened, mut contents) = (opened.unwrap(), Vec::new());
    assert_eq!(opened.metadata().unwrap().ino(), file.inode, "{file:?}");
    opened.read_to_end(&mut contents).unwrap();
    contents
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < TIMEOUT, "it does not come");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn hosts_that_come_together_get_a_file_of_any_length() {
    let world = World::new();
    let serving = world.serve(|_| {});
    for bytes in [0, 1, MIB - 1, MIB, 5 * MIB + 3] {
        let contents = contents(bytes);
        world.write("object", &contents);
        let all: Vec<Fetching> = (0..5)
            .map(|host| world.fetch(&serving, "object", &format!("{bytes}-{host}")))
            .collect();
        for (host, fetching) in all.into_iter().enumerate() {
            let to = world.path(&format!("{bytes}-{host}"));
            assert_eq!(fetching.join().unwrap().unwrap().as_ref(), Some(&to));
            assert!(is_copy(&to, &contents), "{bytes} bytes at {host}");
        }
        let mut hosts = 0;
        while hosts < 5 {
            let (_, ended) = serving.closed();
            assert!(ended.iter().all(|(_, state)| *state == HostState::Published), "{ended:?}");
            hosts += ended.len();
        }
    }
    assert_eq!(world.temporaries(), Vec::<String>::new());
    serving.server.close(TIMEOUT);
}

#[test]
fn a_directory_arrives_with_everything_and_what_a_host_has_is_not_sent() {
    let world = World::new();
    for file in 0..30 {
        world.write(&format!("tree/in/{file}"), &contents(file * 100_000));
    }
    let serving = world.serve(|_| {});
    let path = world.path("served/tree");
    let path = path.to_str().unwrap();
    fs::create_dir_all(world.path("copy-1/in")).unwrap();
    fs::write(world.path("copy-1/own"), "stays").unwrap();
    let all: Vec<Fetching> =
        (0..3).map(|host| world.fetch(&serving, path, &format!("copy-{host}"))).collect();
    all.into_iter().for_each(|fetching| drop(fetching.join().unwrap().unwrap()));
    for host in 0..3 {
        for file in 0..30 {
            let copy = world.path(&format!("copy-{host}/in/{file}"));
            assert!(is_copy(&copy, &contents(file * 100_000)), "{}", copy.display());
        }
    }
    assert!(is_copy(&world.path("copy-1/own"), b"stays"));
    // Again, after one file has changed.
    world.write("tree/in/7", b"new");
    world.fetch(&serving, path, "copy-1").join().unwrap().unwrap();
    assert!(is_copy(&world.path("copy-1/in/7"), b"new"));
    serving.server.close(TIMEOUT);
}

#[test]
fn hosts_that_come_later_and_after_others_have_left_get_it_too() {
    let world = World::new();
    let contents = contents(24 * MIB);
    world.write("object", &contents);
    let serving = world.serve(|settings| settings.session.rate_max = Some(60 << 20));
    let stop = Arc::<AtomicBool>::default();
    let mut all = Vec::new();
    for host in 0..6 {
        let to = format!("copy-{host}");
        all.push(match host {
            1 => world.fetch_until(&serving, "object", &to, None, &stop),
            _ => world.fetch(&serving, "object", &to),
        });
        thread::sleep(Duration::from_millis(100));
    }
    // One in the middle of the chain.
    stop.store(true, Ordering::Relaxed);
    for (host, fetching) in all.into_iter().enumerate() {
        let outcome = fetching.join().unwrap();
        assert!(outcome.is_ok() || host == 1, "{host}: {outcome:?}");
        assert!(host == 1 || is_copy(&world.path(&format!("copy-{host}")), &contents), "{host}");
    }
    serving.server.close(TIMEOUT);
}

#[test]
fn what_is_not_served_is_refused_and_says_nothing_of_what_is_there() {
    let world = World::new();
    world.write("object", b"contents");
    fs::write(world.path("secret"), "secret").unwrap();
    let serving = world.serve(|_| {});
    let secret = world.path("secret");
    for path in ["../secret", secret.to_str().unwrap(), "none", ""] {
        let outcome = world.fetch(&serving, path, "copy").join().unwrap();
        let outcome = if path.is_empty() { continue } else { outcome };
        let Err(ReceiveError::Aborted { reason, .. }) = outcome else {
            panic!("{path}: {outcome:?}")
        };
        assert!(reason.contains("serve"), "{reason}");
        assert!(!world.path("copy").exists());
    }
    // A receiver that was told to take what a push brings.
    let settings = ReceiverSettings::new("host".into(), Placement::Anywhere);
    let address = serving.server.address().to_string();
    let channel = receiver::join(&address, &world.secret.clone().into(), TIMEOUT).unwrap();
    let refused = receiver::serve(channel, &settings).unwrap_err().to_string();
    assert!(refused.contains("use `rdmc fetch`"), "{refused}");
    serving.server.close(TIMEOUT);
}

#[test]
fn a_host_goes_on_from_another_server_where_one_has_ended() {
    let world = World::new();
    let contents = contents(40 * MIB);
    world.write("object", &contents);
    let slow = world.serve(|settings| settings.session.rate_max = Some(20 << 20));
    let fetching = world.fetch(&slow, "object", "copy");
    let is_partial = || world.temporaries().iter().any(|name| !name.ends_with("lock"));
    wait_until(is_partial);
    thread::sleep(Duration::from_millis(700));
    slow.server.close(TIMEOUT);
    let ended = fetching.join().unwrap().unwrap_err();
    assert!(ended.keeps_partial(), "{ended}");
    assert!(!world.path("copy").exists() && is_partial());
    let other = world.serve(|_| {});
    world.fetch(&other, "object", "copy").join().unwrap().unwrap();
    assert!(is_copy(&world.path("copy"), &contents));
    assert_eq!(world.temporaries(), Vec::<String>::new());
    other.server.close(TIMEOUT);
}

#[test]
fn one_copy_leaves_the_server_where_hosts_share_theirs() {
    let world = World::new();
    let contents = contents(9 * MIB + 5);
    for file in 0..9 {
        world.write(&format!("tree/{file}"), &contents[file * MIB..]);
    }
    world.write("object", &contents);
    let serving = world.serve(|_| {});
    for object in ["object", "tree"] {
        let stop = Arc::<AtomicBool>::default();
        let copy = |host: usize| world.path(&format!("{object}-{host}"));
        // Longer than the test, and not at all after the others have begun.
        let shares = Some(TIMEOUT * 10);
        let first = world.fetch_until(&serving, object, &format!("{object}-0"), shares, &stop);
        wait_until(|| copy(0).exists());
        let later = (1..4).map(|host| {
            world.fetch_until(&serving, object, &format!("{object}-{host}"), shares, &stop)
        });
        let later: Vec<Fetching> = later.collect();
        (1..4).for_each(|host| wait_until(|| copy(host).exists()));
        let last = world.fetch(&serving, object, &format!("{object}-4"));
        assert_eq!(last.join().unwrap().unwrap(), Some(copy(4)));
        stop.store(true, Ordering::Relaxed);
        for (host, fetching) in [first].into_iter().chain(later).enumerate() {
            assert_eq!(fetching.join().unwrap().unwrap(), Some(copy(host)), "it is published");
        }
        let (sent_bytes, hosts) = serving.closed();
        assert_eq!(hosts.len(), 5);
        let bytes: usize = match object {
            "object" => contents.len(),
            _ => (0..9).map(|file| contents.len() - file * MIB).sum(),
        };
        assert_eq!(sent_bytes, bytes as u64, "{object}");
        for host in 0..5 {
            match object {
                "object" => assert!(is_copy(&copy(host), &contents)),
                _ => (0..9).for_each(|file| {
                    assert!(is_copy(&copy(host).join(file.to_string()), &contents[file * MIB..]));
                }),
            }
        }
    }
    serving.server.close(TIMEOUT);
}

#[test]
fn a_host_that_has_shared_long_enough_leaves_once_nobody_gets_its_copy() {
    let world = World::new();
    let contents = contents(20 * MIB);
    world.write("object", &contents);
    let serving = world.serve(|settings| settings.session.rate_max = Some(40 << 20));
    let shares = Some(Duration::from_millis(50));
    let first = world.fetch_until(&serving, "object", "first", shares, &Arc::default());
    let second = world.fetch(&serving, "object", "second");
    assert!(first.join().unwrap().is_ok() && second.join().unwrap().is_ok());
    assert!(is_copy(&world.path("first"), &contents) && is_copy(&world.path("second"), &contents));
    serving.server.close(TIMEOUT);
}

#[test]
fn a_file_is_reported_as_soon_as_it_is_verified_and_whatever_comes_after_it() {
    let world = World::new();
    let (first, second) = (contents(3 * MIB), contents(20 * MIB));
    world.write("tree/in/first", &first);
    world.write("tree/second", &second);
    world.write("tree/empty", b"");
    world.write("object", &first);
    // The second takes 40 s.
    let slow = world.serve(|settings| settings.session.rate_max = Some(1 << 19));
    let settings = world.reporting("tree", "copy");
    let (reception, stop) = (Arc::clone(&settings.reception), Arc::clone(&settings.stop));
    let fetching = world.fetch_by(&slow, settings);
    let reported = [next_file(&reception), next_file(&reception)];
    let paths = reported.clone().map(|file| (file.path, file.bytes));
    assert_eq!(paths, [("empty".into(), 0), ("in/first".into(), 3 << 20)]);
    assert!(!world.path("copy").exists() && reception.published_path().is_none());
    for (file, contents) in reported.iter().zip([&[][..], &first]) {
        assert!(file.at.starts_with(world.directory.path()) && fs::metadata(&file.at).is_ok());
        assert_eq!(file.destination, world.path("copy").join(&file.path));
        assert!(read(file) == contents, "{file:?}");
    }
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(fetching.join().unwrap(), Err(ReceiveError::Stopped)));
    assert_eq!(reception.take_verified_file(), None, "the second is not complete");
    slow.server.close(TIMEOUT);

    // What an earlier session has left is compared, and reported as well.
    let serving = world.serve(|_| {});
    let settings = world.reporting("tree", "copy");
    let reception = Arc::clone(&settings.reception);
    let fetching = world.fetch_by(&serving, settings);
    let again = [next_file(&reception), next_file(&reception)];
    assert_eq!(again, reported, "where they were");
    let last = next_file(&reception);
    assert_eq!(last.path, Path::new("second"));
    assert!(read(&last) == second);
    fetching.join().unwrap().unwrap();
    assert!(again.iter().all(|file| read(file) == fs::read(&file.destination).unwrap()));
    assert_eq!(reception.take_verified_file(), None, "each once");
    // A file that is no tree.
    for to in ["single", "single", "missing/single"] {
        let settings = world.reporting("object", to);
        let reception = Arc::clone(&settings.reception);
        let fetching = world.fetch_by(&serving, settings);
        if to.starts_with("missing") {
            assert!(fetching.join().unwrap().is_err());
            assert_eq!(reception.take_verified_file(), None);
            continue;
        }
        let file = next_file(&reception);
        assert_eq!((file.path.as_path(), &file.destination), (Path::new(to), &world.path(to)));
        assert!(read(&file) == first);
        fetching.join().unwrap().unwrap();
        assert_eq!(reception.take_verified_file(), None, "once");
    }
    serving.server.close(TIMEOUT);
}

#[test]
fn every_file_is_reported_once_by_every_host_and_one_that_stays_unread_at_the_end() {
    let world = World::new();
    let of = |file: usize| contents(file * 50_000);
    for file in 0..40 {
        world.write(&format!("tree/{}/{file}", file % 3), &of(file));
    }
    let served = world.path("served/tree");
    fs::hard_link(served.join("0/39"), served.join("name")).unwrap();
    fs::File::create(served.join("hole")).unwrap().set_len(3 << 20).unwrap();
    std::os::unix::fs::symlink("0/39", served.join("link")).unwrap();
    let serving = world.serve(|settings| settings.session.rate_max = Some(100 << 20));
    // One has some files already, of which short ones come again in chunks with others.
    let there = ["0/3", "0/9", "1/37", "1/4", "2/2", "2/8"];
    (0..3).for_each(|at| fs::create_dir_all(world.path(&format!("copy-0/{at}"))).unwrap());
    for name in there {
        let (from, to) = (served.join(name), world.path("copy-0").join(name));
        fs::copy(&from, &to).unwrap();
        let modified = fs::metadata(&from).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&to).unwrap().set_modified(modified).unwrap();
    }
    let hosts = (0..3).map(|host| {
        let settings = world.reporting("tree", &format!("copy-{host}"));
        let reception = Arc::clone(&settings.reception);
        (reception, world.fetch_by(&serving, settings))
    });
    for (host, (reception, fetching)) in hosts.collect::<Vec<_>>().into_iter().enumerate() {
        let copy = world.path(&format!("copy-{host}"));
        let mut paths = Vec::new();
        for _ in 0..42 {
            let file = next_file(&reception);
            let expected = match file.path.file_name().unwrap().to_str().unwrap() {
                "hole" => vec![0; 3 << 20],
                "name" => of(39),
                number => of(number.parse().unwrap()),
            };
            assert!(read(&file) == expected && file.bytes == expected.len() as u64, "{file:?}");
            if host == 0 && there.map(Path::new).contains(&&*file.path) {
                assert!(is_copy(&copy.join("2/38"), &of(38)), "nothing has read it before");
            }
            paths.push(file.path);
        }
        fetching.join().unwrap().unwrap();
        assert_eq!(reception.take_verified_file(), None);
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 42);
    }
    serving.server.close(TIMEOUT);
}

#[test]
fn a_host_that_has_a_directory_already_shares_it() {
    let world = World::new();
    let file = contents(3 * MIB);
    world.write("tree/file", &file);
    let serving = world.serve(|_| {});
    let stop = Arc::default();
    world.fetch(&serving, "tree", "first").join().unwrap().unwrap();
    assert!(serving.closed().0 >= file.len() as u64);
    let shares = Some(Duration::from_secs(3600));
    let sharing = world.fetch_until(&serving, "tree", "first", shares, &stop);
    serving.await_published();
    world.fetch(&serving, "tree", "second").join().unwrap().unwrap();
    assert!(is_copy(&world.path("second/file"), &file));
    stop.store(true, Ordering::Relaxed);
    let _ = sharing.join().unwrap();
    assert_eq!(serving.closed().0, 0, "the first host has sent it");
    serving.server.close(TIMEOUT);
}
