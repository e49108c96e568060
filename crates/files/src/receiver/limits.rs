//! What a receiver that its root has not started lets roots ask of it.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use rdmc::{Algorithm, CompletionMode, Fabric, GroupSettings, Protection};
use session::Peers;

use crate::{group_terms::GroupTerms, messages::Terms};

/// The name of networks in which switches copy blocks, in [`RootLimits`].
pub const IN_SWITCH: &str = "in-switch";
/// The only network that authenticates and encrypts blocks.
const TCP: &str = "tcp";
/// The longest silence that a root may choose: a dead member occupies a receiver for this long.
const FAILURE_DEADLINE_MAX: Duration = Duration::from_secs(300);
/// The first port that services of the system do not use.
const PORT_MIN: u16 = 1024;

/// What a receiver that its root has not started (it listens, or joins) lets roots ask of it, beyond writing files: a root of such
/// a receiver has no other rights on its host. Decisions only.
#[derive(Clone, Default, Debug)]
pub struct RootLimits {
    /// The least protection of blocks. `None`: encrypted, unless all members are at loopback addresses.
    pub protection_min: Option<Protection>,
    /// Names of the networks ([`rdmc::Fabric::name`], [`IN_SWITCH`]) that blocks may come over. `None`: all if blocks need no
    /// protection, otherwise tcp, the only one that protects them.
    pub networks: Option<Vec<String>>,
    /// With whom it connects, and from whom it accepts connections; `None` for all that roots name.
    pub peers: Option<Peers>,
    /// How its contexts wait for completions, whatever the root asks for.
    pub completion: CompletionMode,
}

impl RootLimits {
    /// What is reported to a root about a member that this host cannot reach.
    pub(super) const UNREACHABLE: &str = "could not be joined: it cannot be reached, or does not answer as a member of this \
        push; the log of the host that reports it has the details";

    /// Networks of this host, better than those that are accepted, that an option would allow; none if the operator has chosen.
    pub fn networks_left_out(&self) -> Vec<String> {
        match (&self.networks, self.protection_min) {
            (Some(_), _) | (None, Some(Protection::None | Protection::Encrypt)) => Vec::new(),
            (None, _) => {
                let mut all: Vec<String> = Fabric::candidates().iter().map(Fabric::name).collect();
                all.retain(|network| network != TCP);
                all
            }
        }
    }

    /// Before anything else of an offer: `root` is the root's address.
    ///
    /// Errors: less protection, a longer silence or lower ports than accepted; with the remedy.
    pub(super) fn check_terms(&self, terms: &Terms, root: IpAddr) -> Result<(), String> {
        let deadline = terms.failure_deadline()?;
        if deadline > FAILURE_DEADLINE_MAX {
            return Err(format!(
                "this receiver accepts no --failure-deadline above {} s, but the push has {} s",
                FAILURE_DEADLINE_MAX.as_secs(),
                deadline.as_secs()
            ));
        }
        if let Some(ports) = terms.ports.filter(|ports| ports.first() < PORT_MIN) {
            return Err(format!(
                "this receiver listens only on ports from {PORT_MIN} up, but the push has --ports {ports}"
            ));
        }
        self.check_protection(terms, root.to_canonical().is_loopback())
    }

    /// Which of these networks blocks may come over from a root at this address.
    pub(super) fn networks(&self, mut all: Vec<String>, root: IpAddr) -> Vec<String> {
        let is_local = root.to_canonical().is_loopback();
        all.retain(|network| self.accepts(network, is_local));
        all
    }

    /// Errors: blocks may not come over this network; with the remedy.
    pub(super) fn check_network(&self, network: &str, root: IpAddr) -> Result<(), String> {
        self.check_accepted(network, root.to_canonical().is_loopback())
    }

    /// Before a group or team of these members is joined, in which this receiver has this rank. Its own address may be none of
    /// the peers: it does not connect to itself.
    ///
    /// Errors: it needs more protection than the push has; another member is not one of the peers.
    pub(super) fn check_members(
        &self,
        terms: &Terms,
        members: &[SocketAddr],
        own_rank: u32,
    ) -> Result<(), String> {
        let is_foreign = |peers: &Peers, (rank, member): (u32, &SocketAddr)| {
            rank != own_rank && is_known(member) && !peers.contain(member.ip())
        };
        if let Some(peers) = &self.peers
            && let Some((_, other)) = (0..).zip(members).find(|&member| is_foreign(peers, member))
        {
            let other = other.ip();
            return Err(format!(
                "this receiver accepts only --peers {peers}, and {other} is not one of them"
            ));
        }
        self.check_protection(terms, are_local(members))
    }

    /// The same, also for the way of its blocks.
    pub(super) fn check_group(&self, terms: &Terms, group: &GroupTerms) -> Result<(), String> {
        self.check_members(terms, &group.addresses, group.rank)?;
        match Algorithm::from_code(group.algorithm) {
            Some(Algorithm::InSwitch) => {
                self.check_accepted(IN_SWITCH, are_local(&group.addresses))
            }
            _ => Ok(()),
        }
    }

    fn check_protection(&self, terms: &Terms, is_local: bool) -> Result<(), String> {
        let protection: Protection =
            terms.protection.parse().map_err(|error: rdmc::Error| error.to_string())?;
        let least = self.protection_min(is_local);
        if protection == Protection::Encrypt || least == Protection::None {
            return Ok(());
        }
        Err(format!(
            "this receiver accepts blocks with --protect {least}, but the push has --protect {protection}: push with \
             --protect {least}, or start the receiver with --protect {protection}"
        ))
    }

    fn check_accepted(&self, network: &str, is_local: bool) -> Result<(), String> {
        if self.accepts(network, is_local) {
            return Ok(());
        }
        let accepted = self.networks.as_deref().map_or(TCP.to_owned(), |all| all.join(","));
        let unprotected = if network == TCP { "" } else { ", where nothing protects them" };
        Err(format!(
            "this receiver accepts blocks over {accepted}, but the push has {network}{unprotected}: push over {accepted}, or start \
             the receiver with --fabric {accepted},{network}"
        ))
    }

    fn accepts(&self, network: &str, is_local: bool) -> bool {
        match &self.networks {
            Some(accepted) => accepted.iter().any(|name| name == network),
            None => network == TCP || self.protection_min(is_local) == Protection::None,
        }
    }

    fn protection_min(&self, is_local: bool) -> Protection {
        self.protection_min.unwrap_or(match is_local {
            true => Protection::None,
            false => Protection::Encrypt,
        })
    }
}

fn are_local(members: &[SocketAddr]) -> bool {
    known(members).all(|member| member.ip().to_canonical().is_loopback())
}

/// A receiver learns nothing about others, and does not communicate with them.
fn known(members: &[SocketAddr]) -> impl Iterator<Item = &SocketAddr> {
    members.iter().filter(|member| is_known(member))
}

fn is_known(member: &SocketAddr) -> bool {
    *member != GroupSettings::UNKNOWN
}

#[cfg(test)]
mod tests {
    use rdmc::Secret;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn far() -> IpAddr {
        "10.0.0.1".parse().unwrap()
    }

    fn terms(protection: &str) -> Terms {
        Terms {
            root: ([127, 0, 0, 1], 7001).into(),
            streams: 1,
            completion: "polling".into(),
            protection: protection.into(),
            failure_deadline_ms: 5_000,
            rate_max: None,
            join_timeout_ms: 15_000,
            ports: None,
            secret: Secret::from_bytes([1; 32]),
        }
    }

    fn limits(protection_min: Option<Protection>, networks: Option<&[&str]>) -> RootLimits {
        let networks = networks.map(|all| all.iter().map(|&name| name.to_owned()).collect());
        RootLimits { protection_min, networks, ..RootLimits::default() }
    }

    #[test]
    fn less_protection_than_accepted_is_refused_with_the_remedy() {
        use Protection::{Encrypt, None as Bare};
        for (least, root, offered, accepted) in [
            (None, far(), "none", false),
            (None, far(), "encrypt", true),
            (None, LOCAL, "none", true),
            (None, "::ffff:127.0.0.1".parse().unwrap(), "none", true),
            (Some(Bare), far(), "none", true),
            (Some(Encrypt), LOCAL, "none", false),
            (Some(Encrypt), far(), "none", false),
            (Some(Encrypt), far(), "encrypt", true),
            (None, LOCAL, "nonsense", false),
        ] {
            let outcome = limits(least, None).check_terms(&terms(offered), root);
            assert_eq!(outcome.is_ok(), accepted, "{least:?} {root} {offered}: {outcome:?}");
        }
        let refused = limits(None, None).check_terms(&terms("none"), far()).unwrap_err();
        assert!(refused.contains("start the receiver with --protect none"), "{refused}");
    }

    #[test]
    fn a_root_that_is_local_makes_no_unprotected_group_with_other_hosts() {
        let members = |all: &[&str]| -> Vec<SocketAddr> {
            all.iter().map(|member| member.parse().unwrap()).collect()
        };
        let (local, far) =
            (members(&["127.0.0.1:1", "[::1]:2"]), members(&["127.0.0.1:1", "10.0.0.2:2"]));
        assert!(limits(None, None).check_members(&terms("none"), &local, 1).is_ok());
        assert!(limits(None, None).check_members(&terms("none"), &far, 0).is_err());
        assert!(limits(None, None).check_members(&terms("encrypt"), &far, 0).is_ok());
    }

    #[test]
    fn networks_that_do_not_protect_need_an_option() {
        let all = || ["verbs", "tcp"].map(str::to_owned).to_vec();
        assert_eq!(limits(None, None).networks(all(), far()), ["tcp"]);
        assert_eq!(limits(None, None).networks(all(), LOCAL), ["verbs", "tcp"]);
        assert_eq!(limits(Some(Protection::None), None).networks(all(), far()), ["verbs", "tcp"]);
        assert_eq!(limits(None, Some(&["verbs"])).networks(all(), far()), ["verbs"]);
        assert!(limits(None, Some(&["verbs", "tcp"])).check_network("verbs", far()).is_ok());
        let refused = limits(None, None).check_network("verbs", far()).unwrap_err();
        assert!(refused.contains("start the receiver with --fabric tcp,verbs"), "{refused}");
    }

    #[test]
    fn members_that_are_no_peers_are_named() {
        let peers = Some("10.0.0.0/24".parse().unwrap());
        let limits = RootLimits { peers, ..RootLimits::default() };
        let check = |last: &str| {
            let members = ["10.0.0.1:1", last, "10.1.0.1:1"].map(|member| member.parse().unwrap());
            limits.check_members(&terms("encrypt"), &members, 2)
        };
        assert!(check("10.0.0.2:1").is_ok());
        let refused = check("169.254.169.254:80").unwrap_err();
        assert!(refused.contains("--peers 10.0.0.0/24, and 169.254.169.254"), "{refused}");
    }

    #[test]
    fn switches_that_copy_need_an_option() {
        let group = |algorithm: Algorithm| GroupTerms {
            number: 1,
            rank: 1,
            addresses: vec!["10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap()],
            racks: vec![0, 0],
            algorithm: algorithm.code(),
            block_bytes: 1,
            window_receives: 1,
            window_sends: 1,
            messages_in_flight: 1,
            offload: false,
        };
        let terms = terms("encrypt");
        let check = |limits: RootLimits, algorithm| limits.check_group(&terms, &group(algorithm));
        assert!(check(limits(None, None), Algorithm::Chain).is_ok());
        let refused = check(limits(None, None), Algorithm::InSwitch).unwrap_err();
        assert!(refused.contains("--fabric tcp,in-switch"), "{refused}");
        assert!(check(limits(None, Some(&["tcp", IN_SWITCH])), Algorithm::InSwitch).is_ok());
        assert!(check(limits(Some(Protection::None), None), Algorithm::InSwitch).is_ok());
    }

    #[test]
    fn long_silence_is_refused() {
        let long = Terms { failure_deadline_ms: 3_600_000, ..terms("encrypt") };
        let refused = limits(None, None).check_terms(&long, far()).unwrap_err();
        assert!(refused.contains("no --failure-deadline above 300 s"), "{refused}");
    }

    #[test]
    fn ports_of_services_of_the_system_are_refused() {
        let check = |ports: &str| {
            let ports = Some(ports.parse().unwrap());
            limits(None, None).check_terms(&Terms { ports, ..terms("encrypt") }, far())
        };
        assert!(check("1024-1030").is_ok());
        assert!(check("1023-1030").unwrap_err().contains("ports from 1024"));
    }
}
