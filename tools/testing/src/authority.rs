//! Authorities that issue certificates, made for one test.

use std::{fs, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// The files of one certificate, as an authority issues it.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificate of the authority.
    pub authorities: PathBuf,
}

impl Issued {
    /// As a type of the crate that is tested: from certificate, key and authorities.
    pub fn into_files<F>(self, make: impl FnOnce(PathBuf, PathBuf, PathBuf) -> F) -> F {
        make(self.certificate, self.key, self.authorities)
    }
}

/// An authority, and the files of the certificates that it has issued.
#[derive(Debug)]
pub struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// One of this name, with a key of its own.
    pub fn new(name: &str) -> Self {
        let (directory, key) = (tempfile::tempdir().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        fs::write(directory.path().join("ca.pem"), params.self_signed(&key).unwrap().pem())
            .unwrap();
        Self { directory, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these names, which are separated by commas.
    pub fn issue(&self, names: &str) -> Issued {
        self.issue_with(names, |_| {})
    }

    /// The same with something else about it.
    pub fn issue_with(&self, names: &str, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let list: Vec<String> = names.split(',').map(str::to_owned).collect();
        let (mut params, key) =
            (CertificateParams::new(list).unwrap(), KeyPair::generate().unwrap());
        change(&mut params);
        let issued = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: self.file(&format!("{names}.pem"), &issued.pem()),
            key: self.file(&format!("{names}.key"), &key.serialize_pem()),
            authorities: self.directory.path().join("ca.pem"),
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}
