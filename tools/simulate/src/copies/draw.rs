//! Copies from a seed: mostly small trees that share much with what the host has.

use super::scenario::{
    BESIDE, COPY, CopyFault, CopyScenario, CopySessionPlan, PlannedCopyFault, THIS, Thing, What,
};
use crate::dice::Dice;

/// Distinguishes these random choices from others of the same seed.
const PURPOSE: u64 = 13;

const NAMES: [&str; 6] = ["a", "b", "c", "data", "x.bin", "z"];
const DIRECTORIES: [&str; 3] = ["d", "in", "m"];
/// What only the host has.
const OWN: [&str; 4] = ["own", "other", "own.keep", "old"];
const FILE_MODES: [u16; 7] = [0o644, 0o600, 0o444, 0o400, 0o755, 0o664, 0o666];
const DIRECTORY_MODES: [u16; 6] = [0o755, 0o700, 0o555, 0o500, 0o711, 0o1777];
/// Of the host: also with the set-group-id bit.
const OWN_MODES: [u16; 4] = [0o755, 0o2755, 0o700, 0o555];
/// `EPERM`, `ENOENT`, `EIO`, `ENOMEM`, `EACCES`, `EMFILE`, `ENOSPC`, `EROFS`, `EDQUOT`.
const ERRORS: [i32; 9] = [1, 2, 5, 12, 13, 24, 28, 30, 122];
/// The most calls that a session usually makes.
const CALLS: u64 = 192;
/// The most of them that are on what is open.
const OPEN_CALLS: u64 = 40;

/// Returns the copies of a seed.
pub(super) fn draw(seed: u64) -> CopyScenario {
    let mut dice = Dice::new(seed, PURPOSE);
    let is_tree = dice.percent(85);
    let folds_case = dice.percent(15);
    let versions = if is_tree { trees(&mut dice, folds_case) } else { files(&mut dice) };
    let before = match is_tree {
        true => host_tree(&mut dice, &versions, folds_case),
        false => host_file(&mut dice, &versions),
    };
    let by_contents = dice.percent(30);
    let mut scenario = CopyScenario {
        seed,
        is_tree,
        by_contents,
        atomic: is_tree && dice.percent(30),
        stores: false,
        deletes: is_tree && dice.percent(25),
        top: (is_tree && dice.percent(70))
            .then(|| (u32::from(dice.pick(&DIRECTORY_MODES)), 900 + dice.below(3) as i64)),
        folds_case,
        versions,
        before,
        sessions: Vec::new(),
    };
    for _ in 0..dice.between(1, 4) {
        let version = dice.below(scenario.versions.len() as u64) as usize;
        let faults = faults(&mut dice, &scenario);
        scenario.sessions.push(CopySessionPlan { version, faults });
    }
    scenario.stores = dice.percent(30);
    scenario
}

/// The time tells the contents, so that files of one length and time are equal.
fn file(path: String, bytes: u32, fill: u8, mode: u16) -> Thing {
    let modified_s = 1_000 + i64::from(fill);
    Thing { path, what: What::File { bytes, fill }, mode, modified_s }
}

fn drawn_file(dice: &mut Dice, path: String) -> Thing {
    let bytes = match dice.below(8) {
        0 => 0,
        1 => 70_000,
        _ => dice.magnitude(1, 300) as u32,
    };
    let (fill, mode) = (1 + dice.below(4) as u8, dice.pick(&FILE_MODES));
    file(path, bytes, fill, mode)
}

/// With holes of which some can be holes at the host, too.
fn sparse_file(dice: &mut Dice, path: String) -> Thing {
    let bytes = dice.pick(&[1, 300, 70_000, 300_000]);
    let (fill, mode) = (1 + dice.below(4) as u8, dice.pick(&FILE_MODES));
    let modified_s = 1_100 + i64::from(fill);
    Thing { path, what: What::Sparse { bytes, fill }, mode, modified_s }
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// The paths of directories among these, and the top.
fn directories(things: &[Thing]) -> Vec<String> {
    let inner = things.iter().filter(|thing| thing.what == What::Directory);
    std::iter::once(String::new()).chain(inner.map(|thing| thing.path.clone())).collect()
}

fn has(things: &[Thing], path: &str) -> bool {
    things.iter().any(|thing| thing.path == path)
}

fn trees(dice: &mut Dice, folds_case: bool) -> Vec<Vec<Thing>> {
    let mut first = Vec::new();
    for _ in 0..dice.between(1, 10) {
        add_entry(dice, &mut first, folds_case);
    }
    let mut versions = vec![first];
    for _ in 0..dice.below(3) {
        let mut next = dice.pick(&versions);
        for _ in 0..dice.between(1, 4) {
            change(dice, &mut next, folds_case);
        }
        versions.push(next);
    }
    versions
}

/// Adds an entry that is not there, if one is found.
fn add_entry(dice: &mut Dice, things: &mut Vec<Thing>, folds_case: bool) {
    let parent = dice.pick(&directories(things));
    let is_directory = dice.percent(30);
    let name = if is_directory { dice.pick(&DIRECTORIES) } else { dice.pick(&NAMES) };
    let is_upper = dice.percent(if folds_case { 8 } else { 2 });
    let name = if is_upper { name.to_uppercase() } else { name.to_owned() };
    let path = join(&parent, &name);
    if has(things, &path) {
        return;
    }
    let files = things.iter().filter(|thing| thing.what.is_file());
    // A further name comes after the file in order.
    let firsts: Vec<Thing> = files
        .filter(|thing| tree::compare(thing.path.as_bytes(), path.as_bytes()).is_lt())
        .cloned()
        .collect();
    let thing = match dice.below(10) {
        _ if is_directory => {
            let (mode, modified_s) = (dice.pick(&DIRECTORY_MODES), 500 + dice.below(3) as i64);
            Thing { path, what: What::Directory, mode, modified_s }
        }
        0 => {
            let target = dice.pick(&["a", "nowhere", "../c", "."]).to_owned();
            Thing { path, what: What::Link(target), mode: 0o777, modified_s: 700 }
        }
        1 if !firsts.is_empty() => {
            let first = dice.pick(&firsts);
            Thing { path, what: What::Name(first.path.clone()), ..first }
        }
        2 => sparse_file(dice, path),
        _ => drawn_file(dice, path),
    };
    things.push(thing);
}

/// Makes another version.
fn change(dice: &mut Dice, things: &mut Vec<Thing>, folds_case: bool) {
    let index = dice.below(things.len() as u64) as usize;
    let is_file = things[index].what.is_file();
    let is_first = |thing: &Thing| thing.what == What::Name(things[index].path.clone());
    let is_linked = things.iter().any(is_first);
    match dice.below(4) {
        0 | 1 if is_file && !is_linked => {
            things[index] = drawn_file(dice, things[index].path.clone());
        }
        // Without what is in it, or is a further name of it.
        2 if things.len() > 1 && !is_linked => {
            let path = things.remove(index).path;
            let below = format!("{path}/");
            let gone: Vec<String> = things
                .iter()
                .filter(|thing| thing.path.starts_with(&below))
                .map(|thing| thing.path.clone())
                .collect();
            let is_gone = |path: &String| gone.contains(path);
            things.retain(|thing| {
                let is_name = matches!(&thing.what, What::Name(first) if is_gone(first));
                !is_gone(&thing.path) && !is_name
            });
            if things.is_empty() {
                things.push(drawn_file(dice, "a".to_owned()));
            }
        }
        _ => add_entry(dice, things, folds_case),
    }
}

fn files(dice: &mut Dice) -> Vec<Vec<Thing>> {
    (0..dice.between(1, 2)).map(|_| vec![drawn_file(dice, COPY.to_owned())]).collect()
}

fn host_file(dice: &mut Dice, versions: &[Vec<Thing>]) -> Vec<Thing> {
    let mut before = vec![drawn_file(dice, "other".to_owned())];
    let like = &dice.pick(versions)[0];
    let copy = || COPY.to_owned();
    match dice.below(8) {
        0 | 1 => {}
        2 => before.push(like.clone()),
        3 => before.push(Thing { mode: dice.pick(&FILE_MODES), ..like.clone() }),
        4 => {
            let what =
                What::Link(dice.pick(&["other", "beside/private file", "beside"]).to_owned());
            before.push(Thing { path: copy(), what, mode: 0o777, modified_s: 1 });
        }
        5 => {
            let what = What::Name("other".to_owned());
            before.push(Thing { path: copy(), what, mode: 0o644, modified_s: 1 });
        }
        6 => {
            let (what, mode) = (What::Directory, 0o755);
            before.push(Thing { path: copy(), what, mode, modified_s: 600 });
        }
        _ => before.push(drawn_file(dice, copy())),
    }
    before
}

fn host_tree(dice: &mut Dice, versions: &[Vec<Thing>], folds_case: bool) -> Vec<Thing> {
    let mut before = Vec::new();
    let top = |what| Thing { path: COPY.to_owned(), what, mode: 0o644, modified_s: 600 };
    match dice.below(20) {
        0..=2 => return before,
        3 => return vec![top(What::File { bytes: 5, fill: 9 })],
        4 => return vec![top(What::Link(dice.pick(&["beside/private", "nowhere"]).to_owned()))],
        _ => before.push(Thing { mode: dice.pick(&OWN_MODES), ..top(What::Directory) }),
    }
    for thing in &dice.pick(versions) {
        let mut thing = thing.clone();
        match dice.below(13) {
            0 | 1 => continue,
            2 if thing.what.is_file() => {
                thing = drawn_file(dice, thing.path);
            }
            3 | 12 => {
                let is_directory = thing.what == What::Directory;
                thing.mode =
                    if is_directory { dice.pick(&OWN_MODES) } else { dice.pick(&FILE_MODES) };
            }
            4 => thing.what = What::Link(dice.pick(&["a", "../beside/private"]).to_owned()),
            5 if dice.percent(30) => (thing.what, thing.mode) = (What::Directory, 0o755),
            6 => thing = file(thing.path, 5, 9, 0o644),
            _ => {}
        }
        if folds_case && dice.percent(20) {
            thing.path = thing.path.to_uppercase();
        }
        thing.path = join(COPY, &thing.path);
        if let What::Name(first) = &thing.what {
            thing.what = What::Name(join(COPY, first));
        }
        before.push(thing);
    }
    for _ in 0..dice.below(6) {
        add_own(dice, &mut before);
    }
    before
}

/// Adds what only the host has.
fn add_own(dice: &mut Dice, before: &mut Vec<Thing>) {
    let inside: Vec<String> =
        directories(before).into_iter().filter(|path| !path.is_empty()).collect();
    let path = join(&dice.pick(&inside), dice.pick(&OWN));
    if has(before, &path) {
        return;
    }
    let files = before.iter().filter(|thing| thing.what.is_file());
    let firsts: Vec<String> = files.map(|thing| thing.path.clone()).collect();
    let mode = dice.pick(&OWN_MODES);
    let thing = match dice.below(8) {
        0 | 1 => Thing { path, what: What::Directory, mode, modified_s: 601 },
        2 => {
            let target = dice.pick(&["nowhere", "../beside/private"]).to_owned();
            Thing { path, what: What::Link(target), mode: 0o777, modified_s: 602 }
        }
        3 if !firsts.is_empty() => {
            Thing { path, what: What::Name(dice.pick(&firsts)), mode: 0o644, modified_s: 603 }
        }
        _ => file(path, 20 + dice.below(20) as u32, 10 + dice.below(50) as u8, 0o640),
    };
    before.push(thing);
}

fn faults(dice: &mut Dice, scenario: &CopyScenario) -> Vec<PlannedCopyFault> {
    let mut faults = Vec::new();
    let count = match dice.below(10) {
        0 => 0,
        1..=4 => 1,
        5..=7 => 2,
        _ => dice.between(3, 6),
    };
    // Others and the session itself disturb each other only now and then.
    let acts = dice.percent(60);
    for _ in 0..count {
        let most = if dice.percent(50) { CALLS } else { CALLS / 3 };
        let call = dice.below(most);
        let what = match (acts, dice.below(10)) {
            (true, 0) | (false, 0..=5) => CopyFault::Kill,
            (true, 1) | (false, _) => CopyFault::Fail(dice.pick(&ERRORS)),
            _ => act(dice, scenario),
        };
        // Between opening something and changing it.
        let on_open = acts && dice.percent(30);
        faults.push(match on_open {
            true => {
                let (call, this) = (dice.below(OPEN_CALLS), THIS.to_owned());
                let what = if dice.percent(60) { CopyFault::SwapForLink(this) } else { what };
                PlannedCopyFault { call, on_open, what }
            }
            false => PlannedCopyFault { call, on_open, what },
        });
    }
    if acts && scenario.atomic && dice.percent(20) {
        faults.extend(create_own(dice, scenario));
    }
    faults.sort_by_key(|planned| planned.call);
    faults
}

/// A name of the host's own gets free between the exchange of directories and the move of what only the host has.
fn create_own(dice: &mut Dice, scenario: &CopyScenario) -> Option<PlannedCopyFault> {
    let is_own = |path: &String| OWN.contains(&path.rsplit('/').next().unwrap_or(path));
    let there = scenario.before.iter().map(|thing| thing.path.clone());
    let own: Vec<String> = there.filter(is_own).collect();
    let what = CopyFault::Create((!own.is_empty()).then(|| dice.pick(&own))?);
    Some(PlannedCopyFault { call: dice.below(CALLS / 3), on_open: false, what })
}

/// A path that a session changes, one that only the host has, or that the call is about.
fn path(dice: &mut Dice, scenario: &CopyScenario) -> String {
    if dice.percent(40) {
        return THIS.to_owned();
    }
    let listed = |thing: &Thing| match scenario.is_tree {
        true => join(COPY, &thing.path),
        false => thing.path.clone(),
    };
    let listed: Vec<String> = scenario.versions.iter().flatten().map(listed).collect();
    let there: Vec<String> = scenario.before.iter().map(|thing| thing.path.clone()).collect();
    match dice.below(10) {
        0 => COPY.to_owned(),
        1..=5 => dice.pick(&listed),
        _ if there.is_empty() => COPY.to_owned(),
        _ => dice.pick(&there),
    }
}

/// A name that nothing has.
fn new_path(dice: &mut Dice, scenario: &CopyScenario) -> String {
    let name = format!("new {}", dice.below(100));
    if !scenario.is_tree || dice.percent(10) {
        return name;
    }
    let things = scenario.versions.iter().flatten().cloned().collect::<Vec<_>>();
    join(COPY, &join(&dice.pick(&directories(&things)), &name))
}

fn act(dice: &mut Dice, scenario: &CopyScenario) -> CopyFault {
    let one = path(dice, scenario);
    let new = new_path(dice, scenario);
    match dice.below(20) {
        0..=2 => CopyFault::Write(one),
        3 | 4 => CopyFault::Create(if dice.percent(50) { new } else { one }),
        5..=7 => CopyFault::Replace(one),
        8 | 9 => CopyFault::Remove(one),
        10 => CopyFault::Move(one, join(BESIDE, "theirs")),
        11 => CopyFault::Move(one, new),
        12 | 13 => {
            CopyFault::ChangeMode(one, dice.pick(&[0o700, 0o755, 0o744, 0o711, 0o777, 0o500]))
        }
        14 => CopyFault::MakeDirectory(if dice.percent(50) { new } else { one }),
        15 => CopyFault::Link(one, new),
        16..=18 => CopyFault::SwapForLink(one),
        _ => CopyFault::SwapForDirectory(one),
    }
}
