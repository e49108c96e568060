//! How many calls that change or open something a session makes for each file.

use super::*;

/// The calls of a session with this many files of 10 bytes, and those of the same one again.
fn calls_with(files: usize) -> (u64, u64) {
    let entry = |number: usize| Entry {
        path: format!("{number:03}").into(),
        kind: Kind::File { bytes: 10 },
        mode: 0o600,
        modified_ns: 7 * TIME_NS,
    };
    let listing = Listing::new((0..files).map(entry).collect()).unwrap();
    let source =
        Source::tree(7).with(|it| (it.listing, it.contents) = (listing, vec![7; files * 10]));
    let directory = in_memory();
    let path = directory.path().join("copy");
    let [first, again] = [(); 2].map(|()| {
        let session = source.session(&path, Fault::None);
        session.outcome.unwrap();
        source.assert_is_at(&path, &Extras::default(), "after a session");
        session.faults.calls()
    });
    (first, again)
}

#[test]
fn a_small_file_is_opened_once() {
    // More than are written to disk one by one.
    let ((some, some_again), (more, more_again)) = (calls_with(300), calls_with(500));
    // These sessions read each file for its digest. Before that it is created, written and gets its time.
    assert_eq!(more_again - some_again, 200);
    assert_eq!(more - some, 200 * (3 + 1));
}
