//! What it costs to fold one contribution into another, beside a loop over typed slices.

#![allow(missing_docs)] // the macros below make public functions

use std::hint::black_box;

use collective::{Element, Op, Type, bytes_of_mut, elements_of, elements_of_mut, fold};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// A slot of a ring, what a core's caches hold, and more than all caches.
const SIZES: [usize; 3] = [4 << 10, 256 << 10, 64 << 20];

/// Folded most often, and one for each way in which types and operators are computed.
const FOLDS: [(Op, Type); 9] = [
    (Op::Sum, Type::F32),
    (Op::Min, Type::F32),
    (Op::Sum, Type::F64),
    (Op::Sum, Type::F16),
    (Op::Max, Type::F16),
    (Op::Sum, Type::Bf16),
    (Op::Sum, Type::I32),
    (Op::Prod, Type::I64),
    (Op::Band, Type::U8),
];

/// Positive numbers of a type that stay finite and normal however often one is folded into the other.
fn operands(bytes: usize, element: Type) -> (Vec<u64>, Vec<u64>) {
    fn pair<E: Element>(bytes: usize, [a, b]: [E; 2]) -> (Vec<u64>, Vec<u64>) {
        let filled = |element: E| {
            // One word more, for slices that are not aligned.
            let mut words = vec![0_u64; bytes / 8 + 1];
            elements_of_mut(bytes_of_mut(&mut words)).expect("aligned").fill(element);
            words
        };
        (filled(a), filled(b))
    }
    use collective::{bf16, f16};
    match element {
        Type::F16 => pair(bytes, [1.0, 0.000_1].map(f16::from_f32)),
        Type::Bf16 => pair(bytes, [1.0, 0.000_1].map(bf16::from_f32)),
        Type::F32 => pair(bytes, [1.0_f32, 1e-10]),
        Type::F64 => pair(bytes, [1.0, 1e-20]),
        _ => pair(bytes, [1_u8, 3]),
    }
}

fn folds(criterion: &mut Criterion) {
    for (op, element) in FOLDS {
        let mut group = criterion.benchmark_group(format!("reduce/{op} of {element}"));
        for bytes in SIZES {
            let (mut acc, other) = operands(bytes, element);
            let (acc, other) = (bytes_of_mut(&mut acc), collective::bytes_of(&other));
            group.throughput(Throughput::Bytes(bytes as u64));
            for (alignment, from) in [("aligned", 0), ("unaligned", 1)] {
                let end = from + bytes;
                group.bench_function(BenchmarkId::new(alignment, bytes), |bencher| {
                    bencher.iter(|| {
                        fold(element, op, &mut acc[from..end], black_box(&other[from..end]))
                    });
                });
            }
        }
        group.finish();
    }
}

/// What the compiler makes of the loop that anybody would write.
fn plain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reduce/plain loop, sum of f32");
    for bytes in SIZES {
        let (mut acc, other) = operands(bytes, Type::F32);
        let acc: &mut [f32] =
            elements_of_mut(&mut bytes_of_mut(&mut acc)[..bytes]).expect("aligned");
        let other: &[f32] = elements_of(&collective::bytes_of(&other)[..bytes]).expect("aligned");
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter(|| {
                for (acc, other) in acc.iter_mut().zip(black_box(other)) {
                    *acc += other;
                }
                black_box(&acc);
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_millis(800));
    targets = plain, folds
}
criterion_main!(benches);
