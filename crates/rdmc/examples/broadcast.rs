//! Sends a file from one process to others, each of which writes what it receives to a file.
//!
//! `cargo run --release -p rdmc --example broadcast -- receive RANK OUTPUT MEMBER...`, once for each
//! RANK from 1 on, and then
//! `cargo run --release -p rdmc --example broadcast -- send FILE MEMBER...`
//!
//! MEMBER... are the addresses of all members by rank, such as `127.0.0.1:7000 127.0.0.1:7001`. All
//! members take the secret from the environment variable `RDMC_SECRET`: 64 hexadecimal digits.

use std::{env, error::Error, fs::File, io, net::SocketAddr, time::Duration};

use rdmc::{Context, ContextSettings, GroupSettings, Region, Secret};

const TIMEOUT: Duration = Duration::from_secs(600);

/// Receives messages into a file, one after another, while they arrive.
fn receive(rank: u32, output: &str, members: Vec<SocketAddr>) -> Result<(), Box<dyn Error>> {
    let mut output = File::create(output)?;
    let context = Context::start(ContextSettings::new(members[rank as usize], secret()?))?;
    let group = context.create_group(GroupSettings::new(1, members, rank))?;
    while let Some(mut message) = group.receive(TIMEOUT)? {
        let bytes = io::copy(&mut message, &mut output)?;
        println!("member {rank}: message {} with {bytes} bytes", message.number());
    }
    context.close(TIMEOUT)?;
    Ok(())
}

/// Sends a file. Success means that every member has all of it.
fn send(file: &str, members: Vec<SocketAddr>) -> Result<(), Box<dyn Error>> {
    let file = File::open(file)?;
    let region = Region::from_file(&file, file.metadata()?.len())?;
    let context = Context::start(ContextSettings::new(members[0], secret()?))?;
    let group = context.create_group(GroupSettings::new(1, members, 0))?;
    group.send(region, TIMEOUT)?;
    group.close(TIMEOUT)?;
    context.close(TIMEOUT)?;
    Ok(())
}

fn secret() -> Result<Secret, Box<dyn Error>> {
    let text = env::var("RDMC_SECRET").map_err(|_| "set RDMC_SECRET to 64 hexadecimal digits")?;
    Ok(Secret::from_hex(&text)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let addresses =
        |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<_, _>>();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", rank, output, ..] => {
            receive(rank.parse()?, output, addresses(&arguments[3..])?)
        }
        ["send", file, ..] => send(file, addresses(&arguments[2..])?),
        _ => Err("receive RANK OUTPUT MEMBER... or send FILE MEMBER...".into()),
    }
}
