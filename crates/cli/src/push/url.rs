//! URLs among the sources of a push.

use std::path::Path;

/// Whether a source is a URL and no path.
pub fn is_url(source: &Path) -> bool {
    let Some((scheme, _)) = source.to_str().and_then(|text| text.split_once("://")) else {
        return false;
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_part)
}

/// A URL for messages: without user, query and fragment, which may be secret.
pub fn shown(url: &Path) -> String {
    let url = url.to_string_lossy();
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (scheme, rest) = url[..end].split_once("://").unwrap_or_default();
    format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default())
}

/// Whether a part of a URL may be secret: signed URLs of web servers have their signature in the query.
pub fn may_be_secret(url: &Path) -> bool {
    let of_web = ["http://", "https://"];
    let is_web = of_web.iter().any(|it| url.to_string_lossy().starts_with(it));
    is_web && shown(url) != url.to_string_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["https://a/b", "s3://b/p", "hf://o/m", "x+y-1.z://"] {
            assert!(is_url(Path::new(url)), "{url}");
        }
        for path in ["a/b", "/a://b", "-", "a:b", "1a://b", "C:/a", "./s3://b", "://a"] {
            assert!(!is_url(Path::new(path)), "{path}");
        }
        for (url, is_secret) in
            [("https://h/a", false), ("https://h/a?b", true), ("hf://o/m@main", false)]
        {
            assert_eq!(may_be_secret(Path::new(url)), is_secret, "{url}");
        }
        assert_eq!(shown(Path::new("https://u:secret@h/a?secret#secret")), "https://h/a");
    }
}
