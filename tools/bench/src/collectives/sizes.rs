//! Lengths that are columns of tables: powers of two.

use plan::size;

/// Lengths from 4 B to 16 MiB with their names in tables.
const COLUMNS: [(u64, &str); 23] = [
    (4, "4_B"),
    (8, "8_B"),
    (16, "16_B"),
    (32, "32_B"),
    (64, "64_B"),
    (128, "128_B"),
    (256, "256_B"),
    (512, "512_B"),
    (1 << 10, "1_KiB"),
    (2 << 10, "2_KiB"),
    (4 << 10, "4_KiB"),
    (8 << 10, "8_KiB"),
    (16 << 10, "16_KiB"),
    (32 << 10, "32_KiB"),
    (64 << 10, "64_KiB"),
    (128 << 10, "128_KiB"),
    (256 << 10, "256_KiB"),
    (512 << 10, "512_KiB"),
    (1 << 20, "1_MiB"),
    (2 << 20, "2_MiB"),
    (4 << 20, "4_MiB"),
    (8 << 20, "8_MiB"),
    (16 << 20, "16_MiB"),
];

/// The name of a length that [`parse`] accepts.
pub fn column(bytes: u64) -> &'static str {
    COLUMNS.iter().find(|(known, _)| *known == bytes).map_or("?", |(_, name)| name)
}

pub fn parse(text: &str) -> Result<u64, String> {
    let bytes = size::parse_nonzero(text).map_err(|error| error.to_string())?;
    let is_known = COLUMNS.iter().any(|(known, _)| *known == bytes);
    is_known.then_some(bytes).ok_or_else(|| "a power of two from 4 B to 16 MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_names() {
        for (bytes, name) in COLUMNS {
            assert_eq!(parse(&name.replace('_', "")), Ok(bytes), "{name}");
            assert_eq!(column(bytes), name);
        }
        assert!(parse("2").is_err() && parse("3KiB").is_err() && parse("32MiB").is_err());
    }
}
