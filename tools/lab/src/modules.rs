//! Which kernel modules guests load, and in which order.

use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// What guests load. What these need comes before them; what only speeds them up does not: the
/// processor's instructions for check sums are slower than none where it is emulated.
pub const WANTED: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "virtio_rng",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
    "dummy",
    "sch_netem",
    "crc32_generic",
    "crc32c_generic",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
];

/// Paths of the wanted modules and of all they need, each behind what it needs. `dependencies` is
/// the text of `modules.dep`, `builtin` that of `modules.builtin`.
pub fn in_order(wanted: &[&str], dependencies: &str, builtin: &str) -> Result<Vec<String>> {
    let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut paths: BTreeMap<String, &str> = BTreeMap::new();
    for line in dependencies.lines() {
        let Some((path, rest)) = line.split_once(':') else { continue };
        paths.insert(name(path), path);
        needs.insert(path, rest.split_whitespace().collect());
    }
    let builtin: BTreeSet<String> = builtin.lines().map(name).collect();
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    for module in wanted {
        match paths.get(*module) {
            Some(path) => load(path, &needs, &mut seen, &mut order),
            None if builtin.contains(*module) => {}
            None => {
                let why = format!("the kernel's package has no module {module}");
                return Err(Error::Failed(why));
            }
        }
    }
    Ok(order)
}

/// `rdma_rxe` of `kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz`.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

fn load<'a>(
    path: &'a str,
    needs: &BTreeMap<&'a str, Vec<&'a str>>,
    seen: &mut BTreeSet<&'a str>,
    order: &mut Vec<String>,
) {
    if seen.insert(path) {
        for needed in needs.get(path).into_iter().flatten() {
            load(needed, needs, seen, order);
        }
        order.push(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "\
kernel/net/9p/9pnet.ko: kernel/fs/netfs.ko
kernel/fs/netfs.ko:
kernel/drivers/rdma-rxe.ko.xz: kernel/core.ko kernel/udp.ko kernel/net/9p/9pnet.ko
kernel/core.ko: kernel/udp.ko
kernel/udp.ko:
";

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let order = in_order(&["rdma_rxe", "9pnet", "loop"], DEPENDENCIES, "kernel/loop.ko\n");
        let names: Vec<String> = order.unwrap().iter().map(|path| name(path)).collect();
        assert_eq!(names, ["udp", "core", "netfs", "9pnet", "rdma_rxe"]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = in_order(&["veth"], DEPENDENCIES, "").unwrap_err();
        assert!(error.to_string().contains("veth"), "{error}");
    }
}
