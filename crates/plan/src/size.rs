//! Sizes in bytes and rates in bits per second as text: for command lines, settings and reports.

use rdmc::BLOCK_BYTES_MAX;

/// Binary and decimal units; a bare number is bytes.
const UNITS: [(&str, u64); 14] = [
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
];

/// Parses `64KiB`, `64k`, `1MB`, `4096`. Errors: no whole number, unknown unit, too large.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let number: u64 = number
        .parse()
        .map_err(|_| format!("\"{text}\" is not a size; use for example 64KiB or 4096"))?;
    let factor =
        UNITS.into_iter().find_map(|(name, factor)| (name == unit).then_some(factor)).ok_or_else(
            || format!("unknown unit \"{unit}\"; use B, KiB, MiB, GiB, TiB, KB, MB, ..."),
        )?;
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too large"))
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

/// Parses a rate in bits per second: `250mbit`, `10gbit`. Errors: no whole number, unknown unit, too large, 0.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a rate; use for example 250mbit or 10gbit");
    let trimmed = text.trim().to_ascii_lowercase();
    let end = trimmed.find(|character: char| !character.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = trimmed.split_at(end);
    let factor = match unit.trim() {
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000_u64,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|&rate| rate > 0).ok_or_else(wrong)
}

/// A size in binary units with about three digits: `64 KiB`, `1.25 GiB`.
pub fn show(bytes: u64) -> String {
    show_in(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A rate in bits per second with about three digits: `500 Mbit/s`, `2.50 Gbit/s`.
pub fn show_rate(bits_per_second: u64) -> String {
    let units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s", "Ebit/s"];
    show_in(bits_per_second, 1000.0, &units)
}

/// In the largest unit that gives 1 or more; each is `factor` of the one before it.
fn show_in(number: u64, factor: f64, units: &[&str; 7]) -> String {
    let mut value = number as f64;
    let mut index = 0;
    while value >= factor {
        value /= factor;
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
    use super::*;

    #[test]
    fn sizes_parse_with_and_without_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64KiB"), Ok(65_536));
        assert_eq!(parse(" 64 k "), Ok(65_536));
        assert_eq!(parse("1MB"), Ok(1_000_000));
        assert_eq!(parse("2GiB"), parse("2g"));
        for bad in ["", "KiB", "1.5MiB", "-1", "1 parsec", "99999999999999999999", "20000000TiB"] {
            assert!(parse(bad).is_err(), "{bad}");
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
        for bad in ["", "10", "0gbit", "gbit", "1.5gbit", "10GB", "99999999999999gbit"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
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
        let shown = [999, 1000, 250_000_000, 2_500_000_000, u64::MAX].map(show_rate);
        assert_eq!(shown, ["999 bit/s", "1 kbit/s", "250 Mbit/s", "2.50 Gbit/s", "18.4 Ebit/s"]);
    }
}
