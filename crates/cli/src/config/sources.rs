//! The sources of configured options: variables and a file.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use toml::{Spanned, Value};

use super::{
    configured::Configured,
    keys::{KEYS, PATHS},
};
use crate::{failure::Failure, input};

/// Longer files are not configurations.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A variable of this process; an empty one counts as unset.
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The path of the configuration file, if there is one.
pub fn path() -> Option<PathBuf> {
    path_in(&variable).map(|(path, _)| path)
}

/// Looks up a variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The options from variables.
pub fn from_variables(variable: Variables<'_>) -> Result<Vec<Configured>, Failure> {
    let mut all = Vec::new();
    for key in KEYS {
        let name = format!("RDMC_{}", key.to_ascii_uppercase().replace('-', "_"));
        let Some(value) = variable(&name) else { continue };
        let origin = format!("variable {name}");
        let value = value
            .into_string()
            .map_err(|_| Failure::Usage(format!("{origin}: it is not UTF-8 text")))?;
        all.push(Configured { key, value, origin });
    }
    Ok(all)
}

/// The path of the file, and whether it must exist.
fn path_in(variable: Variables<'_>) -> Option<(PathBuf, bool)> {
    if let Some(path) = variable("RDMC_CONFIG") {
        return Some((path.into(), true));
    }
    // The XDG Base Directory Specification requires relative paths to be ignored.
    let xdg = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let directory =
        xdg.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some((directory.join("rdmc/config.toml"), false))
}

/// The options from the file, if there is one.
pub fn from_file(variable: Variables<'_>) -> Result<Vec<Configured>, Failure> {
    let Some((path, must_exist)) = path_in(variable) else { return Ok(Vec::new()) };
    let text = match input::read(&path, FILE_BYTES_MAX) {
        Err(Failure::Io(_, error)) if error.kind() == ErrorKind::NotFound && !must_exist => {
            return Ok(Vec::new());
        }
        Err(Failure::Io(what, error)) if must_exist => {
            return Err(Failure::Usage(format!("RDMC_CONFIG: {what}: {error}")));
        }
        other => other?,
    };
    parse(&path, &text, variable("HOME").map(PathBuf::from).as_deref())
}

/// The options of a file with this text.
fn parse(path: &Path, text: &str, home: Option<&Path>) -> Result<Vec<Configured>, Failure> {
    let at = |offset: usize| {
        let lines = text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n');
        format!("{}, line {}", path.display(), lines.count() + 1)
    };
    let entries: BTreeMap<String, Spanned<Value>> = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Failure::Usage(format!("{}: {}", at(offset), error.message()))
    })?;
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by_key(|(_, value)| value.span().start);
    let mut all = Vec::new();
    for (name, value) in entries {
        let origin = at(value.span().start);
        let wrong = |what: String| Failure::Usage(format!("{origin}: {what}"));
        let Some(key) = KEYS.into_iter().find(|key| *key == name) else {
            let keys = KEYS.join(", ");
            return Err(wrong(format!("there is no key \"{name}\"; the keys are {keys}")));
        };
        let value = match value.into_inner() {
            Value::String(text) if PATHS.contains(&key) => local_path(path, &text, home),
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => return Err(wrong(format!("{key} must be a quoted string or a number"))),
        };
        all.push(Configured { key, value, origin });
    }
    Ok(all)
}

/// A path in this file: `~/` is the home directory; other relative paths start at the file's directory.
fn local_path(file: &Path, text: &str, home: Option<&Path>) -> String {
    let path = match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => file.parent().unwrap_or(Path::new("")).join(text),
    };
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        let error = |text: &str| {
            let parsed = parse(Path::new("/etc/c.toml"), text, None);
            let checked = parsed.and_then(|all| {
                all.iter().try_for_each(|configured| configured.check(&Cli::command()))
            });
            checked.unwrap_err().to_string()
        };
        for (text, line, remedy) in [
            ("retry = 1\n\ncolour = \"red\"", 3, "the keys are advertise, bwlimit, ca, "),
            ("\nremote_rdmc = \"x\"", 2, "remote-rdmc"),
            (
                "rate = \"1gbit\"\nprogress = \"often\"",
                2,
                "possible values: auto, plain, json, none",
            ),
            ("rate = 10", 1, "use for example 250mbit"),
            ("# rates\nmin-rate = [1]", 2, "must be a quoted string or a number"),
            ("retry = true", 1, "must be a quoted string or a number"),
            ("[push]\nretry = 1", 1, "there is no key \"push\""),
            ("retry = 1\nretry = 2", 2, "duplicate key"),
            ("retry 1", 1, ""),
        ] {
            let error = error(text);
            assert!(error.starts_with(&format!("/etc/c.toml, line {line}: ")), "{text:?}: {error}");
            assert!(error.contains(remedy), "{text:?}: {error}");
        }
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let text = "ca = \"~/ca.pem\"\ncert = \"/c.pem\"\nkey = \"k.pem\"\nremote-rdmc = \"~/rdmc\"\n\
                    failure-deadline = 2.5\nretry = 3";
        let all = parse(Path::new("/etc/c.toml"), text, Some(Path::new("/home/me"))).unwrap();
        let pairs: Vec<_> = all.iter().map(|found| (found.key, found.value.as_str())).collect();
        let expected = [
            ("ca", "/home/me/ca.pem"),
            ("cert", "/c.pem"),
            ("key", "/etc/k.pem"),
            ("remote-rdmc", "~/rdmc"),
            ("failure-deadline", "2.5"),
            ("retry", "3"),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn the_file_is_found_by_variables() {
        let path = |variables: &[(&str, &str)]| {
            path_in(&|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let home = ("HOME", "/home/me");
        assert_eq!(path(&[home]), Some(("/home/me/.config/rdmc/config.toml".into(), false)));
        let xdg = ("XDG_CONFIG_HOME", "/xdg");
        assert_eq!(path(&[home, xdg]), Some(("/xdg/rdmc/config.toml".into(), false)));
        assert_eq!(path(&[home, xdg, ("RDMC_CONFIG", "mine")]), Some(("mine".into(), true)));
        assert_eq!(path(&[("XDG_CONFIG_HOME", "relative")]), None);
    }
}
