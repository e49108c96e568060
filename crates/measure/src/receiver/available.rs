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
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    let groups = groups.and_then(|groups| of_control_groups(&groups, Path::new("/sys/fs/cgroup")));
    [machine, groups].into_iter().flatten().min()
}

fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// What is left below the limits of these groups, listed as in `/proc/PID/cgroup`, and of all above them; `mounted`: their
/// hierarchies. `None` if none has a limit.
fn of_control_groups(groups: &str, mounted: &Path) -> Option<u64> {
    let of_group = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (hierarchy, most, used) = if controllers.is_empty() {
            (mounted.to_owned(), "memory.max", "memory.current")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (mounted.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            return None;
        };
        let left = |group: &Path| {
            let number = |file: &str| {
                let text = fs::read_to_string(hierarchy.join(group).join(file)).ok()?;
                text.trim().parse::<u64>().ok()
            };
            Some(number(most)?.saturating_sub(number(used)?))
        };
        // In a container the own group may be mounted as the topmost one, and not be found by its name.
        Path::new(group.trim_start_matches('/')).ancestors().filter_map(left).min()
    };
    groups.lines().filter_map(of_group).min()
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

    #[test]
    fn limits_of_all_groups_above_count() {
        let place = tempfile::tempdir().unwrap();
        let group = |name: &str, files: [(&str, &str); 2]| {
            fs::create_dir_all(place.path().join(name)).unwrap();
            for (file, text) in files {
                fs::write(place.path().join(name).join(file), text).unwrap();
            }
        };
        let left = |groups: &str| of_control_groups(groups, place.path());
        let unified = |most, used| [("memory.max", most), ("memory.current", used)];
        group("a/b/c", unified("max\n", "10\n"));
        assert_eq!(left("0::/a/b/c\n"), None);
        group("a", unified("1000\n", "100\n"));
        assert_eq!(left("0::/a/b/c\n"), Some(900), "of the group above the one above");
        group("a/b/c", unified("500\n", "600\n"));
        assert_eq!(left("0::/a/b/c\n"), Some(0));
        assert_eq!(left("0::/\n"), None);

        // The hierarchies before the unified one.
        let files = |most, used| [("memory.limit_in_bytes", most), ("memory.usage_in_bytes", used)];
        group("memory", files("2000\n", "500\n"));
        group("memory/d", files("9223372036854771712\n", "500\n"));
        let groups = |name: &str| format!("5:cpu,cpuacct:/d\n4:hugetlb,memory:{name}\n0::/e\n");
        assert_eq!(left(&groups("/d")), Some(1500));
        assert_eq!(
            left(&groups("/docker/absent:1")),
            Some(1500),
            "it is mounted as the topmost one"
        );
        assert_eq!(left("5:cpu,cpuacct:/d\nbroken\n"), None);
    }
}
