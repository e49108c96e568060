//! Reading of PEM files.

use std::{fs::File, io::Read, path::Path, sync::Arc};

use rustls::{
    Error as TlsError, InconsistentKeys, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use zeroize::Zeroizing;

use super::error::Error;

/// The longest file of certificates or of a key that is read; the systems' own lists of authorities
/// have about 200 KB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads this host's certificate with its key, whose file was opened. Errors: a file cannot be used, or they do not belong
/// together.
pub(crate) fn own_certificate(
    certificate: &Path,
    key: &Path,
    opened: File,
) -> Result<Arc<CertifiedKey>, Error> {
    let chain = certificates(certificate)?;
    let text = read(key, opened)?;
    let private = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let is_encrypted = text.windows(9).any(|part| part == b"ENCRYPTED");
        let remedy = match is_encrypted {
            true => "it is encrypted; `openssl pkey -in FILE -out NEW` decrypts it",
            false => "it should hold the key of this host's certificate in the PEM format",
        };
        wrong(key, format!("no private key in it ({error}); {remedy}"))
    })?;
    let own = CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider());
    own.map(Arc::new).map_err(|error| match error {
        TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            wrong(key, format!("is not the key of the certificate in {}", certificate.display()))
        }
        TlsError::InvalidCertificate(_) => unusable(certificate, error),
        error => unusable(key, error),
    })
}

/// Reads all certificates in a file, as authorities. Errors: there is none, or one cannot be used.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(store)
}

/// Reads all certificates in a file. Errors: there is none.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path, open(path)?)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| wrong(path, format!("is not in the PEM format: {error}")))?;
    if all.is_empty() {
        let remedy = "it should hold BEGIN CERTIFICATE (the PEM format)";
        return Err(wrong(path, format!("no certificate in it; {remedy}")));
    }
    Ok(all)
}

pub(crate) fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| Error::Unreadable { path: path.to_owned(), error })
}

fn read(path: &Path, file: File) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut contents = Zeroizing::new(Vec::new());
    // One more byte than allowed, to detect a longer file.
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut contents)
        .map_err(|error| Error::Unreadable { path: path.to_owned(), error })?;
    if contents.len() as u64 > FILE_BYTES_MAX {
        let most = FILE_BYTES_MAX >> 20;
        return Err(wrong(path, format!("longer than {most} MiB; is it the right file?")));
    }
    Ok(contents)
}

/// Returns the error for a file whose contents TLS cannot use.
pub(crate) fn unusable(path: &Path, error: TlsError) -> Error {
    wrong(path, format!("cannot be used: {error}"))
}

fn wrong(path: &Path, cause: String) -> Error {
    Error::Unusable { path: path.to_owned(), cause }
}
