//! How much memory this process has needed.

/// The most memory in bytes that this process has had resident at once, mapped files included;
/// `None` where the system does not tell (it is read from `/proc/self/status`).
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
    fn a_process_needs_memory() {
        assert!(super::peak_resident_bytes().unwrap() > 100_000);
    }
}
