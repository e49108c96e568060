//! Restricts this process with Landlock: exchanging names below a directory that it serves gives access to no other files.

use std::{
    env,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};

/// What the kernel has to know; older ones do what they can.
const VERSION: ABI = ABI::V3;
/// Libraries of fabrics, which are opened when they are used, and what these read. Nothing there is secret.
const READABLE: [&str; 7] =
    ["/usr", "/lib", "/lib64", "/opt", "/sys", "/etc/ld.so.cache", "/etc/libibverbs.d"];
/// Devices of fabrics.
const WRITABLE: [&str; 1] = ["/dev/infiniband"];

/// Lets this thread, and those that it starts from now on, open no files but those below these directories, for reading; and what
/// networks need. Files that are open stay so.
///
/// False if this kernel has no Landlock (Linux 5.13), or it is off. Errors: the kernel refuses.
pub fn to_reading(directories: &[PathBuf]) -> Result<bool, RulesetError> {
    let (all, read) = (AccessFs::from_all(VERSION), AccessFs::from_read(VERSION));
    let libraries = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let libraries: Vec<PathBuf> = env::split_paths(&libraries).collect();
    let readable = READABLE.iter().map(Path::new);
    let readable = readable.chain(libraries.iter().map(PathBuf::as_path));
    let readable = readable.chain(directories.iter().map(PathBuf::as_path));
    // Those that are missing are left out.
    let RestrictionStatus { ruleset, .. } = Ruleset::default()
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(WRITABLE, all))?
        .restrict_self()?;
    Ok(ruleset != RulesetStatus::NotEnforced)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::ErrorKind, thread};

    use super::*;

    #[test]
    fn nothing_but_what_is_below_the_directories_can_be_opened_and_nothing_written() {
        let all = tempfile::tempdir().unwrap();
        let (served, other) = (all.path().join("served"), all.path().join("other"));
        fs::create_dir_all(served.join("in")).unwrap();
        fs::write(served.join("in/file"), "served").unwrap();
        fs::write(&other, "secret").unwrap();
        std::os::unix::fs::symlink("../other", served.join("out")).unwrap();
        // Only this thread.
        let confined = thread::spawn(move || {
            if !to_reading(std::slice::from_ref(&served)).unwrap() {
                return println!("SKIPPED: this kernel has no Landlock");
            }
            assert_eq!(fs::read_to_string(served.join("in/file")).unwrap(), "served");
            assert_eq!(fs::read_dir(&served).unwrap().count(), 2);
            for out in [other, served.join("out"), "/etc/passwd".into()] {
                let refused = fs::read(&out).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{out:?}");
            }
            for written in
                [fs::write(served.join("in/file"), ""), fs::write(served.join("new"), "")]
            {
                assert_eq!(written.unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
        });
        confined.join().unwrap();
    }
}
