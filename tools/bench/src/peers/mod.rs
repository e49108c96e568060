//! Programs of others in the same lab or on the same machine: how they are compiled, started, and read until they have reported their
//! times. Broadcasts beside rdmc are in tools/compare.

pub mod meeting;
pub mod mpi;
pub mod site;
pub mod turn;
pub mod workspace;

/// Those of these Debian packages that are installed, with their versions.
pub fn versions(packages: &[&str]) -> Option<String> {
    let mut query = std::process::Command::new("dpkg-query");
    let output =
        query.args(["-W", "-f", "${Package} ${Version}, "]).args(packages).output().ok()?;
    let list = String::from_utf8(output.stdout).ok()?;
    Some(list.trim_end_matches(", ").to_owned()).filter(|list| !list.is_empty())
}
