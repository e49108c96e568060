//! One buffer from one member to all others, in one process, so that it can be read in one sitting.
//!
//! `cargo run --release -p rdmc --example broadcast -- [MEMBERS] [MIB] [BLOCK_KIB] [ALGORITHM]`
//!
//! In real use each member is a process on a host of its own, and calls what `join` calls here.

use std::{
    env,
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rdmc::{
    Algorithm, Context, ContextSettings, Failure, Group, GroupSettings, Incoming, Region, Secret,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let members: u32 = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let mib: usize = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let block_kib: u64 = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let algorithm: Algorithm =
        arguments.next().map_or(Ok(Algorithm::BinomialPipeline), |text| text.parse())?;

    // What all members must agree on: a secret, who they are, and the group's settings.
    let secret = Secret::random()?;
    let contexts = (0..members)
        .map(|_| {
            Context::start(ContextSettings::new((Ipv4Addr::LOCALHOST, 0).into(), secret.clone()))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<SocketAddr> = contexts.iter().map(Context::address).collect();

    let (done, received) = mpsc::channel();
    let join = |rank: u32, done: mpsc::Sender<u32>| {
        let settings = GroupSettings::new(1, addresses.clone(), rank)
            .algorithm(algorithm)
            .block_bytes(block_kib << 10);
        let incoming = |_message, bytes: u64| Incoming::Into(Region::zeroed(bytes as usize));
        let complete = move |_message, _region| {
            let _ = done.send(rank);
        };
        contexts[rank as usize].create_group_with(settings, (incoming, complete, |_: &Failure| {}))
    };
    let groups = thread::scope(|scope| {
        let joining: Vec<_> = (0..members)
            .map(|rank| {
                let (join, done) = (&join, done.clone());
                scope.spawn(move || join(rank, done))
            })
            .collect();
        let joined = joining.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<Vec<Group>, _>>()
    })?;

    let object = Region::from_vec(vec![7; mib << 20]);
    for round in 1..=3 {
        let start = Instant::now();
        groups[0].send(object.clone())?;
        for _ in 0..members {
            received.recv_timeout(PATIENCE)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let rate = mib as f64 / 1024.0 / seconds;
        println!(
            "round {round}: {members} members have {mib} MiB after {seconds:.3} s ({rate:.2} GiB/s each)"
        );
    }

    // Success means that every message has reached every member.
    thread::scope(|scope| {
        let closing: Vec<_> =
            groups.iter().map(|group| scope.spawn(|| group.close(PATIENCE))).collect();
        closing.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    for context in contexts {
        context.close(PATIENCE)?;
    }
    Ok(())
}
