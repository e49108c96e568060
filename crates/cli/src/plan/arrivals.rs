//! When hosts come that fetch.

use std::str::FromStr;

/// The most steps between two hosts, and blocks: a plan takes a moment for each.
pub const STEPS_MAX: u64 = 1_000_000;

/// When hosts come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
    Together,
    /// One after so many steps.
    Every(u64),
    /// At random, so many in the time of one copy on average.
    Poisson(f64),
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "use together, every=STEPS, or poisson=HOSTS in the time of one copy".to_owned();
        match text.split_once('=') {
            None if text == "together" => Ok(Self::Together),
            Some(("every", steps)) => match steps.parse() {
                Ok(steps @ 1..=STEPS_MAX) => Ok(Self::Every(steps)),
                _ => Err(wrong()),
            },
            Some(("poisson", hosts)) => match hosts.parse() {
                Ok(hosts) if (0.01..=10_000.0).contains(&hosts) => Ok(Self::Poisson(hosts)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

impl Arrivals {
    /// The steps in which hosts come; the same ones each time.
    pub fn steps(self, hosts: u64, blocks: u64) -> Vec<u64> {
        match self {
            Self::Together => (0..hosts).map(|_| 0).collect(),
            Self::Every(steps) => (0..hosts).map(|host| host * steps).collect(),
            Self::Poisson(per_copy) => {
                let mut at = 0.0;
                let next = |host: u64| {
                    let digest = *blake3::hash(&host.to_le_bytes()).as_bytes();
                    let [a, b, c, d, ..] = digest;
                    let uniform = f64::from(u32::from_le_bytes([a, b, c, d])) / 2_f64.powi(32);
                    at -= (1.0 - uniform).ln() * blocks as f64 / per_copy;
                    at as u64
                };
                (0..hosts).map(next).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_together_regularly_or_at_random() {
        assert_eq!("together".parse(), Ok(Arrivals::Together));
        assert_eq!("every=5".parse(), Ok(Arrivals::Every(5)));
        assert_eq!("poisson=4".parse(), Ok(Arrivals::Poisson(4.0)));
        for wrong in ["", "every", "every=0", "every=x", "poisson=0", "poisson=nan", "together=1"] {
            assert!(wrong.parse::<Arrivals>().is_err(), "{wrong}");
        }
        assert_eq!(Arrivals::Every(5).steps(3, 9), [0, 5, 10]);
        let random = Arrivals::Poisson(4.0).steps(1000, 100);
        assert!(random.is_sorted());
        assert!((22_000..28_000).contains(&random[999]), "{}", random[999]);
    }
}
