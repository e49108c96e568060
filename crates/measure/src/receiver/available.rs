//! How much memory a measurement may take.

use std::{fs, path::Path};

/// Errors: messages of this length would take more than half of the memory that is left on this machine, or of what the limit of this
/// process's control group leaves.
pub(super) fn check(bytes: u64) -> Result<(), String> {
    let available = available_bytes();
    if available.is_some_and(|available| bytes > available / 2) {
        return Err(format!(
            "messages of {bytes} bytes would take more than half of the memory that is left here"
        ));
    }
    Ok(())
}

/// `None` where the system does not tell.
fn available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    [machine, of_control_group()].into_iter().flatten().min()
}

fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Of this process's group in the unified hierarchy, if it has a limit.
fn of_control_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = Path::new("/sys/fs/cgroup").join(own);
    let number = |file: &str| fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok();
    let (most, used): (u64, u64) = (number("memory.max")?, number("memory.current")?);
    Some(most.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_refused() {
        assert!(check(1).is_ok());
        assert!(check(u64::MAX).unwrap_err().contains("more than half of the memory"));
        assert_eq!(of_machine("MemTotal: 9 kB\nMemAvailable:    3 kB\n"), Some(3 << 10));
        assert_eq!(of_machine("MemTotal: 9 kB\n"), None);
    }
}
