//! Replicates a file through switches that copy: the sender's link carries it once.
//!
//! At the switch `rdmc switch run` has to run, and at each host `rdmc switch join`. Queue pairs are in
//! userspace, which takes CAP_NET_RAW:
//!
//! ```text
//! replicate receive SOCKET INTERFACE ADDRESS DIRECTORY
//! replicate send SOCKET INTERFACE ADDRESS FILE DAEMON...
//! ```
//!
//! Receivers take one file and end.

use std::{
    error::Error,
    fs::{self, File},
    io::{Read, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use control::host::{
    Acceptance, Invited, NewGroup, Terms,
    client::{GroupEvent, Host, Listener, ListenerEvent},
};
use endpoint::{Endpoint, Event, Peer};
use roce::rc::{Kind, RequesterConfig, Status, Work};
use tokio::time::timeout;

type Outcome<T> = Result<T, Box<dyn Error>>;

const SERVICE: &str = "replicate";
/// Length of all messages but the last.
const MESSAGE_BYTES: u64 = 256 << 10;
/// Messages that may be open.
const OPEN: u64 = 8;
/// Timeout without progress.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which daemons' events are polled.
const TICK: Duration = Duration::from_millis(5);
/// The reason with which members leave when they have stored the file.
const STORED: &str = "stored";

fn config() -> RequesterConfig {
    // A member that fails is removed from the group long before.
    RequesterConfig { retries: 1000, ..RequesterConfig::default() }
}

/// The file's length and name, for the offer.
fn file_header(path: &Path) -> Outcome<(u64, Vec<u8>)> {
    let bytes = fs::metadata(path)?.len();
    let name = path.file_name().and_then(|name| name.to_str()).ok_or("its name is not UTF-8")?;
    Ok((bytes, [&bytes.to_be_bytes()[..], name.as_bytes()].concat()))
}

fn read_file_header(data: &[u8]) -> Outcome<(u64, &str)> {
    let (bytes, name) = data.split_first_chunk().ok_or("the offer names no file")?;
    let name = std::str::from_utf8(name)?;
    // It stays in the directory.
    let is_plain = Path::new(name).file_name().is_some_and(|last| last == name);
    if is_plain { Ok((u64::from_be_bytes(*bytes), name)) } else { Err("that is a path".into()) }
}

/// Sends a file. Returns how many have stored it, and why others have not.
pub async fn send(
    host: &Host,
    mut endpoint: Endpoint,
    address: IpAddr,
    path: &Path,
    daemons: Vec<String>,
) -> Outcome<(usize, Vec<String>)> {
    let (bytes, application_data) = file_header(path)?;
    let qpn = endpoint.draw_number();
    let invited = |daemon| Invited { daemon, service: SERVICE.to_owned() };
    let group = NewGroup {
        sender: address,
        sender_mac: Some(endpoint.mac()),
        sender_qpn: qpn,
        mtu_bytes: config().mtu_bytes,
        members: daemons.into_iter().map(invited).collect(),
        regions: Vec::new(),
        application_data,
        continues: true,
        all_notifications: false,
    };
    let mut group = host.create(&group).await?;
    let made = group.created();
    let peer = Peer { address: made.virtual_address, qpn: made.id, next_hop: None };
    endpoint.connect(qpn, peer, config(), made.psn_first, 0);
    let mut file = File::open(path)?.take(bytes);
    let (mut posted, mut done, mut progressed) = (0, 0, Instant::now());
    let (mut stored, mut failed) = (0, Vec::new());
    let messages = bytes.div_ceil(MESSAGE_BYTES);
    loop {
        while posted < messages.min(done + OPEN) {
            let mut part = Vec::new();
            file.by_ref().take(MESSAGE_BYTES).read_to_end(&mut part)?;
            let (kind, length) = (Kind::Send, part.len() as u32);
            let work = Work { id: posted, kind, bytes: length, immediate: None };
            endpoint.send(qpn, work, part)?;
            posted += 1;
        }
        for event in events(&mut endpoint, done < messages)? {
            let Event::Sent { status, .. } = event else { continue };
            if status != Status::Done {
                return Err(format!("message {done}: {status:?}").into());
            }
            (done, progressed) = (done + 1, Instant::now());
        }
        match soon(group.next(), done < messages).await.transpose()? {
            Some(GroupEvent::MemberFailed { reason, .. }) if reason.ends_with(STORED) => {
                stored += 1
            }
            Some(GroupEvent::MemberFailed { reason, .. }) => failed.push(reason),
            Some(GroupEvent::Ended(_)) => return Ok((stored, failed)),
            Some(GroupEvent::Trouble(_)) | None => {}
        }
        if progressed.elapsed() > PATIENCE {
            return Err("no member has answered for too long".into());
        }
    }
}

/// The daemon's next event, if there is one within a tick; without waiting if there is other work.
async fn soon<T>(next: impl Future<Output = T>, is_busy: bool) -> Option<T> {
    tokio::task::yield_now().await;
    timeout(if is_busy { Duration::ZERO } else { TICK }, next).await.ok()
}

/// Completions within a tick.
fn events(endpoint: &mut Endpoint, is_busy: bool) -> Outcome<Vec<Event>> {
    let (mut all, until) = (Vec::new(), Instant::now() + TICK);
    while all.is_empty() {
        endpoint.progress(if is_busy { Duration::from_millis(1) } else { Duration::ZERO })?;
        all.extend(std::iter::from_fn(|| endpoint.completed()));
        if !is_busy || Instant::now() > until {
            break;
        }
    }
    Ok(all)
}

/// Receives a file into a directory, where it appears when it is complete.
pub async fn receive(
    host: &Host,
    mut endpoint: Endpoint,
    address: IpAddr,
    directory: &Path,
) -> Outcome<PathBuf> {
    let mut listener = host.listen(SERVICE).await?;
    let (offer, terms) = offered(&mut listener).await?;
    let (bytes, name) = match read_file_header(&terms.application_data) {
        Ok(header) => header,
        Err(error) => {
            listener.refuse(offer, &error.to_string()).await?;
            return Err(error);
        }
    };
    let (path, part) = (directory.join(name), directory.join(format!(".{name}.part")));
    let mut file = File::create(&part)?;
    let peer = Peer { address: terms.sender, qpn: terms.sender_qpn, next_hop: None };
    let qpn = endpoint.queue_pair(peer, config(), 0, terms.psn_first);
    for id in 0..OPEN {
        endpoint.receive(qpn, id, vec![0; MESSAGE_BYTES as usize])?;
    }
    listener.accept(offer, &Acceptance::new(address, endpoint.mac(), qpn)).await?;
    let (mut left, mut progressed) = (bytes, Instant::now());
    while left > 0 {
        for event in events(&mut endpoint, true)? {
            let Event::Arrived { arrival, memory, .. } = event else { continue };
            let arrived = memory.get(..arrival.bytes as usize).ok_or("no SEND")?;
            left = left.checked_sub(arrived.len() as u64).ok_or("more than the file has")?;
            file.write_all(arrived)?;
            endpoint.receive(qpn, 0, memory)?;
            progressed = Instant::now();
        }
        if let Some(ListenerEvent::Ended { reason, .. }) =
            soon(listener.next(), true).await.transpose()?
        {
            return Err(reason.into());
        }
        if progressed.elapsed() > PATIENCE {
            return Err("nothing has come for too long".into());
        }
    }
    file.sync_all()?;
    fs::rename(part, &path)?;
    listener.leave(offer, STORED).await?;
    last(&mut endpoint).await?;
    Ok(path)
}

async fn offered(listener: &mut Listener) -> Outcome<(u64, Terms)> {
    loop {
        if let ListenerEvent::Offer { offer, terms } = listener.next().await? {
            return Ok((offer, terms));
        }
    }
}

/// The last ACK may be lost: retransmitted packets are acknowledged for a while.
async fn last(endpoint: &mut Endpoint) -> Outcome<()> {
    for _ in 0..100 {
        events(endpoint, false)?;
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [what, socket, interface, address, path, daemons @ ..] = &arguments[..] else {
        return Err(
            "use: receive SOCKET INTERFACE ADDRESS DIRECTORY, or send ... FILE DAEMON...".into()
        );
    };
    let address = address.parse()?;
    let endpoint = Endpoint::open(interface, address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let host = Host::at(Path::new(socket));
        if *what == "receive" {
            println!("{}", receive(&host, endpoint, address, Path::new(path)).await?.display());
            return Ok(());
        }
        let daemons = daemons.iter().map(|&daemon| daemon.to_owned()).collect();
        let (stored, failed) = send(&host, endpoint, address, Path::new(path), daemons).await?;
        println!("{stored} have it");
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
    })
}
