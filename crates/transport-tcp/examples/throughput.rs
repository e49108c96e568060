//! Pushes blocks through loopback between two transports in two threads, with a window and credits
//! as in a replication, and the same bytes through plain blocking sockets for comparison.
//!
//! `cargo run --release -p rdmc-transport-tcp --example throughput -- [GiB] [KiB per block ...]`
//!
//! Environment: `SEGMENT_KIB`, `LOWAT_KIB` (0 = the system's), `STREAMS`, `THREADS`, `WINDOW`, `PLAIN=0`, `DIRECT=1` (blocks are copied
//! directly, and not sent through loopback), `SHARED=1` (by a channel of a shared connection), `PROTECT` (`none`, `encrypt`; both without it, and the processor time that each takes),
//! `RELAY=1` (through a third transport, and the processor time of that one alone).

use std::{
    collections::BTreeSet,
    error::Error,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use transport::{Completion, EndpointId, Region, Token, Transport};
use transport_tcp::{
    SharedConnections, StreamKeys, TcpCounters, TcpLink, TcpSettings, TcpTransport,
    check_direct_copies,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WAIT: Duration = Duration::from_secs(5);

fn main() -> Outcome<()> {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    if setting("DIRECT", 0)? != 0 {
        check_direct_copies()?;
    }
    let total_bytes = arguments.first().copied().unwrap_or(4) << 30;
    let sizes = match arguments.get(1..) {
        Some(sizes) if !sizes.is_empty() => sizes.to_vec(),
        _ => vec![64, 256, 1024],
    };
    for block_kib in sizes {
        let block_bytes = block_kib << 10;
        if setting("PLAIN", 1)? != 0 {
            let seconds = plain(total_bytes, block_bytes, None)?;
            println!("{block_kib:5} KiB  plain sockets {:6.2} GB/s", rate(total_bytes, seconds));
            let seconds = plain(total_bytes, block_bytes, Some(setting("WINDOW", 2)?))?;
            println!("{block_kib:5} KiB   with credits {:6.2} GB/s", rate(total_bytes, seconds));
        }
        let wanted = std::env::var("PROTECT").ok();
        for protection in ["none", "encrypt"] {
            if wanted.as_ref().is_none_or(|wanted| wanted == protection) {
                report(total_bytes, block_bytes, protection)?;
            }
        }
    }
    Ok(())
}

fn report(total_bytes: usize, block_bytes: usize, protection: &str) -> Outcome<()> {
    let before = processor_seconds("self")?;
    let (seconds, source, target, relay) = pushed(total_bytes, block_bytes, protection)?;
    let per_gib = |seconds: f64| seconds / (total_bytes as f64 / (1 << 30) as f64);
    let used = per_gib(processor_seconds("self")? - before);
    println!(
        "{:5} KiB  {protection:13} {:6.2} GB/s, {used:.2} s of processor per GiB{}",
        block_bytes >> 10,
        rate(total_bytes, seconds),
        relay.map(|used| format!(", {:.2} of the relay", per_gib(used))).unwrap_or_default(),
    );
    let blocks = (total_bytes / block_bytes) as f64;
    println!("           source calls per block {}", calls(&source, blocks));
    println!("           target calls per block {}", calls(&target, blocks));
    Ok(())
}

/// Returns the processor time that this process (`self`) or thread (`thread-self`) has used so far, in seconds (proc(5)).
fn processor_seconds(which: &str) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{which}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks: u64 =
        fields.get(12..14).unwrap_or_default().iter().flat_map(|t| t.parse::<u64>()).sum();
    Ok(ticks as f64 / 100.0)
}

/// Makes a link of the streams of one side, with this protection.
fn link(
    streams: Vec<TcpStream>,
    protection: &str,
    [sending, receiving]: [u8; 2],
) -> Outcome<TcpLink> {
    if protection == "none" {
        return Ok(TcpLink::new(streams)?);
    }
    let keys = || StreamKeys::new([sending; 32], [receiving; 32]);
    Ok(TcpLink::protected(streams.into_iter().map(|stream| (stream, keys())).collect())?)
}

fn rate(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}

fn calls(counters: &TcpCounters, blocks: f64) -> String {
    let per_block = |count: u64| count as f64 / blocks;
    format!(
        "{:.2} (wait {:.2}, read {:.2}, write {:.2}; of these fruitless {:.2})",
        per_block(counters.waits + counters.read_calls + counters.write_calls),
        per_block(counters.waits),
        per_block(counters.read_calls),
        per_block(counters.write_calls),
        per_block(counters.fruitless_calls),
    )
}

fn setting(name: &str, default: usize) -> Outcome<usize> {
    Ok(std::env::var(name).ok().map(|text| text.parse()).transpose()?.unwrap_or(default))
}

fn pair() -> Outcome<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let connected = TcpStream::connect(listener.local_addr()?)?;
    Ok((connected, listener.accept()?.0))
}

/// A plain copy loop: the upper bound that the kernel and the memory allow. With a window, the
/// target grants a credit for each block and the source waits for it, as in a replication, which
/// makes the comparison fair.
fn plain(total_bytes: usize, block_bytes: usize, window: Option<usize>) -> Outcome<f64> {
    let (mut source, mut target) = pair()?;
    source.set_nodelay(true)?;
    target.set_nodelay(true)?;
    let blocks = total_bytes / block_bytes;
    let begin = Instant::now();
    let sender = thread::spawn(move || -> Outcome<()> {
        let block = vec![7; block_bytes * SLOTS];
        for index in 0..blocks {
            if window.is_some() {
                source.read_exact(&mut [0; 8])?;
            }
            source.write_all(&block[index % SLOTS * block_bytes..][..block_bytes])?;
        }
        // Reads the last credits: left unread, they would reset the connection.
        source.read_exact(&mut vec![0; 8 * window.unwrap_or(0)])?;
        Ok(())
    });
    let mut block = vec![0; block_bytes * SLOTS];
    target.write_all(&vec![0; 8 * window.unwrap_or(0)])?;
    for index in 0..blocks {
        target.read_exact(&mut block[index % SLOTS * block_bytes..][..block_bytes])?;
        if window.is_some() {
            target.write_all(&[0; 8])?;
        }
    }
    sender.join().map_err(|_| "the sender panicked")??;
    Ok(begin.elapsed().as_secs_f64())
}

fn transport() -> Outcome<TcpTransport> {
    let lowat_kib = setting("LOWAT_KIB", usize::MAX)?;
    let defaults = TcpSettings::default();
    let segment_kib = setting("SEGMENT_KIB", defaults.segment_bytes >> 10)?;
    let lowat_bytes = match lowat_kib {
        usize::MAX => defaults.notsent_lowat_bytes,
        0 => None,
        kib => Some((kib << 10) as u32),
    };
    let settings = defaults
        .segment_bytes(segment_kib << 10)
        .notsent_lowat_bytes(lowat_bytes)
        .direct_copies(setting("DIRECT", 0)? != 0)
        .threads(Some(setting("THREADS", 1)?.try_into()?));
    Ok(TcpTransport::new(settings)?)
}

/// Returns the seconds that it took, the counters of both ends, and the processor time of the relay in seconds if there is one.
fn pushed(
    total_bytes: usize,
    block_bytes: usize,
    protection: &str,
) -> Outcome<(f64, TcpCounters, TcpCounters, Option<f64>)> {
    let window = setting("WINDOW", 2)?.min(SLOTS);
    let blocks = total_bytes / block_bytes;
    let (sources, mut targets) = links(protection)?;
    let mut relay = None;
    let begin = Instant::now();
    if setting("RELAY", 0)? != 0 {
        let (onward, end) = links(protection)?;
        let from = std::mem::replace(&mut targets, end);
        relay = Some(thread::spawn(move || relay_all(from, onward, blocks, block_bytes, window)));
    }
    let source = thread::spawn(move || send_all(sources, blocks, block_bytes));
    let target = receive_all(targets, blocks, block_bytes, window)?;
    let seconds = begin.elapsed().as_secs_f64();
    let source = source.join().map_err(|_| "the source panicked")??;
    let join = |relay: thread::JoinHandle<_>| relay.join().map_err(|_| "the relay panicked")?;
    Ok((seconds, source, target, relay.map(join).transpose()?))
}

/// Returns both ends of a new link.
fn links(protection: &str) -> Outcome<(TcpLink, TcpLink)> {
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..setting("STREAMS", 1)? {
        let (source, target) = pair()?;
        sources.push(source);
        targets.push(target);
    }
    Ok((link(sources, protection, [1, 2])?, link(targets, protection, [2, 1])?))
}

fn open(transport: &mut TcpTransport, mut link: TcpLink) -> Outcome<EndpointId> {
    if setting("SHARED", 0)? != 0 {
        let connection = transport.share(link)?;
        link = transport.reserve(connection, 1)?;
    }
    Ok(transport.open(link)?)
}

/// Blocks that the memory holds: more than are in flight, so that they do not all stay in the
/// cache.
const SLOTS: usize = 16;

/// Posts one send per credit.
fn send_all(link: TcpLink, blocks: usize, block_bytes: usize) -> Outcome<TcpCounters> {
    let mut transport = transport()?;
    let endpoint = open(&mut transport, link)?;
    let region = Region::from_vec(vec![7; SLOTS * block_bytes]);
    let (mut posted, mut sent, mut completions) = (0, 0, Vec::new());
    while sent < blocks {
        transport.poll(&mut completions, WAIT);
        for completion in completions.drain(..) {
            match completion {
                Completion::Control { .. } => {
                    let from = region.read(range(posted, block_bytes))?;
                    transport.post_send(endpoint, from, 0, Token(posted as u64))?;
                    posted += 1;
                }
                Completion::Sent { .. } => sent += 1,
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
    let counters = transport.counters();
    transport.close(endpoint);
    wait_for_end(&mut transport, endpoint);
    Ok(counters)
}

/// Keeps `window` receives posted, and grants a credit for each.
fn receive_all(
    link: TcpLink,
    blocks: usize,
    block_bytes: usize,
    window: usize,
) -> Outcome<TcpCounters> {
    let mut transport = transport()?;
    let endpoint = open(&mut transport, link)?;
    let region = Region::from_vec(vec![7; SLOTS * block_bytes]);
    let (mut posted, mut received, mut completions) = (0, 0, Vec::new());
    // Streams complete their blocks in any order, and each block needs its slot.
    let mut open = BTreeSet::new();
    while received < blocks {
        let oldest = open.first().copied().unwrap_or(posted);
        while posted < blocks.min(received + window).min(oldest + SLOTS) {
            open.insert(posted);
            let into = region.write(range(posted, block_bytes))?;
            transport.post_receive(endpoint, into, Token(posted as u64))?;
            transport.write_control(endpoint, &(posted as u64).to_le_bytes())?;
            posted += 1;
        }
        transport.poll(&mut completions, WAIT);
        for completion in completions.drain(..) {
            match completion {
                Completion::Received { token, .. } => {
                    open.remove(&(token.0 as usize));
                    received += 1;
                }
                // The source closes when it has sent everything; the last block may be reported
                // together with that.
                Completion::Broken { .. } if received == blocks => {
                    return Ok(transport.counters());
                }
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
    let counters = transport.counters();
    wait_for_end(&mut transport, endpoint);
    Ok(counters)
}

/// Receives as [`receive_all`] and sends each block on as [`send_all`], in order. Returns its processor time in seconds.
fn relay_all(
    from: TcpLink,
    to: TcpLink,
    blocks: usize,
    block_bytes: usize,
    window: usize,
) -> Outcome<f64> {
    let before = processor_seconds("thread-self")?;
    let mut transport = transport()?;
    let (from, to) = (open(&mut transport, from)?, open(&mut transport, to)?);
    let region = Region::from_vec(vec![7; SLOTS * block_bytes]);
    let (mut posted, mut received, mut sending, mut credits) = (0, 0, 0, 0);
    let mut completions = Vec::new();
    let (mut here, mut unsent) = (BTreeSet::new(), BTreeSet::new());
    while posted < blocks || !unsent.is_empty() {
        let oldest = unsent.first().copied().unwrap_or(posted);
        while posted < blocks.min(sending + window).min(oldest + SLOTS) {
            unsent.insert(posted);
            let into = region.write(range(posted, block_bytes))?;
            transport.post_receive(from, into, Token(posted as u64))?;
            transport.write_control(from, &(posted as u64).to_le_bytes())?;
            posted += 1;
        }
        transport.poll(&mut completions, WAIT);
        for completion in completions.drain(..) {
            match completion {
                Completion::Received { token, .. } => {
                    here.insert(token.0 as usize);
                    received += 1;
                }
                Completion::Sent { token, .. } => {
                    unsent.remove(&(token.0 as usize));
                }
                Completion::Control { .. } => credits += 1,
                // The source closes when it has sent everything.
                Completion::Broken { endpoint, .. } if endpoint == from && received == blocks => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
        while sending < credits && here.remove(&sending) {
            let block = region.read(range(sending, block_bytes))?;
            transport.post_send(to, block, 0, Token(sending as u64))?;
            sending += 1;
        }
    }
    let used = processor_seconds("thread-self")? - before;
    transport.close(to);
    wait_for_end(&mut transport, to);
    Ok(used)
}

/// Returns the range of the region that block `index` uses.
fn range(index: usize, block_bytes: usize) -> std::ops::Range<usize> {
    let start = index % SLOTS * block_bytes;
    start..start + block_bytes
}

fn wait_for_end(transport: &mut TcpTransport, awaited: EndpointId) {
    let mut completions = Vec::new();
    while !completions.iter().any(|completion| match completion {
        Completion::Closed { endpoint } | Completion::Broken { endpoint, .. } => {
            *endpoint == awaited
        }
        _ => false,
    }) {
        transport.poll(&mut completions, WAIT);
    }
}
