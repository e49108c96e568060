//! Certificates for the hosts of one run.

use std::{
    fs::OpenOptions,
    io::Write,
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::outcome::Outcome;

/// One certificate for all of these addresses, and its authority's, in files.
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Makes them in a directory. All hosts are this machine, so that one certificate does.
    pub fn make(directory: &Path, addresses: &[IpAddr]) -> Outcome<Self> {
        let own = Self { directory: directory.to_owned() };
        let key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        own.write("ca.pem", &authority.self_signed(&key)?.pem())?;
        let issuer = Issuer::new(authority, key);
        let names: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
        own.write("host.pem", &certificate.pem())?;
        own.write("host.key", &key.serialize_pem())?;
        Ok(own)
    }

    /// The options that name them.
    pub fn options(&self) -> Vec<PathBuf> {
        let option = |name: &str, file: &str| [PathBuf::from(name), self.directory.join(file)];
        [option("--cert", "host.pem"), option("--key", "host.key"), option("--ca", "ca.pem")]
            .concat()
    }

    fn write(&self, name: &str, text: &str) -> Outcome<()> {
        let mut file = OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600);
        Ok(file.open(self.directory.join(name))?.write_all(text.as_bytes())?)
    }
}
