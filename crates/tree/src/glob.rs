//! Wildcards as rsync understands them: in bytes, without case folding.

/// A pattern that is matched against a whole text.
#[derive(Clone, Debug)]
pub(crate) struct Glob(Vec<Token>);

#[derive(Clone, Debug)]
enum Token {
    Byte(u8),
    /// `?`: any byte but `/`.
    One,
    /// `[..]`: never `/`.
    Set(Set),
    /// `*`: any bytes but `/`.
    Some,
    /// `**`: any bytes.
    All,
}

/// A set of bytes.
#[derive(Clone, Default, Debug)]
struct Set([u64; 4]);

/// A place to return to: the token after a `*` or `**`, and where in the text it was tried.
type Retry = (usize, usize);

impl Glob {
    /// Compiles a pattern. Without any of `*?[` all bytes of it are literal, `\` as well.
    ///
    /// Errors: what is wrong with it.
    pub(crate) fn new(pattern: &str) -> Result<Self, &'static str> {
        let bytes = pattern.as_bytes();
        if !pattern.contains(['*', '?', '[']) {
            return Ok(Self(bytes.iter().copied().map(Token::Byte).collect()));
        }
        let mut tokens = Vec::new();
        let mut rest = bytes;
        while let [first, after @ ..] = rest {
            let (token, next) = match first {
                b'?' => (Token::One, after),
                b'[' => {
                    let (set, next) = Set::parse(after)?;
                    (Token::Set(set), next)
                }
                b'*' => {
                    let stars = after.iter().take_while(|&&byte| byte == b'*').count();
                    (if stars > 0 { Token::All } else { Token::Some }, &after[stars..])
                }
                b'\\' => {
                    let (byte, next) = after.split_first().ok_or("it ends with \\")?;
                    (Token::Byte(*byte), next)
                }
                byte => (Token::Byte(*byte), after),
            };
            tokens.push(token);
            rest = next;
        }
        Ok(Self(tokens))
    }

    /// Whether the pattern matches the whole text. Its time is at most the product of the pattern's length and the square of the
    /// text's.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let (mut token, mut at) = (0, 0);
        // Of all `*` since the last `**`, and of all `**`, only the last is worth another try: what is between two of them was
        // found as early as possible, and the later one reaches all that is left.
        let (mut some, mut all): (Option<Retry>, Option<Retry>) = (None, None);
        loop {
            match self.0.get(token) {
                Some(Token::Some) => {
                    token += 1;
                    some = Some((token, at));
                    continue;
                }
                Some(Token::All) => {
                    token += 1;
                    (some, all) = (None, Some((token, at)));
                    continue;
                }
                Some(one) if text.get(at).is_some_and(|&byte| one.takes(byte)) => {
                    (token, at) = (token + 1, at + 1);
                    continue;
                }
                None if at == text.len() => return true,
                Some(_) | None => {}
            }
            if let Some((after, start)) = some
                && text.get(start).is_some_and(|&byte| byte != b'/')
            {
                some = Some((after, start + 1));
                (token, at) = (after, start + 1);
            } else if let Some((after, start)) = all
                && start < text.len()
            {
                (some, all) = (None, Some((after, start + 1)));
                (token, at) = (after, start + 1);
            } else {
                return false;
            }
        }
    }
}

impl Token {
    /// Whether it stands for this one byte.
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::One => byte != b'/',
            Self::Set(set) => byte != b'/' && set.has(byte),
            Self::Some | Self::All => false,
        }
    }
}

impl Set {
    /// Parses what follows `[`, up to the `]` that ends it, and returns what is behind that.
    fn parse(text: &[u8]) -> Result<(Self, &[u8]), &'static str> {
        const OPEN: &str = "a [ in it has no ]";
        let (is_inverted, mut rest) = match text {
            [b'!' | b'^', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let mut set = Self::default();
        // Where a range may begin.
        let mut before = None;
        let mut is_first = true;
        loop {
            let (&byte, after) = rest.split_first().ok_or(OPEN)?;
            (before, rest) = match (byte, after) {
                (b']', _) if !is_first => break,
                (b'-', [end, ..]) if before.is_some() && *end != b']' => {
                    let (end, after) = literal(after).ok_or(OPEN)?;
                    (before.unwrap_or(end)..=end).for_each(|byte| set.add(byte));
                    (None, after)
                }
                (b'[', [b':', class @ ..]) => {
                    let end = class.iter().position(|&byte| byte == b']').ok_or(OPEN)?;
                    match class[..end].strip_suffix(b":") {
                        Some(name) => {
                            let is_in = class_of(name).ok_or("it has an unknown [:class:]")?;
                            (0..=u8::MAX).filter(is_in).for_each(|byte| set.add(byte));
                            (None, &class[end + 1..])
                        }
                        None => {
                            set.add(b'[');
                            (Some(b'['), after)
                        }
                    }
                }
                _ => {
                    let (byte, after) = literal(rest).ok_or(OPEN)?;
                    set.add(byte);
                    (Some(byte), after)
                }
            };
            is_first = false;
        }
        if is_inverted {
            set.0 = set.0.map(|bits| !bits);
        }
        Ok((set, &rest[1..]))
    }

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] & (1 << (byte % 64)) != 0
    }
}

/// The first byte of a text, or the one behind a `\` there; and the rest.
fn literal(text: &[u8]) -> Option<(u8, &[u8])> {
    match text {
        [b'\\', byte, rest @ ..] => Some((*byte, rest)),
        [b'\\'] | [] => None,
        [byte, rest @ ..] => Some((*byte, rest)),
    }
}

/// Whether a byte is in a class of POSIX, in the locale C.
fn class_of(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| byte.is_ascii_graphic() || *byte == b' ',
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| byte.is_ascii_whitespace() || *byte == 0x0b,
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn wildcards_stand_for_what_they_say() {
        for (pattern, yes, no) in [
            ("a", "a", "b"),
            ("?", "a", "/"),
            ("a*c", "abbc", "ab/c"),
            ("a**c", "ab/c", "ab/"),
            ("*", "", "a/"),
            ("**b", "a/b", "a/"),
            ("*a*b*c", "xaxbxc", "xaxc"),
            ("**/b*c", "a/b/bc", "a/b/c"),
            ("[a-c]", "b", "d"),
            ("[!a-c]", "d", "b"),
            ("[^a]", "b", "a"),
            ("[!a]", "b", "/"),
            ("[]a]", "]", "b"),
            ("[]-a]", "_", "b"),
            ("[a-]", "-", "b"),
            ("[\\]]", "]", "\\"),
            ("[a\\-c]", "-", "b"),
            ("[[:digit:]x]", "7", "y"),
            ("[[:a]", ":", "b"),
            ("[[]", "[", "]"),
            ("a\\b", "a\\b", "ab"),
            ("a\\b*", "ab", "a\\b"),
            ("\\*?", "*a", "ba"),
            ("{a,b}", "{a,b}", "a"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(!matches(pattern, no), "{pattern} {no}");
        }
        for invalid in ["[", "[a", "[]", "[!", "[a\\", "a*\\", "[[:other:]]", "[[:digit:", "[a-"] {
            assert!(Glob::new(invalid).is_err(), "{invalid}");
        }
    }

    /// The definition, by trying everything.
    fn by_definition(tokens: &[Token], text: &[u8]) -> bool {
        match tokens {
            [] => text.is_empty(),
            [star @ (Token::Some | Token::All), rest @ ..] => {
                let takes = |byte: &u8| matches!(star, Token::All) || *byte != b'/';
                let most = text.iter().take_while(|byte| takes(byte)).count();
                (0..=most).any(|taken| by_definition(rest, &text[taken..]))
            }
            [one, rest @ ..] => text
                .split_first()
                .is_some_and(|(byte, text)| one.takes(*byte) && by_definition(rest, text)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn what_matches_is_what_the_definition_says(pattern in "[ab/?*]{0,8}", text in "[ab/]{0,8}") {
            let glob = Glob::new(&pattern).unwrap();
            prop_assert_eq!(glob.matches(text.as_bytes()), by_definition(&glob.0, text.as_bytes()));
        }

        #[test]
        fn any_pattern_is_compiled_or_refused(pattern: String, text: Vec<u8>) {
            if let Ok(glob) = Glob::new(&pattern) {
                glob.matches(&text);
            }
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_exponential_time() {
        let pattern = "*a".repeat(40) + "b";
        assert!(!matches(&pattern, &"a".repeat(4000)));
        let pattern = "**a*a".repeat(20) + "b";
        assert!(!matches(&pattern, &"a/".repeat(500)));
    }
}
