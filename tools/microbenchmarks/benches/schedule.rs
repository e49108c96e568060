//! How long one (rank, step) query takes, in the middle of a long message; racks have 32 members.

#![allow(missing_docs)] // the macros below make public functions

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use schedule::{Algorithm, Schedule};

const BLOCKS: u32 = 100_000;

fn queries(criterion: &mut Criterion) {
    for algorithm in [Algorithm::BinomialPipeline, Algorithm::Circulant, Algorithm::RacksPipeline] {
        for name in ["send_at", "receive_at", "next_send"] {
            let mut group = criterion.benchmark_group(format!("{algorithm}/{name}"));
            for members in [8, 1_000, 1_000_000] {
                let racks: Vec<u32> = (0..members).map(|rank| rank / 32).collect();
                let plan = Schedule::with_racks(algorithm, &racks, 0).expect("valid arguments");
                let query = match name {
                    "send_at" => Schedule::send_at,
                    "receive_at" => Schedule::receive_at,
                    _ => Schedule::next_send,
                };
                group.bench_function(BenchmarkId::from_parameter(members), |bencher| {
                    // A new rank and step each time, so that branch prediction does not help.
                    let mut at = 0_u64;
                    bencher.iter(|| {
                        at = at
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let rank = ((at >> 32) * u64::from(members)) >> 32;
                        let step = 1_000 + (at >> 48);
                        query(black_box(&plan), rank as u32, step, BLOCKS)
                    });
                });
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_millis(800));
    targets = queries
}
criterion_main!(benches);
