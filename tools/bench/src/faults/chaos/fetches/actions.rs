//! What happens when in a round, by its seed.

use std::time::Duration;

use clap::ValueEnum;

use crate::random::Random;

/// The most time between the death of a server and its next start: hosts ask three times, with a second between.
const RESTART_MAX_S: f64 = 0.8;
/// The part of hosts that have an older copy, and of those that share theirs for a second.
const FEW: f64 = 0.3;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kill {
    /// One host that fetches
    Host,
    /// Two hosts that fetch
    TwoHosts,
    /// The only server, which is started again
    Server,
    /// One of two servers
    OneServer,
}

impl Kill {
    /// How many members are servers; they are the first.
    pub fn servers(self) -> u32 {
        if self == Self::OneServer { 2 } else { 1 }
    }
}

/// Something that happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Start(u32),
    Kill(u32),
}

/// How a host fetches.
#[derive(Clone, Copy, Debug)]
pub struct Fetch {
    /// It has an older copy.
    pub has_old: bool,
    /// It sends its copy to others for a second.
    pub shares: bool,
    /// The server that it asks first.
    pub server: u32,
}

/// A round.
#[derive(Debug)]
pub struct Plan {
    /// Whether a directory is fetched, not a file.
    pub is_tree: bool,
    /// By host, from the first one that is no server.
    pub fetches: Vec<Fetch>,
    /// In their order, with the time since the start. Servers run by then.
    pub actions: Vec<(Duration, Action)>,
}

impl Plan {
    /// For this many members, between which a copy takes this time.
    pub fn new(kill: Kill, members: u32, copy_s: f64, random: &mut Random) -> Self {
        let servers = kill.servers();
        let is_tree = random.part() < 0.5;
        let mut actions = Vec::new();
        let mut fetches = Vec::new();
        let mut comes_s = Vec::new();
        for host in servers..members {
            comes_s.push(random.part() * copy_s * 1.5);
            actions.push((comes_s[comes_s.len() - 1], Action::Start(host)));
            let (has_old, shares) = (random.part() < FEW, random.part() < FEW);
            let server = (random.part() * f64::from(servers)) as u32;
            fetches.push(Fetch { has_old, shares, server });
        }
        let mut others: Vec<u32> = (servers..members).collect();
        let victims = match kill {
            Kill::Host => 1,
            Kill::TwoHosts => 2,
            Kill::Server | Kill::OneServer => 0,
        };
        for _ in 0..victims {
            let victim = others.remove((random.part() * others.len() as f64) as usize);
            let came_s = comes_s[(victim - servers) as usize];
            actions.push((came_s + random.part() * (copy_s * 1.2 + 0.3), Action::Kill(victim)));
        }
        if victims == 0 {
            let server = (random.part() * f64::from(servers)) as u32;
            let killed_s = random.part() * copy_s * 2.5;
            actions.push((killed_s, Action::Kill(server)));
            if kill == Kill::Server {
                let pause_s = 0.05 + random.part() * (RESTART_MAX_S - 0.05);
                actions.push((killed_s + pause_s, Action::Start(server)));
            }
        }
        actions.sort_by(|one, other| one.0.total_cmp(&other.0));
        let time = |(at_s, action)| (Duration::from_secs_f64(at_s), action);
        Self { is_tree, fetches, actions: actions.into_iter().map(time).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_and_the_killed_were_started_before() {
        for seed in 0..200 {
            for &kill in Kill::value_variants() {
                let plan = || Plan::new(kill, 5, 0.3, &mut Random::new(seed));
                let (plan, again) = (plan(), plan());
                assert_eq!(plan.actions, again.actions);
                let servers = kill.servers();
                let mut running: Vec<u32> = (0..servers).collect();
                let mut killed = Vec::new();
                for &(_, action) in &plan.actions {
                    match action {
                        Action::Start(member) => running.push(member),
                        Action::Kill(member) => {
                            assert!(running.contains(&member), "{plan:?}");
                            running.retain(|&one| one != member);
                            killed.push(member);
                        }
                    }
                }
                assert_eq!(killed.len(), if kill == Kill::TwoHosts { 2 } else { 1 });
                let is_server = killed.iter().all(|&member| member < servers);
                assert_eq!(is_server, matches!(kill, Kill::Server | Kill::OneServer));
                assert!(running.iter().any(|&member| member < servers), "a server is left");
                assert_eq!(plan.fetches.len() as u32, 5 - servers);
            }
        }
    }
}
