//! Sizes in bytes and rates in bits per second as text: for command lines, settings and reports.

use relay::BLOCK_BYTES_MAX;

/// Binary and decimal units; a bare number is bytes.
const UNITS: [(&str, u64); 16] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("pib", 1 << 50),
    ("eib", 1 << 60),
];

/// Decimal units, as tc(8) has them.
const RATE_UNITS: [(&str, u64); 5] = [
    ("bit", 1),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("tbit", 1_000_000_000_000),
];

/// Parses `64KiB`, `64k`, `1MB`, `4096`, and what [`show`] prints: `1.25 GiB`. Up to nine decimals, not of bytes; what they make
/// is rounded down to whole bytes. Errors: no such number, unknown unit, too large.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|character: char| !is_of_number(character)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let invalid = || format!("\"{text}\" is not a size; use for example 64KiB, 1.5GiB or 4096");
    let (whole, decimals) = digits(number).ok_or_else(invalid)?;
    let factor =
        UNITS.into_iter().find_map(|(name, factor)| (name == unit).then_some(factor)).ok_or_else(
            || format!("unknown unit \"{unit}\"; use B, KiB, MiB, GiB, TiB, KB, MB, ..."),
        )?;
    if factor == 1 && !decimals.is_empty() {
        return Err(invalid());
    }
    scaled(whole, decimals, factor).ok_or_else(|| format!("{text} is too large"))
}

fn is_of_number(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

/// Splits a number into its digits before and behind the point: at least one before, and one to nine behind, if any.
fn digits(number: &str) -> Option<(&str, &str)> {
    let (whole, decimals) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_valid = !whole.is_empty() && decimals.len() <= 9;
    (is_valid && are_digits(whole) && are_digits(decimals)).then_some((whole, decimals))
}

/// Multiplies a number by a factor, and rounds down. `None` if it is too large.
fn scaled(whole: &str, decimals: &str, factor: u64) -> Option<u64> {
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let fraction: u64 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    // Less than 10^9 times 2^64, so it fits into 128 bits; the result is less than the factor.
    let part = u128::from(fraction) * u128::from(factor) / 10_u128.pow(decimals.len() as u32);
    whole.checked_add(part as u64)
}

/// Parses a size of at least 1 byte. Errors: as [`parse`].
pub fn parse_nonzero(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("must be at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

/// Parses a block size: 1 byte to 2 GiB. Errors: as [`parse`].
pub fn parse_block(text: &str) -> Result<u64, String> {
    let bytes = parse(text)?;
    if (1..=BLOCK_BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("a block must have 1 byte to {}", show(BLOCK_BYTES_MAX)))
    }
}

/// Parses a rate in bits per second: `250mbit`, `9.41gbit`, also what [`show_rate`] prints. Errors: no number, more
/// than nine decimals, unknown unit, too large, 0.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    rate_of(&text.trim().to_ascii_lowercase())
        .filter(|&rate| rate > 0)
        .ok_or_else(|| format!("\"{text}\" is not a rate; use for example 250mbit or 9.5gbit"))
}

fn rate_of(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|character: char| character.is_alphabetic())?);
    let (_, factor) = RATE_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let (whole, decimals) = digits(number.trim())?;
    scaled(whole, decimals, factor)
}

/// A rate in bits per second with three digits, as [`parse_rate`] takes it: `250mbit`, `9.41gbit`.
pub fn show_rate(bits_per_second: u64) -> String {
    let mut value = bits_per_second as f64;
    let mut index = 0;
    // Not 1000: that is what three digits of 999.6 would show.
    while value >= 999.5 && index + 1 < RATE_UNITS.len() {
        value /= 1e3;
        index += 1;
    }
    let decimals = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    let shown = format!("{value:.decimals$}");
    let shown =
        if decimals > 0 { shown.trim_end_matches('0').trim_end_matches('.') } else { &shown };
    format!("{shown}{}", RATE_UNITS[index].0)
}

/// A size in binary units with about three digits: `64 KiB`, `1.25 GiB`. [`parse`] takes it, but for `16 EiB`, to which the
/// greatest sizes are rounded.
pub fn show(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut index = 0;
    while value >= 1024.0 {
        value /= 1024.0;
        index += 1;
    }
    let decimals = match value {
        value if value.fract() == 0.0 || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {}", units[index])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_parse_with_and_without_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64KiB"), Ok(65_536));
        assert_eq!(parse(" 64 k "), Ok(65_536));
        assert_eq!(parse("1MB"), Ok(1_000_000));
        assert_eq!(parse("2GiB"), parse("2g"));
        assert_eq!(parse("1.25 GiB"), Ok(1_342_177_280));
        assert_eq!(parse("0.000000001GiB"), Ok(1), "rounded down");
        assert_eq!(parse("15.999999999EiB").map(|bytes| bytes >> 60), Ok(15));
        for bad in
            ["", "KiB", "1.5", "1.5 B", "1.MiB", ".5MiB", "1.2.3MiB", "1.0000000001MiB", "-1"]
        {
            let error = parse(bad).unwrap_err();
            assert!(error.contains("is not a size"), "{bad}: {error}");
        }
        assert!(parse("1 parsec").unwrap_err().contains("unknown unit"));
        for large in ["99999999999999999999", "20000000TiB", "16 EiB"] {
            assert!(parse(large).unwrap_err().contains("is too large"), "{large}");
        }
    }

    proptest! {
        /// Of every magnitude.
        #[test]
        fn sizes_are_parsed_as_they_are_shown(bytes: u64, shift in 0..64_u32) {
            let bytes = bytes >> shift;
            let shown = show(bytes);
            match parse(&shown) {
                // Three digits, rounded; then rounded down to whole bytes.
                Ok(again) => prop_assert!(again.abs_diff(bytes) <= bytes / 200 + 1, "{shown}: {again}"),
                Err(error) => {
                    let is_too_large = bytes > u64::MAX / 320 * 319 && shown.starts_with("16");
                    prop_assert!(is_too_large, "{error}");
                }
            }
            if bytes < 1024 {
                prop_assert_eq!(parse(&shown), Ok(bytes));
            }
        }
    }

    #[test]
    fn zero_is_refused_where_a_size_must_be_positive() {
        assert!(parse_nonzero("0KiB").is_err());
        assert_eq!(parse_nonzero("1"), Ok(1));
    }

    #[test]
    fn rates_are_bits_per_second() {
        assert_eq!(parse_rate("250mbit"), Ok(250_000_000));
        assert_eq!(parse_rate(" 10 Gbit "), Ok(10_000_000_000));
        assert_eq!(parse_rate("9.41gbit"), Ok(9_410_000_000));
        assert_eq!(parse_rate("0.000000001gbit"), Ok(1));
        for bad in [
            "",
            "10",
            "0gbit",
            "0.0gbit",
            "gbit",
            ".5gbit",
            "1.gbit",
            "1.2.3gbit",
            "-1gbit",
            "1.0000000001gbit",
            "10GB",
            "99999999999999gbit",
            "18446744.1tbit",
        ] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_shown_as_they_are_parsed() {
        let shown = [1, 999, 250_000_000, 9_412_345_678, 10_000_000_000, 99_960_000, 999_600];
        let shown = shown.map(show_rate);
        assert_eq!(shown, ["1bit", "999bit", "250mbit", "9.41gbit", "10gbit", "100mbit", "1mbit"]);
        let mut rate = 1_u64;
        while rate < u64::MAX / 3 {
            let again = parse_rate(&show_rate(rate)).unwrap();
            // Three digits.
            assert!(again.abs_diff(rate) <= rate / 200, "{rate}: {again}");
            rate += rate / 7 + 1;
        }
    }

    #[test]
    fn block_sizes_are_limited() {
        assert!(parse_block("0").is_err() && parse_block("1").is_ok());
        assert!(parse_block("2GiB").is_ok() && parse_block("2147483649").is_err());
    }

    #[test]
    fn sizes_are_formatted_with_three_digits() {
        let shown = [0, 1023, 1024, 65_536, 1_342_177_280, u64::MAX].map(show);
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "64 KiB", "1.25 GiB", "16 EiB"]);
    }
}
