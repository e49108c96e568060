//! Counts how often each byte occurs in the files of several processes, and tells all of them the sum.
//!
//! `cargo run --release -p rdmc --example histogram -- FILE RANK MEMBER...`, once for each RANK from 0 on.
//!
//! MEMBER... are the addresses of all members by rank, such as `127.0.0.1:7000 127.0.0.1:7001`. All
//! members take the secret from the environment variable `RDMC_SECRET`: 64 hexadecimal digits.

use std::{
    env,
    error::Error,
    fs::File,
    io::{BufReader, Read},
    net::SocketAddr,
    time::{Duration, Instant},
};

use rdmc::{Context, ContextSettings, Op, Secret, Team, TeamSettings};

const TIMEOUT: Duration = Duration::from_secs(600);

/// Operations whose times are averaged.
const OPERATIONS: u32 = 1_000;

fn count(file: &str) -> Result<[u64; 256], Box<dyn Error>> {
    let mut counts = [0; 256];
    for byte in BufReader::new(File::open(file)?).bytes() {
        counts[usize::from(byte?)] += 1;
    }
    Ok(counts)
}

/// Returns the average time of a short operation, in microseconds.
fn average_us(mut operation: impl FnMut() -> Result<(), rdmc::Error>) -> Result<f64, rdmc::Error> {
    let begin = Instant::now();
    (0..OPERATIONS).try_for_each(|_| operation())?;
    Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(OPERATIONS))
}

fn report(team: &Team, counts: &[u64; 256]) -> Result<(), Box<dyn Error>> {
    let total: u64 = counts.iter().sum();
    let most = (0..=u8::MAX).max_by_key(|&byte| counts[usize::from(byte)]).unwrap_or(0);
    let often = counts[usize::from(most)];
    println!("member {}: {total} bytes, {often} times {most:#04x}", team.rank());
    team.barrier(TIMEOUT)?;
    let reduce_us = average_us(|| team.all_reduce(&mut [1_u32], Op::Sum, TIMEOUT))?;
    team.barrier(TIMEOUT)?;
    let broadcast_us = average_us(|| team.broadcast(0, &mut [1_u32], TIMEOUT))?;
    println!(
        "member {}: 4 bytes take {reduce_us:.1} us to all_reduce, {broadcast_us:.1} us to broadcast",
        team.rank()
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [file, rank, members @ ..] = &arguments[..] else {
        return Err("histogram FILE RANK MEMBER...".into());
    };
    let rank: u32 = rank.parse()?;
    let members =
        members.iter().map(|text| text.parse()).collect::<Result<Vec<SocketAddr>, _>>()?;
    let secret = env::var("RDMC_SECRET").map_err(|_| "set RDMC_SECRET to 64 hexadecimal digits")?;
    let own = *members.get(rank as usize).ok_or("RANK is not that of a member")?;
    let context = Context::start(ContextSettings::new(own, Secret::from_hex(&secret)?))?;
    let team = context.create_team(TeamSettings::new(1, members, rank))?;
    let mut counts = count(file)?;
    team.all_reduce(&mut counts, Op::Sum, TIMEOUT)?;
    report(&team, &counts)?;
    team.close(TIMEOUT)?;
    context.close(TIMEOUT)?;
    Ok(())
}
