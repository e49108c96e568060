//! Rounds one after another, each with the randomness of its own seed, until one breaks a promise.

use std::collections::BTreeMap;

use lab::{Lab, LabSettings, Link};

use crate::{interrupt::Interrupt, links::usual_rate, outcome::Outcome, random::Random};

/// A round that has ended.
pub struct Ended<R> {
    /// What was done in it; results are reported by this.
    pub kind: String,
    /// The arguments that replay it, besides its seed and the number of rounds.
    pub replay: String,
    /// Errors: which promise was broken.
    pub outcome: Outcome<R>,
}

/// All rounds so far.
pub struct Rounds<R> {
    /// Results by what was done.
    pub results: BTreeMap<String, Vec<R>>,
    /// Errors: the round in which a promise was broken, with the arguments that replay it.
    pub outcome: Outcome<()>,
}

/// Makes a lab of each size, with links that this machine can carry.
pub fn labs(members: &[u32]) -> Outcome<Vec<Lab>> {
    let lab = |&members: &u32| {
        let link = Link::of_rate(usual_rate(members));
        Ok(Lab::create(&LabSettings::new(members, link))?)
    };
    members.iter().map(lab).collect()
}

impl<R> Rounds<R> {
    /// Runs this many rounds, the first with this seed, and shows how many are over. Ends early with a round that fails, or an interrupt;
    /// the rounds before that are kept.
    pub fn run(
        count: u32,
        first_seed: u64,
        interrupt: &Interrupt,
        mut one: impl FnMut(&mut Random) -> Ended<R>,
    ) -> Self {
        let mut rounds = Self { results: BTreeMap::new(), outcome: Ok(()) };
        for round in 0..count {
            let seed = first_seed.wrapping_add(u64::from(round));
            let Ended { kind, replay, outcome } = one(&mut Random::new(seed));
            match outcome {
                Ok(result) => rounds.results.entry(kind).or_default().push(result),
                Err(_) if interrupt.check().is_err() => break,
                Err(error) => {
                    let again = format!("--seed {seed} {replay} --rounds 1");
                    let error = format!("round {round} (again: {again}), {kind}: {error}");
                    rounds.outcome = Err(error.into());
                    break;
                }
            }
            eprint!("\r{} of {count} rounds", round + 1);
        }
        eprintln!();
        rounds
    }
}
