//! Delegation: a member's daemon signs that a sender may use the member's addresses for its virtual peer,
//! and that the switch may answer ARP and neighbour discovery for them. It is valid for one group: the
//! sender's queue pair and first packet number are signed, too.

use std::net::IpAddr;

use certificates::{Certificates, is_certificate_for};
use mcrdma::plan::Group;
use prost::Message;
use roce::Mac;
use rustls::{
    RootCertStore, SignatureScheme,
    crypto::{WebPkiSupportedAlgorithms, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use webpki::{EndEntityCert, KeyUsage};

use crate::{host::Terms, proto};

/// Longest proof; a certificate has about 1 KiB.
const PROOF_BYTES_MAX: usize = 16 * 1024;

/// A group for which a member delegates its addresses.
pub struct Delegation {
    sender: IpAddr,
    sender_qpn: u32,
    psn_first: u32,
}

impl Delegation {
    /// For a group as it is offered to members.
    pub const fn for_terms(terms: &Terms) -> Self {
        let Terms { sender, sender_qpn, psn_first, .. } = *terms;
        Self { sender, sender_qpn, psn_first }
    }

    /// For a group as it is installed in switches.
    pub const fn for_group(group: &Group) -> Self {
        let psn_first = group.psn_first.get();
        Self { sender: group.key.sender, sender_qpn: group.sender_qpn, psn_first }
    }

    /// Distinct from what TLS signs, which begins with 64 spaces.
    fn statement(&self, address: IpAddr, mac: Mac) -> String {
        let Self { sender, sender_qpn, psn_first } = self;
        format!(
            "rdmc.control.v1 Proof: queue pair {sender_qpn} of {sender}, whose first packet is {psn_first}, may send to {address}, which is at {mac}"
        )
    }

    /// An encoded proof. `None`: this host's certificate is not for the address.
    pub fn prove(&self, certificates: &Certificates, address: IpAddr, mac: Mac) -> Option<Vec<u8>> {
        let schemes = algorithms().supported_schemes();
        let own = certificates.connecting().client_auth_cert_resolver.resolve(&[], &schemes)?;
        let is_own = is_certificate_for(own.cert.first()?, &ServerName::IpAddress(address.into()));
        let signer = own.key.choose_scheme(&schemes).filter(|_| is_own)?;
        let signature = signer.sign(self.statement(address, mac).as_bytes()).ok()?;
        let proof = proto::Proof {
            certificates: own.cert.iter().map(|certificate| certificate.to_vec()).collect(),
            scheme: u16::from(signer.scheme()).into(),
            signature,
        };
        Some(proof.encode_to_vec()).filter(|bytes| bytes.len() <= PROOF_BYTES_MAX)
    }

    /// Verifies the group's proof.
    ///
    /// Errors: why it is not valid.
    pub fn check(&self, authorities: &RootCertStore, group: &Group) -> Result<(), String> {
        if group.proof.len() > PROOF_BYTES_MAX {
            return Err(format!("{} bytes; at most {PROOF_BYTES_MAX}", group.proof.len()));
        }
        let proof = proto::Proof::decode(&*group.proof).map_err(|error| error.to_string())?;
        let chain: Vec<CertificateDer<'_>> =
            proof.certificates.iter().map(|der| CertificateDer::from(&der[..])).collect();
        let (own, between) = chain.split_first().ok_or("there is no certificate in it")?;
        let refused = |error: webpki::Error| format!("its certificate: {error}");
        let certificate = EndEntityCert::try_from(own).map_err(refused)?;
        let (algorithms, usage) = (algorithms(), KeyUsage::server_auth());
        certificate
            .verify_for_usage(
                algorithms.all,
                &authorities.roots,
                between,
                UnixTime::now(),
                usage,
                None,
                None,
            )
            .map_err(refused)?;
        if !is_certificate_for(own, &ServerName::IpAddress(group.virtual_address.into())) {
            return Err("its certificate is for another host".to_owned());
        }
        let statement = self.statement(group.virtual_address, group.virtual_mac);
        let scheme = u16::try_from(proof.scheme).map(SignatureScheme::from);
        let is_signed = algorithms
            .mapping
            .iter()
            .filter(|(known, _)| scheme.as_ref().is_ok_and(|scheme| scheme == known))
            .flat_map(|(_, algorithms)| algorithms.iter())
            .any(|algorithm| {
                let signed = (statement.as_bytes(), &proof.signature[..]);
                certificate.verify_signature(*algorithm, signed.0, signed.1).is_ok()
            });
        if is_signed { Ok(()) } else { Err("it is signed for something else".to_owned()) }
    }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    ring::default_provider().signature_verification_algorithms
}

#[cfg(test)]
mod tests {
    use certificates::CertificateFiles;
    use mcrdma::GroupKey;
    use roce::Serial;
    use testing::Authority;

    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn group(proof: Vec<u8>) -> Group {
        Group {
            key: GroupKey { sender: IpAddr::from([10, 0, 0, 1]), id: 0x80_0001 },
            sender_mac: None,
            sender_qpn: 18,
            psn_first: Serial::new(77),
            virtual_address: IpAddr::from([10, 0, 0, 2]),
            virtual_mac: MAC,
            proof,
            all_notifications: false,
            members: Vec::new(),
        }
    }

    fn certificates(authority: &Authority, names: &str) -> Certificates {
        let files = authority.issue(names).into_files(|certificate, key, authorities| {
            CertificateFiles { certificate, key, authorities }
        });
        Certificates::read(&files, &[]).unwrap()
    }

    #[test]
    fn a_delegation_is_valid_for_the_members_addresses_and_this_group_only() {
        let authority = Authority::new("network");
        let member = certificates(&authority, "10.0.0.2,b");
        let unsigned = group(Vec::new());
        let delegation = Delegation::for_group(&unsigned);
        let proof = delegation.prove(&member, unsigned.virtual_address, MAC).unwrap();
        let agent = certificates(&authority, "tor").authorities();
        let check = |group: &Group| Delegation::for_group(group).check(&agent, group);
        assert_eq!(check(&group(proof.clone())), Ok(()));

        type Change = fn(&mut Group);
        let changes: [(Change, &str); 7] = [
            (|group| group.virtual_mac.0[5] = 3, "something else"),
            (|group| group.sender_qpn = 19, "something else"),
            (|group| group.psn_first = Serial::new(78), "something else"),
            (|group| group.key.sender = IpAddr::from([10, 0, 0, 3]), "something else"),
            (|group| group.virtual_address = IpAddr::from([10, 0, 0, 4]), "another host"),
            (|group| *group.proof.last_mut().unwrap() ^= 1, "something else"),
            (|group| group.proof.truncate(100), ""),
        ];
        for (change, why) in changes {
            let mut other = group(proof.clone());
            change(&mut other);
            let refused = check(&other).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let long = check(&group(vec![0; PROOF_BYTES_MAX + 1])).unwrap_err();
        assert!(long.contains("16384"), "{long}");
        let another = certificates(&Authority::new("another"), "10.0.0.2").authorities();
        let refused = delegation.check(&another, &group(proof)).unwrap_err();
        assert!(refused.contains("certificate"), "{refused}");
    }

    #[test]
    fn addresses_of_other_certificates_are_not_delegated() {
        let authority = Authority::new("network");
        let delegation = Delegation::for_group(&group(Vec::new()));
        let other = certificates(&authority, "10.0.0.3,b");
        assert_eq!(delegation.prove(&other, IpAddr::from([10, 0, 0, 2]), MAC), None);
    }
}
