//! What a process finds credentials and settings by.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// Variables of the environment, as the tools of object stores and hubs read them. An empty one counts as unset.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secret.
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// That of this process, as far as it is text.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        std::env::vars_os().filter_map(text).collect()
    }

    /// The variables whose names begin like this.
    pub(crate) fn beginning(&self, prefix: &str) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.filter(move |(name, _)| name.starts_with(prefix))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A path that a variable names, or one in the home directory.
    pub(crate) fn path_or_home(&self, name: &str, below_home: impl AsRef<Path>) -> Option<PathBuf> {
        let named = self.get(name).map(PathBuf::from);
        named.or_else(|| Some(Path::new(self.get("HOME")?).join(below_home)))
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().filter(|(_, value)| !value.is_empty()).collect())
    }
}
