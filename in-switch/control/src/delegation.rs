//! Delegation: a member's host signs that switches may copy a group's packets to it. Without it any host with a
//! certificate could let switches send to hosts that have never agreed.
//!
//! A delegation is valid for one member's entry of one group: the sender's address, queue pair, first packet
//! number and the random number that it has drawn for the group; the member's addresses, queue pair, packet numbers
//! and memory. It ends at a time that the member chooses, and with it the group in each switch, unless the member
//! has signed a later end. So it cannot be used for long after the group's end. A replay
//! recreates only the same group for the same queue pairs, so agents need not remember groups that have ended. At expiry the
//! whole group ends: without only this member, the sender would take its messages for acknowledged.

use std::{fmt::Write as _, net::IpAddr, time::Duration};

use mcrdma::{
    Delegates,
    plan::{Member, Proposal},
};
use prost::Message;
use rustls::{
    RootCertStore, SignatureScheme,
    crypto::{WebPkiSupportedAlgorithms, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use session::certificates::{Certificates, is_certificate_for};
use webpki::{EndEntityCert, KeyUsage};

use crate::proto;

/// Longest delegation; a certificate has about 1 KiB.
pub const DELEGATION_BYTES_MAX: usize = 16 * 1024;
/// How long those of [`Delegating`] are valid.
const LASTS: Duration = Duration::from_secs(24 * 3600);

/// Signs with this host's certificate, for a day: nobody renews these delegations.
#[derive(Clone, Debug)]
pub struct Delegating(pub Certificates);

impl Delegates for Delegating {
    fn delegate(&self, proposal: &Proposal, member: &Member) -> Result<Vec<u8>, String> {
        delegate(&self.0, proposal, member, LASTS)
    }
}

/// Cause of a missing signature that nobody has removed.
const OLDER: &str =
    "is the rdmc of an older version there, at the sender, or at a switch before this one?";

/// What is signed. Distinct from what TLS signs, which begins with 64 spaces.
fn statement(proposal: &Proposal, member: &Member, until: u64) -> String {
    let Proposal { sender, sender_qpn, psn_first, instance } = proposal;
    let Member { address, mac, qpn, psn_offset, regions, delegation: _ } = member;
    let mac = mac.map(|mac| mac.to_string()).unwrap_or_default();
    let mut text = format!(
        "rdmc.control.v1 Delegation until {until}: group {instance:#x} of {sender}, from queue pair {sender_qpn} and \
         packet {}, to queue pair {qpn} of {address} at {mac}, packets {psn_offset} later, memory",
        psn_first.get()
    );
    for mcrdma::Region { start, bytes, member_start, member_key } in regions {
        let _ = write!(text, " {start:#x}+{bytes:#x}={member_start:#x}/{member_key:#x}");
    }
    text
}

/// A delegation of this host, encoded, valid for this long from now on.
///
/// Errors: this host's certificate is not for the member's address, or its key cannot sign; with the remedy.
pub fn delegate(
    certificates: &Certificates,
    proposal: &Proposal,
    member: &Member,
    lasts: Duration,
) -> Result<Vec<u8>, String> {
    let address = member.address;
    let schemes = algorithms().supported_schemes();
    let own = certificates.connecting().client_auth_cert_resolver.resolve(&[], &schemes);
    let own = own.ok_or("this host's certificate has a key of a kind that cannot sign")?;
    if !own.cert.first().is_some_and(|own| is_for(own, address)) {
        return Err(format!(
            "this host receives at {address}, and its certificate is not for that address: issue one with \
             subjectAltName=IP:{address}"
        ));
    }
    let signer = own.key.choose_scheme(&schemes);
    let signer = signer.ok_or("this host's certificate has a key of a kind that cannot sign")?;
    let until = UnixTime::now().as_secs().saturating_add(lasts.as_secs());
    let signature = signer
        .sign(statement(proposal, member, until).as_bytes())
        .map_err(|error| format!("signing with the key of this host's certificate: {error}"))?;
    let delegation = proto::Delegation {
        certificates: own.cert.iter().map(|certificate| certificate.to_vec()).collect(),
        scheme: u16::from(signer.scheme()).into(),
        signature,
        until,
    };
    let encoded = delegation.encode_to_vec();
    check_length(&encoded).map(|()| encoded)
}

/// Verifies a member's delegation of its entry. Returns how long it remains valid.
///
/// Errors: it is not valid; with the member's address, why, and the remedy.
pub fn check(
    authorities: &RootCertStore,
    proposal: &Proposal,
    member: &Member,
) -> Result<Duration, String> {
    let now = UnixTime::now();
    check_at(authorities, proposal, member, now).map_err(|why| {
        let address = member.address;
        format!(
            "{address} has not agreed to receive from queue pair {} of {}: {why}. The daemon or receiver at {address} \
             has to sign that, with a certificate for {address}",
            proposal.sender_qpn, proposal.sender
        )
    })
}

fn check_at(
    authorities: &RootCertStore,
    proposal: &Proposal,
    member: &Member,
    now: UnixTime,
) -> Result<Duration, String> {
    let encoded = &member.delegation;
    if encoded.is_empty() {
        return Err(format!("it has signed nothing ({OLDER})"));
    }
    check_length(encoded)?;
    let delegation = proto::Delegation::decode(&encoded[..]).map_err(|error| error.to_string())?;
    if delegation.until == 0 {
        return Err(format!("its delegation has no end ({OLDER})"));
    }
    let chain: Vec<CertificateDer<'_>> =
        delegation.certificates.iter().map(|der| CertificateDer::from(&der[..])).collect();
    let (own, between) = chain.split_first().ok_or("there is no certificate in its delegation")?;
    if !is_for(own, member.address) {
        return Err("its delegation is signed by another host".to_owned());
    }
    let refused = |error: webpki::Error| format!("its certificate: {error}");
    let certificate = EndEntityCert::try_from(own).map_err(refused)?;
    let (algorithms, usage) = (algorithms(), KeyUsage::server_auth());
    certificate
        .verify_for_usage(algorithms.all, &authorities.roots, between, now, usage, None, None)
        .map_err(refused)?;
    let statement = statement(proposal, member, delegation.until);
    let scheme = u16::try_from(delegation.scheme).map(SignatureScheme::from);
    let is_signed = algorithms
        .mapping
        .iter()
        .filter(|(known, _)| scheme.as_ref().is_ok_and(|scheme| scheme == known))
        .flat_map(|(_, algorithms)| algorithms.iter())
        .any(|algorithm| {
            let signed = (statement.as_bytes(), &delegation.signature[..]);
            certificate.verify_signature(*algorithm, signed.0, signed.1).is_ok()
        });
    if !is_signed {
        return Err("its delegation is for something else".to_owned());
    }
    match delegation.until.checked_sub(now.as_secs()) {
        Some(left) if left > 0 => Ok(Duration::from_secs(left)),
        _ => Err(format!(
            "its delegation has ended {} s ago by the clock here (do the clocks agree?)",
            now.as_secs() - delegation.until
        )),
    }
}

fn check_length(encoded: &[u8]) -> Result<(), String> {
    let bytes = encoded.len();
    if bytes <= DELEGATION_BYTES_MAX {
        return Ok(());
    }
    Err(format!("a delegation of {bytes} bytes; at most {DELEGATION_BYTES_MAX}"))
}

fn is_for(certificate: &CertificateDer<'_>, address: IpAddr) -> bool {
    is_certificate_for(certificate, &ServerName::IpAddress(address.into()))
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    aws_lc_rs::default_provider().signature_verification_algorithms
}

#[cfg(test)]
mod tests {
    use mcrdma::Region;
    use roce::{Mac, Serial};
    use session::certificates::CertificateFiles;
    use testing::Authority;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn proposal() -> Proposal {
        let sender = IpAddr::from([10, 0, 0, 1]);
        Proposal { sender, sender_qpn: 18, psn_first: Serial::new(77), instance: 5 }
    }

    fn member() -> Member {
        Member {
            address: IpAddr::from([10, 0, 0, 2]),
            mac: Some(Mac([2, 0, 0, 0, 0, 2])),
            qpn: 33,
            psn_offset: 4,
            regions: vec![Region { start: 1, bytes: 2, member_start: 3, member_key: 4 }],
            delegation: Vec::new(),
        }
    }

    fn certificates(authority: &Authority, names: &str) -> Certificates {
        let files = authority.issue(names).into_files(|certificate, key, authorities| {
            CertificateFiles { certificate, key, authorities }
        });
        Certificates::read(&files, &[]).unwrap()
    }

    /// As daemons before delegations had an end sent a proof of their addresses.
    fn without_end(delegation: &[u8]) -> Vec<u8> {
        let proof = proto::Delegation::decode(delegation).unwrap();
        proto::Delegation { until: 0, ..proof }.encode_to_vec()
    }

    #[test]
    fn a_delegation_is_valid_for_one_entry_of_one_group_only() {
        let authority = Authority::new("network");
        let host = certificates(&authority, "10.0.0.2,b");
        let agent = certificates(&authority, "tor").authorities();
        let signed = Member {
            delegation: delegate(&host, &proposal(), &member(), HOUR).unwrap(),
            ..member()
        };
        let left = check(&agent, &proposal(), &signed).unwrap();
        assert!(left <= HOUR && left > HOUR / 2, "{left:?}");

        let groups: [fn(&mut Proposal); 4] = [
            |proposal| proposal.sender = IpAddr::from([10, 0, 0, 3]),
            |proposal| proposal.sender_qpn = 19,
            |proposal| proposal.psn_first = Serial::new(78),
            |proposal| proposal.instance = 6,
        ];
        for change in groups {
            let mut other = proposal();
            change(&mut other);
            let refused = check(&agent, &other, &signed).unwrap_err();
            assert!(refused.contains("something else"), "{refused}");
        }
        type Change = (fn(&mut Member), &'static str);
        let changes: [Change; 14] = [
            (|member| member.mac = None, "something else"),
            (|member| member.qpn = 34, "something else"),
            (|member| member.psn_offset = 5, "something else"),
            (|member| member.regions.clear(), "something else"),
            (|member| member.regions[0].start = 9, "something else"),
            (|member| member.regions[0].bytes = 9, "something else"),
            (|member| member.regions[0].member_start = 9, "something else"),
            (|member| member.regions[0].member_key = 9, "something else"),
            (|member| member.address = IpAddr::from([10, 0, 0, 4]), "another host"),
            (|member| member.delegation.clear(), "it has signed nothing (is the rdmc of an older"),
            (
                |member| member.delegation = without_end(&member.delegation),
                "no end (is the rdmc of an",
            ),
            (|member| member.delegation.truncate(100), ""),
            (|member| *member.delegation.last_mut().unwrap() ^= 1, "something else"),
            (|member| member.delegation = vec![0; DELEGATION_BYTES_MAX + 1], "16384"),
        ];
        for (change, why) in changes {
            let mut other = signed.clone();
            change(&mut other);
            let refused = check(&agent, &proposal(), &other).unwrap_err();
            assert!(refused.contains(why), "{refused}");
            let named = format!("{} has not agreed to receive", other.address);
            assert!(refused.contains(&named) && refused.contains("a certificate for"), "{refused}");
        }
        let another = certificates(&Authority::new("another"), "10.0.0.2").authorities();
        let refused = check(&another, &proposal(), &signed).unwrap_err();
        assert!(refused.contains("its certificate"), "{refused}");
    }

    #[test]
    fn it_ends_when_the_member_has_said() {
        let authority = Authority::new("network");
        let host = certificates(&authority, "10.0.0.2");
        let signed = Member {
            delegation: delegate(&host, &proposal(), &member(), HOUR).unwrap(),
            ..member()
        };
        let later = UnixTime::since_unix_epoch(Duration::from_secs(
            UnixTime::now().as_secs() + 2 * HOUR.as_secs(),
        ));
        let refused = check_at(&host.authorities(), &proposal(), &signed, later).unwrap_err();
        assert!(refused.contains("has ended") && refused.contains("clocks"), "{refused}");
    }

    #[test]
    fn hosts_sign_for_the_addresses_of_their_certificates_only() {
        let authority = Authority::new("network");
        let other = certificates(&authority, "10.0.0.3,b");
        let refused = delegate(&other, &proposal(), &member(), HOUR).unwrap_err();
        assert!(refused.contains("subjectAltName=IP:10.0.0.2"), "{refused}");
    }
}
