//! Options for the authentication of roots and listening receivers.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rdmc::Secret;
use session::{CertificateFiles, Certificates, Credentials};

use crate::{failure::Failure, input, output::InUse};

/// Read and write permission of group and others.
const SHARED: u32 = 0o066;
/// Read permission of group.
const GROUP_READS: u32 = 0o040;

/// A shared secret, or certificates.
#[derive(Debug, clap::Args)]
#[group(id = "credentials", multiple = true)]
pub struct CredentialFiles {
    /// The shared secret of roots and receivers that listen, as printed by `rdmc secret`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cert", "key", "ca"])]
    secret_file: Option<PathBuf>,

    /// Instead of a secret: this host's X.509 certificate (PEM), followed by the intermediate ones
    ///
    /// A receiver's must be for the HOST that roots connect to (subjectAltName).
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    cert: Option<PathBuf>,

    /// The private key of --cert (PEM, not encrypted)
    #[arg(long, value_name = "FILE", requires_all = ["cert", "ca"])]
    key: Option<PathBuf>,

    /// The authorities (PEM), one of which must have issued the other end's certificate
    #[arg(long, value_name = "FILE", requires_all = ["cert", "key"])]
    ca: Option<PathBuf>,
}

impl CredentialFiles {
    /// Adds the files that these options name.
    pub fn add_to(&self, in_use: &mut InUse) {
        let files = [&self.secret_file, &self.cert, &self.key, &self.ca];
        for (option, path) in ["--secret-file", "--cert", "--key", "--ca"].into_iter().zip(files) {
            if let Some(path) = path {
                in_use.add(option, path);
            }
        }
    }

    /// Reads them; none if none are given. `allowed`: the names of roots that a listening receiver accepts; empty for
    /// all.
    ///
    /// Errors: unreadable, invalid, or a secret or key that others can read or change; names the file.
    pub fn read(&self, allowed: &[String]) -> Result<Option<Credentials>, Failure> {
        if let Some(path) = &self.secret_file {
            return read_secret(path).map(|secret| Some(Credentials::Secret(secret)));
        }
        let (Some(certificate), Some(key), Some(authorities)) = (&self.cert, &self.key, &self.ca)
        else {
            return Ok(None);
        };
        refuse_shared("--key", key)?;
        let (certificate, key) = (certificate.clone(), key.clone());
        let files = CertificateFiles { certificate, key, authorities: authorities.clone() };
        let certificates = Certificates::read(&files, allowed).map_err(Failure::because)?;
        Ok(Some(Credentials::Certificates(certificates)))
    }
}

fn read_secret(path: &Path) -> Result<Secret, Failure> {
    refuse_shared("--secret-file", path)?;
    let text = input::read(path, input::SECRET_BYTES_MAX)?;
    Secret::from_hex(&text).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}

/// Refuses a private file that others can read or change, as ssh does (docs/security.md).
///
/// Group may read a file of root's: so Kubernetes (`fsGroup`) and systemd (`LoadCredential=`) give secrets to users
/// other than root, and Debian keys to its group `ssl-cert`. Pipes are not files, and a file that has no name any more
/// (what some shells make of `<<<`, memfd_create(2)) can be opened by nobody else, whatever its mode.
fn refuse_shared(option: &str, path: &Path) -> Result<(), Failure> {
    // If it cannot be read, reading it reports that.
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let forbidden = if metadata.uid() == 0 { SHARED & !GROUP_READS } else { SHARED };
    if !metadata.is_file() || metadata.nlink() == 0 || metadata.mode() & forbidden == 0 {
        return Ok(());
    }
    let path = path.display();
    Err(Failure::Usage(format!(
        "{option}: {path} can be read or changed by others: chmod 600 {path}"
    )))
}
