//! The response to a failed group: which hosts to give up or to set apart, and whether members relay instead of switches.

use std::{collections::BTreeSet, net::SocketAddr};

use super::{apart::Apart, group::PushGroup, host::Host};

/// A connected host fails after this many rounds in which it was blamed: one may be due to a single reset connection.
const FAILED_ROUNDS_MAX: u32 = 2;
/// After how many rounds with failures that no host explains the host that reported the last one is given up; without one the push
/// ends.
const UNEXPLAINED_MAX: usize = 3;

/// What to do after a failed group.
pub(super) enum Response {
    /// Continue with the remaining hosts.
    Continue,
    /// Fail these hosts as well, for these reasons.
    FailHosts(Vec<(usize, String)>),
    /// Let members relay from now on, since switches would fail again.
    Relay,
    /// End the push: groups fail repeatedly and no host explains it.
    End,
}

/// The round of a failed group.
pub(super) struct Round {
    pub(super) number: u32,
    /// Hosts can get their copies by themselves after the others: not those of a stream.
    pub(super) may_set_apart: bool,
}

/// What is known of all failures of a push's groups.
#[derive(Default)]
pub(super) struct Blame {
    /// The rounds of failures that no host explains.
    unexplained: BTreeSet<u32>,
    apart: Apart,
}

impl Blame {
    /// All hosts have more of a stream, which has no last round.
    pub(super) fn progressed(&mut self) {
        self.unexplained.clear();
    }

    /// Judges a failed group of this round; `silent`: members that have not reported.
    pub(super) fn judge(
        &mut self,
        group: &PushGroup,
        silent: &[usize],
        round: &Round,
        hosts: &mut [Host],
    ) -> Response {
        if group.has_failed_by_switches() {
            return Response::Relay;
        }
        // Lost hosts and changed bytes explain the failure; otherwise the members' reports decide.
        let is_explained = group.has_lost() || !silent.is_empty() || !group.altered.is_empty();
        if is_explained || !group.is_wanted {
            return Response::Continue;
        }
        if !group.own_errors().is_empty() {
            return count_own_errors(group, round, hosts);
        }
        if !group.unjoined().is_empty() {
            return self.part(group, round, hosts);
        }
        match group.most_blamed() {
            Some(host) => {
                let reporter = group.first_reporter().filter(|&reporter| reporter != host);
                let by = reporter.map(|it| format!(" ({} reports it)", hosts[it].plan.name));
                let why = format!("it {}{}", group.why(), by.unwrap_or_default());
                fail_if_repeated([(host, why)], round, hosts)
            }
            None if group.is_in_switch() => Response::Relay,
            None => self.unexplained(group, round, hosts),
        }
    }

    /// Members could not connect to each other, and had all their time: in the same group they would only take as long again.
    fn part(&mut self, group: &PushGroup, round: &Round, hosts: &mut [Host]) -> Response {
        let mut given_up = self.apart.on_failed(group.unjoined(), round.number);
        let apart = self.apart.hosts(|host| hosts[host].is_open());
        if !round.may_set_apart {
            given_up.extend(apart.iter().filter(|&&host| group.has_member(host)));
        }
        // Others keep what was found before.
        for host in (0..hosts.len()).filter(|&host| hosts[host].is_open()).collect::<Vec<_>>() {
            let is_apart = apart.contains(&host) || given_up.contains(&host);
            let from = if is_apart { self.apart.with(host) } else { Vec::new() };
            hosts[host].apart =
                from.first().map(|&first| could_not_connect(first, from.len(), hosts));
            hosts[host].apart_from = from;
        }
        given_up.iter().for_each(|&host| hosts[host].count_failed_round(round.number));
        // A host that publishes needs no group any more.
        let is_ready = |host: &usize| hosts[*host].is_ready();
        let why = |host: usize| (host, hosts[host].apart.clone().unwrap_or_else(|| group.why()));
        Response::FailHosts(given_up.into_iter().filter(is_ready).map(why).collect())
    }

    /// No host explains the failure.
    fn unexplained(&mut self, group: &PushGroup, round: &Round, hosts: &[Host]) -> Response {
        self.unexplained.insert(round.number);
        if self.unexplained.len() < UNEXPLAINED_MAX {
            return Response::Continue;
        }
        match group.first_reporter().filter(|&host| hosts[host].is_ready()) {
            Some(host) => Response::FailHosts(vec![(host, format!("it {}", group.why()))]),
            None => Response::End,
        }
    }
}

/// Members could not join for reasons of their own, which concern no other.
fn count_own_errors(group: &PushGroup, round: &Round, hosts: &mut [Host]) -> Response {
    match group.is_in_switch() {
        true => Response::Relay,
        false => fail_if_repeated(group.own_errors().clone(), round, hosts),
    }
}

/// Counts the round for these hosts; fails those that had too many.
fn fail_if_repeated(
    blamed: impl IntoIterator<Item = (usize, String)>,
    round: &Round,
    hosts: &mut [Host],
) -> Response {
    let mut given_up = Vec::new();
    for (host, why) in blamed {
        hosts[host].count_failed_round(round.number);
        if hosts[host].failed_rounds >= FAILED_ROUNDS_MAX && hosts[host].is_ready() {
            given_up.push((host, why));
        }
    }
    Response::FailHosts(given_up)
}

/// Of a host that could not connect to this many members, of which this is the first; `None` is the root.
fn could_not_connect(first: Option<usize>, members: usize, hosts: &[Host]) -> String {
    let first = first.map(|first| &hosts[first]);
    let name = first.map_or("this machine", |first| &first.plan.name);
    let address = first.and_then(|first| Some(SocketAddr::new(first.ip?, first.port)));
    let at = address.map_or(String::new(), |address| format!(" ({address})"));
    let more = match members {
        1 => String::new(),
        all => format!(", and {} more,", all - 1),
    };
    format!(
        "it and {name}{at}{more} could not connect to each other: is there a firewall between them? see --ports"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rdmc::{Algorithm, Failure, FailureKind, Secret};

    use super::*;
    use crate::{
        HostPlan, PushSettings, Reach,
        messages::Blamed,
        push::{host::Step, parts::Part},
    };

    const FIRST: Duration = Duration::ZERO;
    /// When members have had all their time to join.
    const LATE: Duration = Duration::from_secs(600);

    /// Three hosts of a push.
    struct World {
        settings: PushSettings,
        hosts: Vec<Host>,
        blame: Blame,
        round: Round,
    }

    impl World {
        fn new() -> Self {
            let plan = |name: &str| {
                let (name, destination) = (name.to_owned(), String::new());
                HostPlan { name, destination, rack: 0, reach: Reach::Calls }
            };
            let plans = ["one", "two", "three"].map(plan).to_vec();
            let settings = PushSettings::new(plans.clone(), Secret::from_bytes([1; 32]));
            let ready = |plan| Host { step: Step::Ready, ..Host::new(plan, 0, FIRST) };
            let hosts = plans.into_iter().map(ready).collect();
            let round = Round { number: 0, may_set_apart: true };
            Self { settings, hosts, blame: Blame::default(), round }
        }

        /// A group of the next round.
        fn group(&mut self) -> PushGroup {
            self.group_by(Algorithm::Chain)
        }

        fn group_by(&mut self, algorithm: Algorithm) -> PushGroup {
            self.round.number += 1;
            let part = Part::of(None, vec![0, 1, 2], [(0, 1)].into_iter().collect());
            PushGroup::new(part, algorithm, &self.hosts, FIRST, &self.settings)
        }

        fn respond(&mut self, group: &PushGroup) -> Response {
            self.blame.judge(group, &[], &self.round, &mut self.hosts)
        }

        /// Judges a group of the next round in which these hosts were the first to report, and the others were ordered to leave.
        /// Returns whom to give up; `None` if the push ends.
        fn judge(&mut self, reports: &[(usize, Option<u32>, &[u32])]) -> Option<Vec<usize>> {
            let mut group = self.group();
            for &(host, member, unconnected) in reports {
                let blamed = member.map(|member| Blamed { member, noticed_by: None });
                group.reported(host, blamed, "no descriptors", unconnected, LATE);
            }
            group.begin_failing(LATE, "a member has failed");
            for host in 0..3 {
                if !group.has_reported(host) {
                    group.reported(host, None, "left", &[], LATE);
                }
            }
            match self.respond(&group) {
                Response::Continue => Some(Vec::new()),
                Response::FailHosts(all) => Some(all.into_iter().map(|(host, _)| host).collect()),
                Response::Relay => panic!("there is no switch"),
                Response::End => None,
            }
        }

        fn apart(&self) -> Vec<usize> {
            (0..3).filter(|&host| self.hosts[host].is_last()).collect()
        }
    }

    #[test]
    fn hosts_that_cannot_join_for_a_reason_of_their_own_are_given_up_in_the_second_round() {
        let mut world = World::new();
        // Rank 0 is the root's.
        let reports: [(usize, Option<u32>, &[u32]); 2] = [(0, Some(1), &[]), (2, Some(3), &[])];
        assert_eq!(world.judge(&reports), Some(vec![]));
        assert_eq!(world.judge(&reports), Some(vec![0, 2]));
    }

    #[test]
    fn the_one_that_reports_another_is_named() {
        let mut world = World::new();
        let mut given_up = Vec::new();
        for _ in 0..2 {
            let mut group = world.group();
            let blamed = Blamed { member: 2, noticed_by: Some(1) };
            group.reported(0, Some(blamed), "stopped sending", &[], LATE);
            group.begin_failing(LATE, "stopped sending");
            let Response::FailHosts(hosts) = world.respond(&group) else { panic!("it is blamed") };
            given_up.extend(hosts);
        }
        assert_eq!(given_up, [(1, "it stopped sending (one reports it)".to_owned())]);
    }

    #[test]
    fn a_root_that_sends_through_switches_knows_better_than_reports_that_came_first() {
        let mut world = World::new();
        let failure = |kind| Failure {
            group: 0,
            member: Some(2),
            reporter: 0,
            kind,
            detail: "switch tor: it is silent".to_owned(),
            delivered: 0,
        };
        let mut why = |algorithm, kind| {
            let mut group = world.group_by(algorithm);
            group.reported(2, None, "was lost: switch…", &[], LATE);
            group.begin_failing(LATE, "three: was lost: switch…");
            group.failed_here(&failure(kind));
            group.why()
        };
        let [switch, chain] = [Algorithm::InSwitch, Algorithm::Chain];
        assert_eq!(why(switch, FailureKind::Lost), "was lost: switch tor: it is silent");
        // It has aborted the group because of the report.
        assert_eq!(why(switch, FailureKind::Application), "three: was lost: switch…");
        assert_eq!(why(chain, FailureKind::Lost), "three: was lost: switch…");
    }

    #[test]
    fn a_host_that_blames_nobody_does_not_end_the_push() {
        let mut world = World::new();
        let reports: [(usize, Option<u32>, &[u32]); 1] = [(1, None, &[])];
        assert_eq!(world.judge(&reports), Some(vec![]));
        assert_eq!(world.judge(&reports), Some(vec![]));
        assert_eq!(world.judge(&reports), Some(vec![1]));
        world.hosts[1].step = Step::Failed(String::new());
        assert_eq!(world.judge(&[]), None, "no host explains it");
    }

    #[test]
    fn of_two_that_cannot_connect_one_is_set_apart_until_it_is_known_to_be_the_other() {
        let mut world = World::new();
        assert_eq!(world.judge(&[(1, Some(1), &[1])]), Some(vec![]));
        assert_eq!(world.apart(), [1]);
        assert!(world.hosts[1].apart.as_ref().unwrap().starts_with("it and one could not connect"));
        assert_eq!(world.judge(&[(2, Some(1), &[1])]), Some(vec![]));
        assert_eq!(world.apart(), [0]);
        assert_eq!(world.hosts[0].apart_from, [Some(1), Some(2)]);
        assert_eq!(world.hosts[1].apart, None);
        assert_eq!(world.judge(&[(0, Some(0), &[0])]), Some(vec![0]), "nor does it reach the root");
    }

    #[test]
    fn hosts_of_a_stream_are_given_up_since_its_beginning_is_not_kept() {
        let mut world = World::new();
        world.round.may_set_apart = false;
        assert_eq!(world.judge(&[(1, Some(1), &[1])]), Some(vec![1]));
    }
}
