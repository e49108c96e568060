//! The parameters of the paper's model that fit measured times best.

use collective::{
    BroadcastTree, ReductionTree,
    model::{Parameters, allreduce_us, broadcast_us},
};

/// How many unknowns there are: Tm + Td, Ts + Tn, Tt, Tc, Ta. The sums cannot be told apart by times of operations.
const UNKNOWNS: usize = 5;
/// The model's worst case has maxima, which depend on the unknowns: solved again with the last values.
const PASSES: usize = 6;

type Vector = [f64; UNKNOWNS];

/// A time to which parameters are fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub members: u32,
    /// Of an allreduce; `None` for a broadcast.
    pub degree: Option<u32>,
    pub bytes: u64,
    /// What a slot holds of a message.
    pub block: u64,
    pub time_us: f64,
}

impl Sample {
    /// The model's time with these parameters; of an allreduce in the worst case.
    pub fn model_us(&self, parameters: &Parameters) -> f64 {
        let Self { members, bytes, block, .. } = *self;
        match self.degree {
            None => broadcast_us(members, bytes, block, parameters),
            Some(degree) => allreduce_us(members, degree, bytes, block, parameters).worst_us,
        }
    }

    /// How far the model is from this time, in parts of it.
    pub fn error(&self, parameters: &Parameters) -> f64 {
        self.model_us(parameters) / self.time_us - 1.0
    }

    /// What the model multiplies each unknown by, where maxima are as with these values.
    fn coefficients(&self, values: &Vector) -> Vector {
        let (bytes, block) = (self.bytes as f64, self.block as f64);
        let rounds = f64::from(BroadcastTree::new(self.members, 0).rounds());
        let blocks = self.bytes.div_ceil(self.block).max(1) as f64;
        let mut all = [1.0, 2.0, bytes, 2.0 * bytes.min(block), blocks].map(|part| part * rounds);
        if let Some(degree) = self.degree {
            let tree = ReductionTree::new(self.members, degree);
            all[3] += 2.0 * bytes;
            for step in 0..tree.steps() {
                let others = f64::from(tree.senders(step)) - 1.0;
                all[0] += 1.0;
                all[1] += 2.0;
                all[2] += bytes;
                let longest = if values[2] * bytes > values[1] { 2 } else { 1 };
                all[longest] += others * if longest == 2 { bytes } else { 1.0 };
            }
        }
        all
    }
}

/// The parameters with the least squares of relative errors, none negative. To is 0. Of Tm + Td and Ts + Tn each has its
/// part in the paper.
pub fn fit(samples: &[Sample]) -> Parameters {
    let mut values = values_of(&Parameters::PAPER);
    for _ in 0..PASSES {
        let rows: Vec<Vector> = samples
            .iter()
            .map(|sample| sample.coefficients(&values).map(|part| part / sample.time_us))
            .collect();
        values = least_squares(&rows);
    }
    parameters_of(&values)
}

fn values_of(parameters: &Parameters) -> Vector {
    [
        parameters.library_us + parameters.post_us,
        parameters.dma_start_us + parameters.adapter_us,
        parameters.transmit_us_per_byte,
        parameters.copy_us_per_byte,
        parameters.acknowledge_us,
    ]
}

fn parameters_of(values: &Vector) -> Parameters {
    let paper = Parameters::PAPER;
    let [software, adapter, ..] = values_of(&paper);
    Parameters {
        library_us: values[0] * paper.library_us / software,
        post_us: values[0] * paper.post_us / software,
        dma_start_us: values[1] * paper.dma_start_us / adapter,
        adapter_us: values[1] * paper.adapter_us / adapter,
        transmit_us_per_byte: values[2],
        copy_us_per_byte: values[3],
        acknowledge_us: values[4],
        fold_us_per_byte: 0.0,
    }
}

/// The values, none negative, for which the rows' products are nearest to 1: the best solution among all choices of
/// unknowns that are not 0.
fn least_squares(rows: &[Vector]) -> Vector {
    let mut best = ([0.0; UNKNOWNS], f64::INFINITY);
    for chosen in 1_u32..1 << UNKNOWNS {
        let chosen: Vec<usize> =
            (0..UNKNOWNS).filter(|&unknown| chosen >> unknown & 1 == 1).collect();
        let Some(values) = solve(rows, &chosen) else { continue };
        if values.iter().any(|&value| value < 0.0) {
            continue;
        }
        let product = |row: &Vector| row.iter().zip(&values).map(|(a, b)| a * b).sum::<f64>();
        let squares: f64 = rows.iter().map(|row| (product(row) - 1.0).powi(2)).sum();
        if squares < best.1 {
            best = (values, squares);
        }
    }
    best.0
}

/// Least squares with these unknowns alone, by normal equations; `None` if they cannot be told apart.
fn solve(rows: &[Vector], chosen: &[usize]) -> Option<Vector> {
    let count = chosen.len();
    let dot = |one: &dyn Fn(&Vector) -> f64, other: &dyn Fn(&Vector) -> f64| {
        rows.iter().map(|row| one(row) * other(row)).sum::<f64>()
    };
    let mut matrix: Vec<Vec<f64>> = chosen
        .iter()
        .map(|&one| {
            let left = chosen.iter().map(|&other| dot(&|row| row[one], &|row| row[other]));
            left.chain([dot(&|row| row[one], &|_| 1.0)]).collect()
        })
        .collect();
    let scale: Vec<f64> = (0..count).map(|index| matrix[index][index]).collect();
    for column in 0..count {
        let pivot = (column..count)
            .max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        if matrix[pivot][column].abs() <= 1e-9 * scale[column] {
            return None;
        }
        matrix.swap(column, pivot);
        for other in (0..count).filter(|&other| other != column) {
            let factor = matrix[other][column] / matrix[column][column];
            let pivot = matrix[column].clone();
            for (value, of_pivot) in matrix[other].iter_mut().zip(pivot).skip(column) {
                *value -= factor * of_pivot;
            }
        }
    }
    let mut values = [0.0; UNKNOWNS];
    for (row, &unknown) in chosen.iter().enumerate() {
        values[unknown] = matrix[row][count] / matrix[row][row];
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(parameters: &Parameters) -> Vec<Sample> {
        let mut samples = Vec::new();
        for members in [2, 4, 16] {
            for degree in [None, Some(1), Some(3)] {
                for bytes in [4, 256, 1024, 3072, 4608] {
                    let sample = Sample { members, degree, bytes, block: 1024, time_us: 1.0 };
                    samples.push(Sample { time_us: sample.model_us(parameters), ..sample });
                }
            }
        }
        samples
    }

    #[test]
    fn exact_times_give_their_parameters_back() {
        let mut expected = Parameters::PAPER;
        expected.acknowledge_us = 1.5;
        let samples = samples(&expected);
        let found = fit(&samples);
        for (one, other) in values_of(&found).into_iter().zip(values_of(&expected)) {
            assert!((one - other).abs() < 1e-4 * other.max(0.01), "{found:?}");
        }
        assert!(samples.iter().all(|sample| sample.error(&found).abs() < 1e-3));
    }

    #[test]
    fn no_parameter_is_negative() {
        // Longer messages are faster, which no parameter can say.
        let mut samples = samples(&Parameters::PAPER);
        for sample in &mut samples {
            sample.time_us = 50.0 - sample.bytes as f64 / 200.0;
        }
        let found = fit(&samples);
        assert!(values_of(&found).iter().all(|&value| value >= 0.0), "{found:?}");
        assert_eq!(found.transmit_us_per_byte, 0.0);
    }
}
