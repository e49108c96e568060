//! Options for the authentication of roots and listening receivers.

use std::{
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rdmc::Secret;
use rustix::{fs::fgetxattr, process::geteuid};
use session::{CertificateFiles, Certificates, Credentials};

use crate::{failure::Failure, input, output::InUse};

/// Read and write permission of group and others.
const SHARED: u32 = 0o066;
/// Read permission of group.
const GROUP_READS: u32 = 0o040;

/// The longest value of an extended attribute (xattr(7)).
const ACCESS_LIST_BYTES_MAX: usize = 64 << 10;
/// Kinds of entries of access lists, `ACL_USER` and `ACL_GROUP` of the system's linux/posix_acl.h.
const LISTED_USER: u16 = 2;
const LISTED_GROUP: u16 = 8;

/// A shared secret, or certificates.
#[derive(Debug, clap::Args)]
#[group(id = "credentials", multiple = true)]
pub struct CredentialFiles {
    /// Shared secret of roots and receivers that listen, as printed by `rdmc secret`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cert", "key", "ca"])]
    secret_file: Option<PathBuf>,

    /// Instead of a secret: this host's X.509 certificate (PEM), followed by intermediate certificates
    ///
    /// A receiver's certificate must have the HOST that roots connect to as a name (subjectAltName).
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    cert: Option<PathBuf>,

    /// Private key of --cert (PEM, not encrypted)
    #[arg(long, value_name = "FILE", requires_all = ["cert", "ca"])]
    key: Option<PathBuf>,

    /// Certificate authorities (PEM), one of which must have issued the peer's certificate
    #[arg(long, value_name = "FILE", requires_all = ["cert", "key"])]
    ca: Option<PathBuf>,
}

impl CredentialFiles {
    /// Adds the files of these options to the files in use.
    pub fn add_to(&self, in_use: &mut InUse) {
        let files = [&self.secret_file, &self.cert, &self.key, &self.ca];
        for (option, path) in ["--secret-file", "--cert", "--key", "--ca"].into_iter().zip(files) {
            if let Some(path) = path {
                in_use.add(option, path);
            }
        }
    }

    /// Reads the credentials; `None` if no option was given. `allowed`: the names of roots that a listening receiver accepts;
    /// empty for all.
    ///
    /// Errors: a file is unreadable or invalid, or others can read or change the secret or key; names the file.
    pub fn read(&self, allowed: &[String]) -> Result<Option<Credentials>, Failure> {
        if let Some(path) = &self.secret_file {
            return read_secret(path).map(|secret| Some(Credentials::Secret(secret)));
        }
        let (Some(certificate), Some(key), Some(authorities)) = (&self.cert, &self.key, &self.ca)
        else {
            return Ok(None);
        };
        let opened = open_private("--key", key)?;
        let (certificate, key) = (certificate.clone(), key.clone());
        let files = CertificateFiles { certificate, key, authorities: authorities.clone() };
        let certificates = Certificates::read_with_key(&files, opened, allowed);
        let certificates = certificates.map_err(Failure::because)?;
        Ok(Some(Credentials::Certificates(certificates)))
    }
}

fn read_secret(path: &Path) -> Result<Secret, Failure> {
    let file = open_private("--secret-file", path)?;
    let text = input::read_opened(path, file, input::SECRET_BYTES_MAX)?;
    Secret::from_hex(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Opens a private file, and refuses it if others can read or change it, as ssh does (docs/guide/security.md).
///
/// Group may read files that belong to root: Kubernetes (`fsGroup`) provides secrets to other users this way, and Debian keys to
/// its group `ssl-cert`; systemd (`LoadCredential=`) adds the user to the file's access list, which appears as permissions of
/// group. Pipes are not checked. Only its owner can open a file without a name (memfd_create(2); some shells use such files
/// for `<<<`), whatever its mode.
fn open_private(option: &str, path: &Path) -> Result<File, Failure> {
    let file = input::open(path)?;
    let shown = path.display();
    let metadata = file.metadata().map_err(|error| Failure::Io(shown.to_string(), error))?;
    if !metadata.is_file() {
        return Ok(file);
    }
    let (owner, own) = (metadata.uid(), geteuid().as_raw());
    if owner != own && owner != 0 {
        return Err(Failure::Usage(format!(
            "{option}: {shown} belongs to another user (uid {owner}), who can change it: chown {own} {shown}"
        )));
    }
    if metadata.nlink() == 0 {
        return Ok(file);
    }
    let group_reads = owner == 0 && !lists_others(&access_list(&file), own);
    let forbidden = if group_reads { SHARED & !GROUP_READS } else { SHARED };
    if metadata.mode() & forbidden == 0 {
        return Ok(file);
    }
    Err(Failure::Usage(format!(
        "{option}: {shown} can be read or changed by others: chmod 600 {shown}"
    )))
}

/// Returns the file's access list as the system keeps it (acl(5)), empty if there is none.
fn access_list(file: &File) -> Vec<u8> {
    let mut list = vec![0; ACCESS_LIST_BYTES_MAX];
    let bytes = fgetxattr(file, c"system.posix_acl_access", &mut list[..]).unwrap_or(0);
    list.truncate(bytes);
    list
}

/// Returns whether an access list has entries for users other than this one and root, or for groups other than the file's.
fn lists_others(list: &[u8], own: u32) -> bool {
    // After the version, each entry has kind, permissions and number.
    let mut entries = list.get(4..).unwrap_or_default().chunks_exact(8);
    entries.any(|entry| {
        let number = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        match u16::from_le_bytes([entry[0], entry[1]]) {
            LISTED_USER => number != own && number != 0,
            kind => kind == LISTED_GROUP,
        }
    })
}
