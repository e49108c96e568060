//! Keys in the files of AWS's tools: those of a profile, as they are written by `aws configure`.

use std::fs;

use crate::environment::Environment;

/// The names in the files, and those of the variables that stand for them.
const KEYS: [(&str, &str); 3] = [
    ("aws_access_key_id", "AWS_ACCESS_KEY_ID"),
    ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
    ("aws_session_token", "AWS_SESSION_TOKEN"),
];
/// By which credentials are found otherwise.
const OTHERS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// Variables that stand for what a profile has and the environment has not.
pub(crate) fn variables(environment: &Environment) -> Vec<(&'static str, String)> {
    let profile = environment.get("AWS_PROFILE").unwrap_or("default");
    let text = |variable, below| {
        let path = environment.path_or_home(variable, below)?;
        fs::read_to_string(path).ok()
    };
    let mut found = Vec::new();
    let has_others = OTHERS.iter().any(|name| environment.get(name).is_some());
    if !has_others && let Some(text) = text("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials") {
        let keys = KEYS.map(|(key, variable)| Some((variable, value(&text, &[profile], key)?)));
        // Those of other kinds have no secret key here.
        if keys[1].is_some() {
            found.extend(keys.into_iter().flatten());
        }
    }
    let has_region =
        ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().any(|name| environment.get(name).is_some());
    if !has_region && let Some(text) = text("AWS_CONFIG_FILE", ".aws/config") {
        let sections = [&format!("profile {profile}"), profile];
        found.extend(value(&text, &sections, "region").map(|region| ("AWS_REGION", region)));
    }
    found
}

/// The value of a key in the first of these sections that has it.
fn value(text: &str, sections: &[&str], key: &str) -> Option<String> {
    sections.iter().find_map(|wanted| {
        let mut is_inside = false;
        text.lines().find_map(|line| {
            if let Some(section) =
                line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next())
            {
                is_inside = section.trim() == *wanted;
            }
            let (name, value) = line.split_once('=').filter(|_| is_inside)?;
            (name.trim() == key && !name.starts_with('#')).then(|| value.trim().to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_keys_and_a_region() {
        let home = std::env::temp_dir().join(format!("rdmc-profile-{}", std::process::id()));
        fs::create_dir_all(home.join(".aws")).unwrap();
        let credentials = "[default]\naws_access_key_id = id\naws_secret_access_key=key=\n[other]\n# aws_secret_access_key = no\n\
                           aws_access_key_id = second\n aws_secret_access_key = third\naws_session_token = fourth\n[sso]\nx = y\n";
        fs::write(home.join(".aws/credentials"), credentials).unwrap();
        fs::write(
            home.join(".aws/config"),
            "[default]\nregion = here\n[profile other]\nregion = there\n",
        )
        .unwrap();
        let found = |more: &[(&str, &str)]| {
            let all = [&[("HOME", home.to_str().unwrap())], more].concat();
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let found = variables(&all.iter().map(owned).collect());
            found.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found(&[]), "id key= here");
        assert_eq!(found(&[("AWS_PROFILE", "other")]), "second third fourth there");
        assert_eq!(found(&[("AWS_PROFILE", "sso")]), "");
        assert_eq!(found(&[("AWS_ACCESS_KEY_ID", "own"), ("AWS_REGION", "r")]), "");
        fs::remove_dir_all(home).unwrap();
    }
}
