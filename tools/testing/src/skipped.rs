//! What could not be tested.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    sync::Mutex,
};

/// Says once what is not tested, also if the test passes: not by a macro, whose text the test program then keeps for itself.
pub fn skipped(what: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap().insert(what.into()) {
        let _ = writeln!(io::stderr(), "SKIPPED: {what}");
    }
}
