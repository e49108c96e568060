//! Sizes as people write them: `64KiB`, `256MiB`, `4GiB`, or plain bytes.

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads a size of at least one byte.
pub fn parse(text: &str) -> Result<u64, String> {
    let (number, unit) = UNITS
        .into_iter()
        .find_map(|(name, unit)| text.strip_suffix(name).map(|number| (number, unit)))
        .unwrap_or((text, 1));
    let number: u64 = number.trim().parse().unwrap_or(0);
    number
        .checked_mul(unit)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("{text:?} is no size; write for example 64KiB, 256MiB or 4096"))
}

/// Reads a size that may be 0.
pub fn parse_or_zero(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse(text) }
}

/// Writes a size in the largest unit that keeps it whole.
pub fn show(bytes: u64) -> String {
    let (name, unit) =
        UNITS.into_iter().find(|&(_, unit)| bytes.is_multiple_of(unit)).unwrap_or(("B", 1));
    format!("{} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes, shown) in [
            ("64KiB", 65_536, "64 KiB"),
            ("4GiB", 1 << 32, "4 GiB"),
            ("1000", 1_000, "1000 B"),
            ("1536KiB", 3 << 19, "1536 KiB"),
        ] {
            assert_eq!(parse(text), Ok(bytes));
            assert_eq!(show(bytes), shown);
        }
        for text in ["", "KiB", "0", "-1", "1.5GiB", "99999999999GiB", "3 apples"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
