//! What a receiver makes: a file or a tree.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{atomic::AtomicBool, mpsc::Receiver},
};

use rdmc::Region;
use tree::Listing;

use super::{error::ReceiveError, settings::ReceiverSettings};
use crate::{
    Target, TargetError, Verified,
    changes::Changes,
    claim::Owner,
    hash::{HashOptions, InPlace, PrefixHasher},
    messages::{Offer, TreeOffer},
    place::Place,
    ranges::Ranges,
    resume::ChunkDigests,
    tree_copy::{TreeOrder, TreeTarget, follow},
};

/// The name in a directory that copies of several sources go into whose lock excludes other such pushes.
const SEVERAL: &str = "sources";

/// What a receiver makes.
pub(super) enum Destination {
    File(Target),
    Tree(TreeTarget),
}

impl Destination {
    /// Claims the offered destination and looks at what is there. `listing`: of a tree.
    ///
    /// Errors: refused; cannot be written.
    pub(super) fn prepare(
        settings: &ReceiverSettings,
        offer: &Offer,
        listing: Option<Vec<u8>>,
        owner: &Owner,
    ) -> Result<Self, ReceiveError> {
        let manifest = offer.manifest.clone();
        let (Some(tree), Some(encoded)) = (offer.tree, listing) else {
            let place = settings.placement.place(&offer.destination)?;
            return Ok(Self::File(Target::prepare(place, manifest, owner, &offer.probe)?));
        };
        let listing = Listing::decode(&encoded).map_err(TargetError::from)?;
        if tree::Layout::of(&listing).bytes() != manifest.bytes {
            return Err(ReceiveError::Refused("the list of files has another length".into()));
        }
        let mut version = blake3::Hasher::new();
        version.update(manifest.name.as_bytes()).update(&[0]).update(&encoded);
        let order = TreeOrder { listing, version: version.finalize(), offer: tree };
        let (place, path) = place_of_tree(settings, &offer.destination, &tree)?;
        Ok(Self::Tree(TreeTarget::prepare(place, path, order, owner)?))
    }

    /// What of a tree stays without being compared.
    pub(super) fn kept(&self) -> Ranges {
        match self {
            Self::File(_) => Ranges::default(),
            Self::Tree(tree) => tree.kept(),
        }
    }

    /// What of the source is there already.
    pub(super) fn changes(&self) -> Changes {
        match self {
            Self::File(file) => file.changes(),
            Self::Tree(tree) => tree.changes(),
        }
    }

    /// See [`Target::chunk_digests`] and [`TreeTarget::chunk_digests`].
    pub(super) fn chunk_digests(
        &mut self,
        stop: &AtomicBool,
    ) -> Result<Option<ChunkDigests>, TargetError> {
        match self {
            Self::File(file) => file.chunk_digests(stop),
            Self::Tree(tree) => tree.chunk_digests(stop),
        }
    }

    /// Begins the copy, of which these ranges are there. Blocks while it copies them, or until `stop`.
    pub(super) fn begin(&mut self, has: &Ranges, stop: &AtomicBool) -> Result<(), TargetError> {
        match self {
            Self::File(file) => file.begin(has, stop),
            Self::Tree(tree) => tree.begin(has, stop),
        }
    }

    pub(super) fn region(&self) -> Result<Region, TargetError> {
        match self {
            Self::File(file) => Ok(file.region()),
            Self::Tree(tree) => tree.region(),
        }
    }

    /// Starts to digest the copy as it arrives; `done` gets the digest. Files of a tree that are kept, which the root
    /// has confirmed, are left out.
    pub(super) fn start_hasher(
        &self,
        options: HashOptions,
        done: impl FnOnce(io::Result<blake3::Hash>) + Send + 'static,
    ) -> Result<(PrefixHasher, InPlace), ReceiveError> {
        let started = match self {
            Self::File(file) => {
                PrefixHasher::start(file.file()?, file.manifest().bytes, options, done)
            }
            Self::Tree(tree) => {
                let files = tree.files();
                let digest = move |in_place: &Receiver<_>, stop: &AtomicBool| match &files {
                    Some(files) => follow(files, in_place, stop, &options),
                    None => Ok(Some(crate::digests::CopyDigest::default().finish())),
                };
                PrefixHasher::run(digest, done)
            }
        };
        started.map_err(|error| ReceiveError::System(format!("cannot start a thread: {error}")))
    }

    /// The path of the copy, or of the directory that several go into.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Tree(tree) => tree.path(),
        }
    }

    /// Leaves what was received for a later session.
    pub(super) fn keep(self) {
        match self {
            Self::File(file) => file.keep(),
            Self::Tree(tree) => tree.keep(),
        }
    }

    /// Leaves what there was before this session, and nothing else.
    pub(super) fn keep_old(self) {
        match self {
            Self::File(file) => file.keep_old(),
            // Its directory is made later.
            Self::Tree(tree) => tree.keep(),
        }
    }

    /// Publishes the copy; true if it was there. Blocks for the disk.
    pub(super) fn publish(self, proof: &Verified) -> Result<bool, TargetError> {
        match self {
            Self::File(file) => file.publish(proof),
            Self::Tree(tree) => tree.publish(proof),
        }
    }
}

/// The place of a tree, and the path for messages: of the copy, or of the directory that several go into. Makes the
/// directory of the place if it is missing, as rsync does.
fn place_of_tree(
    settings: &ReceiverSettings,
    destination: &str,
    tree: &TreeOffer,
) -> Result<(Place, PathBuf), ReceiveError> {
    let trimmed = match destination.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed,
    };
    if tree.top.is_some() {
        let place = place_in_new(settings, trimmed)?;
        let path = place.path().to_owned();
        return Ok((place, path));
    }
    let place = place_in_new(settings, &format!("{trimmed}/{SEVERAL}"))?;
    let path = place.directory().to_owned();
    Ok((place, path))
}

/// A place whose directory, but not that one's directory, is made if it is missing.
fn place_in_new(settings: &ReceiverSettings, destination: &str) -> Result<Place, ReceiveError> {
    let parent = Path::new(destination).parent().and_then(Path::to_str);
    match (settings.placement.place(destination), parent) {
        (Err(ReceiveError::Target(TargetError::MissingParent(_))), Some(parent))
            if !parent.is_empty() =>
        {
            let directory = settings.placement.place(parent)?;
            let made = directory.disk().make_directory(directory.name());
            made.map_err(|error| TargetError::System {
                path: directory.path().to_owned(),
                what: "create",
                error: error.into(),
            })?;
            settings.placement.place(destination)
        }
        (place, _) => place,
    }
}
