//! `rdmc plan --explain` and the library choose alike.

use std::{net::SocketAddr, process::Command, thread, time::Duration};

use rdmc::{Algorithm, Context, ContextSettings, GroupSettings, Scheduling, Secret};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// What the command says with these arguments: algorithm, block size, blocks, and predicted seconds.
fn explained(arguments: &str) -> (String, u64, u64, f64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmc"));
    command.args(["plan", "--explain", "--json"]).args(arguments.split_whitespace());
    let output = command.output().expect("rdmc runs");
    assert!(output.status.success(), "{arguments}: {output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let choice = &document["choice"];
    (
        choice["algorithm"].as_str().unwrap().to_owned(),
        choice["block_bytes"].as_u64().unwrap(),
        choice["blocks"].as_u64().unwrap(),
        choice["seconds"].as_f64().unwrap(),
    )
}

/// What a root with these settings takes in a context that says nothing, in the same form.
fn taken(settings: &GroupSettings) -> (String, u64, u64, f64) {
    let context = ContextSettings::new(([127, 0, 0, 1], 0).into(), Secret::from_bytes([0; 32]));
    let choice = settings.choose(&context);
    let seconds = choice.time.as_secs_f64();
    (choice.algorithm.to_string(), choice.block_bytes, choice.blocks.into(), seconds)
}

/// A group of this many members on hosts of their own, or on one.
fn group(members: u32, on_one_machine: bool) -> GroupSettings {
    let address = |rank: u32| {
        let host = if on_one_machine { 0 } else { rank };
        let [_, high, middle, low] = host.to_be_bytes();
        SocketAddr::from(([10, high, middle, low], 7000 + (rank % 1000) as u16))
    };
    GroupSettings::new(1, (0..members).map(address).collect(), 0)
}

#[test]
fn hundred_choices_are_the_same() {
    let mut cases = 0;
    let mut compare = |arguments: String, settings: GroupSettings| {
        assert_eq!(taken(&settings), explained(&arguments), "{arguments}");
        cases += 1;
    };
    for members in [1, 2, 3, 4, 8, 13, 100] {
        for bytes in [0, 10_000, 8 << 20, 3 << 30] {
            let plain = || group(members, false).message_bytes(bytes);
            let arguments = format!("--members {members} --bytes {bytes}");
            compare(arguments.clone(), plain());
            for (name, rate) in [("250mbit", 250_000_000), ("100gbit", 100_000_000_000)] {
                let arguments = format!("{arguments} --rate {name}");
                compare(arguments, plain().rate_bits_per_second(rate));
            }
            let local = group(members, true).message_bytes(bytes);
            compare(format!("{arguments} --local"), local);
        }
    }
    for (sizes, racks) in [("2,2", vec![0, 0, 1, 1]), ("3,1,4", vec![0, 0, 0, 1, 2, 2, 2, 2])] {
        for bytes in [1 << 20, 1 << 32] {
            let settings = group(racks.len() as u32, false).message_bytes(bytes);
            let arguments = format!("--racks {sizes} --bytes {bytes}");
            compare(
                arguments.clone(),
                settings.clone().schedule(Scheduling::AutoInRacks(racks.clone())),
            );
            let named = Scheduling::InRacks(Algorithm::RacksChain, racks.clone());
            let arguments = format!("{arguments} --algorithm racks-chain --block-size 100000");
            compare(arguments, settings.schedule(named).block_bytes(100_000));
        }
    }
    assert!(cases >= 100, "{cases}");
}

/// Also of groups that exist, whose members are in this process.
#[test]
fn groups_take_what_the_command_explains() {
    let secret = Secret::random().unwrap();
    let start = |_| {
        let listen = ([127, 0, 0, 1], 0).into();
        Context::start(ContextSettings::new(listen, secret.clone())).unwrap()
    };
    let contexts: Vec<Context> = (0..5).map(start).collect();
    for (number, members, bytes) in [(1, 2, 100_u64), (2, 4, 8 << 20), (3, 5, 1 << 30)] {
        let addresses: Vec<SocketAddr> = contexts[..members].iter().map(Context::address).collect();
        let (name, block_bytes, ..) =
            explained(&format!("--members {members} --bytes {bytes} --local"));
        thread::scope(|scope| {
            for (rank, context) in (0..).zip(&contexts[..members]) {
                let settings =
                    GroupSettings::new(number, addresses.clone(), rank).message_bytes(bytes);
                let name = &name;
                scope.spawn(move || {
                    let group = context.create_group(settings).unwrap();
                    assert_eq!(group.schedule().algorithm().name(), name);
                    assert_eq!(group.block_bytes(), block_bytes);
                    group.close(PATIENCE).unwrap();
                });
            }
        });
    }
    for context in contexts {
        context.close(PATIENCE).unwrap();
    }
}
