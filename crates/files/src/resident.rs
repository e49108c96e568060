//! Memory use of this process.

/// Peak resident memory of this process in bytes, mapped files included; `None` if `/proc/self/status` does not have
/// it.
pub fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn peak_resident_memory_is_read() {
        assert!(super::peak_resident_bytes().unwrap() > 100_000);
    }
}
