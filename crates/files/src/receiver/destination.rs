//! What a receiver makes, and where.

use std::{
    io,
    path::Path,
    sync::{atomic::AtomicBool, mpsc::Receiver},
};

use rustix::{fs::FileType, io::Errno};

use super::{error::ReceiveError, settings::ReceiverSettings};
use crate::{
    Target, TargetError,
    claim::Owner,
    copy::{Order, Spot, follow, refusal},
    hash::{HashOptions, InPlace, PrefixHasher},
    messages::{Offer, TreeOffer},
    place::Place,
};

/// How often it is looked where a tree goes, if a push that this one has waited for has changed that.
const SPOTS_MAX: usize = 4;
/// What to do with something that is no directory where one has to be.
const REMOVE: &str = "remove it first, or choose another --dest";

/// Claims the offered destination and looks at what is there, or until `stop`. `listing`: of a tree.
///
/// Errors: refused; cannot be written; stopped.
pub(super) fn prepare(
    settings: &ReceiverSettings,
    offer: &Offer,
    listing: Option<Vec<u8>>,
    owner: &Owner,
    stop: &AtomicBool,
) -> Result<Target, ReceiveError> {
    let manifest = offer.manifest.clone();
    let complete = |order: Order| order.dry_run(offer.dry_run).keeping(offer.kept.as_ref());
    let (Some(tree), Some(encoded)) = (&offer.tree, listing) else {
        let place = settings.placement.place(&offer.destination, offer.dry_run)?;
        let order = complete(Order::of_file(&place, &manifest, Some(offer.probe))?)?;
        settings.check_size(order.whole_bytes())?;
        return Ok(Target::prepare_file(place, order, manifest, owner)?);
    };
    let check = |order: &Order| match order.bytes() == manifest.bytes {
        true => settings.check_size(order.whole_bytes()),
        false => Err(ReceiveError::Refused("the list of files has another length".into())),
    };
    if tree.is_file {
        let place = settings.placement.place(&offer.destination, offer.dry_run)?;
        let order = complete(Order::of_listed_file(&manifest.name, &encoded, tree, &place)?)?;
        check(&order)?;
        return Ok(Target::prepare_file(place, order, manifest, owner)?);
    }
    let destination = match offer.destination.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed,
    };
    let path = settings.placement.path(destination)?;
    let prepare_tree = || {
        let order = complete(Order::of_tree(&manifest.name, &encoded, tree, &path)?)?;
        check(&order)?;
        let spot = spot_of_tree(settings, offer, tree, destination)?;
        let prepared = Target::prepare_tree(spot, &path, order, manifest.clone(), owner, stop);
        prepared.map_err(ReceiveError::from)
    };
    let is_other = |prepared: &Result<Target, ReceiveError>| {
        use TargetError::{Appeared, Replaced};
        matches!(prepared, Err(ReceiveError::Target(Appeared(_) | Replaced(_))))
    };
    let mut prepared = prepare_tree();
    for _ in 1..SPOTS_MAX {
        if !is_other(&prepared) {
            break;
        }
        prepared = prepare_tree();
    }
    prepared
}

/// Starts to digest the copy as it arrives; `done` gets the digest. Files of a tree that are kept, which the root has
/// confirmed, are left out.
pub(super) fn start_hasher(
    target: &Target,
    options: HashOptions,
    done: impl FnOnce(io::Result<blake3::Hash>) + Send + 'static,
) -> Result<(PrefixHasher, InPlace), ReceiveError> {
    let started = match target.files().filter(|_| !target.is_file()) {
        None => {
            let path = target.path().to_owned();
            let named = move |digest: io::Result<blake3::Hash>| {
                done(digest.map_err(|error| TargetError::read_back(&path, error)));
            };
            PrefixHasher::start(target.file()?, target.manifest().bytes, options, named)
        }
        Some(files) => PrefixHasher::run(
            move |in_place: &Receiver<_>, stop: &AtomicBool| {
                follow(&files, in_place, stop, &options)
            },
            done,
        ),
    };
    started.map_err(|error| ReceiveError::System(format!("cannot start a thread: {error}")))
}

/// Where a tree goes. Makes the directory of its name if that is missing, as rsync does.
///
/// A symbolic link to a directory is followed if the destination ends in `/`, or if it is the directory that several
/// sources go into. `destination`: without that.
fn spot_of_tree(
    settings: &ReceiverSettings,
    offer: &Offer,
    tree: &TreeOffer,
    destination: &str,
) -> Result<Spot, ReceiveError> {
    let placement = &settings.placement;
    let follows = offer.destination.ends_with('/') || tree.top.is_none();
    let place = match place_in_new(settings, destination, offer.dry_run) {
        Ok(place) => place,
        // A directory without a name of its own, or in one that cannot be read.
        Err(error) => {
            let directory = placement.directory(destination, follows).map_err(|_| error)?;
            return Ok(Spot::Inside(directory, None));
        }
    };
    let path = place.path().to_owned();
    let opened = place.parent().open_directory(place.name());
    match opened {
        Ok(directory) => Ok(Spot::Inside(directory, Some(place))),
        Err(Errno::NOENT) => Ok(Spot::Name(place)),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let occupant = place.occupant();
            let is_directory = occupant == Some(FileType::Directory);
            if is_directory && follows {
                return Ok(Spot::Inside(placement.directory(destination, true)?, None));
            }
            let (kind, remedy) = match is_directory {
                true => (
                    "a symbolic link to a directory",
                    "to write through it, end both the source and --dest with /; or name its target",
                ),
                false if occupant == Some(FileType::RegularFile) => ("a file", REMOVE),
                false => ("not a directory", REMOVE),
            };
            Err(TargetError::InTheWay { path, kind, remedy }.into())
        }
        Err(error) => Err(refusal(&path, "open", 0, error.into()).into()),
    }
}

/// A place whose directory, but not that one's directory, is made if it is missing. In a dry run the place of that directory.
fn place_in_new(
    settings: &ReceiverSettings,
    destination: &str,
    dry_run: bool,
) -> Result<Place, ReceiveError> {
    let parent = Path::new(destination).parent().and_then(Path::to_str);
    match (settings.placement.place(destination, dry_run), parent) {
        (Err(ReceiveError::Target(TargetError::MissingParent(_))), Some(parent))
            if !parent.is_empty() =>
        {
            let directory = settings.placement.place(parent, dry_run)?;
            if dry_run {
                // Nothing is in what is not there either.
                return Ok(directory);
            }
            let made = directory.parent().make_directory(directory.name(), 0o777);
            made.map_err(|error| TargetError::System {
                path: directory.path().to_owned(),
                what: "create",
                error: error.into(),
            })?;
            settings.placement.place(destination, dry_run)
        }
        (place, _) => place,
    }
}
