//! The processor-time limit of the control groups (v2 and v1) that enclose this process: a
//! container may see 64 CPUs and be allowed the time of two.

use std::path::Path;

/// Processors' worth of time that the tightest enclosing group allows; `None` is unlimited, or
/// not to be found out.
pub(super) fn cpu_quota(root: &Path) -> Option<f64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut least: Option<f64> = None;
    let mut offer = |quota: Option<f64>| {
        if let Some(quota) = quota.filter(|q| q.is_finite() && *q > 0.0) {
            least = Some(least.map_or(quota, |least| least.min(quota)));
        }
    };
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mounts: &[&str] = if controllers.is_empty() {
            // A hybrid system mounts the second version one level down.
            &["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        } else if controllers.split(',').any(|c| c == "cpu") {
            &["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"]
        } else {
            continue;
        };
        for mount in mounts {
            let mount = root.join(mount);
            // Inside a container the path may be the host's; its existing ancestors count.
            let mut path = path.trim_matches('/');
            loop {
                offer(group_quota(&mount.join(path)));
                if path.is_empty() {
                    break;
                }
                path = path.rfind('/').map_or("", |cut| &path[..cut]);
            }
        }
    }
    least
}

fn group_quota(group: &Path) -> Option<f64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let mut parts = text.split_whitespace();
            (parts.next()?.to_owned(), parts.next()?.to_owned())
        }
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // "max" and -1 mean unlimited; neither parses as an unsigned number.
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    Some(quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn the_tightest_enclosing_group_counts() {
        let dir = tree(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/cpu.max", "400000 100000\n"),
        ]);
        assert_eq!(cpu_quota(dir.path()), Some(1.5));
    }

    #[test]
    fn the_first_version_is_read_and_minus_one_is_no_limit() {
        let dir = tree(&[
            ("proc/self/cgroup", "4:memory:/x\n2:cpu,cpuacct:/x\n"),
            ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(cpu_quota(dir.path()), Some(0.5));
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_the_visible_root_and_damage_is_no_limit() {
        let dir = tree(&[
            ("proc/self/cgroup", "0::/docker/0123\nnonsense\n"),
            ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
        ]);
        assert_eq!(cpu_quota(dir.path()), Some(2.0));
        for damage in ["", "x y", "100000", "5 0", "max max"] {
            let dir = tree(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", damage)]);
            assert_eq!(cpu_quota(dir.path()), None, "{damage:?}");
        }
        assert_eq!(cpu_quota(tree(&[]).path()), None);
    }
}
