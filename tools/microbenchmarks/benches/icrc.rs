//! What a packet's CRC costs: over the whole packet, and updated after its headers have changed.

#![allow(missing_docs)] // the macros below make public functions

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use roce::{Bth, Headers, ICRC_BYTES, IpHeader, Opcode, Serial, ShiftTables, icrc};

/// IPv4, UDP and BTH.
const HEADERS: usize = 40;

fn packet(host: u8, payload: &[u8]) -> Vec<u8> {
    let ip = IpHeader::new([10, 0, 0, 1].into(), [10, 0, 0, host].into()).expect("one family");
    let bth = Bth::new(Opcode::SendMiddle, u32::from(host), Serial::new(u32::from(host)));
    let mut bytes = vec![0; 4400];
    let length = Headers::new(ip, bth).write(payload, &mut bytes).expect("room");
    bytes.truncate(length);
    bytes
}

fn crcs(criterion: &mut Criterion) {
    let tables = ShiftTables::new();
    for payload_bytes in [64, 1024, 4096] {
        let payload = vec![0x5a; payload_bytes];
        let (old, new) = (packet(2, &payload), packet(3, &payload));
        let end = old.len() - ICRC_BYTES;
        let was = icrc(&old[..end]);
        assert_eq!(
            tables.update(was, &old[..HEADERS], &new[..HEADERS], end - HEADERS),
            Some(icrc(&new[..end]))
        );
        let mut group = criterion.benchmark_group("icrc");
        group.bench_function(BenchmarkId::new("in full", payload_bytes), |bencher| {
            bencher.iter(|| icrc(black_box(&new[..end])));
        });
        group.bench_function(BenchmarkId::new("updated", payload_bytes), |bencher| {
            bencher.iter(|| {
                let (old, new) = (black_box(&old[..HEADERS]), black_box(&new[..HEADERS]));
                tables.update(black_box(was), old, new, end - HEADERS)
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_millis(800));
    targets = crcs
}
criterion_main!(benches);
