//! Synthetic machines: `PxNxLxCxT`, packages x NUMA nodes per package x last-level caches per
//! node x cores per cache x threads per core.

use super::model::{CacheGroup, CacheKind, Details, Found, Topology};
use crate::base::settings::TOPOLOGY;
use crate::base::{Error, Result};
use std::collections::BTreeMap;

const MAX_CPUS: u32 = 1 << 16;
const WANT: &str = "five numbers joined by x: packages x NUMA nodes per package x last-level \
                    caches per node x cores per cache x threads per core, for example 2x4x2x8x2";

impl Topology {
    /// A machine of `spec` = `PxNxLxCxT`, every CPU allowed, with 32 MiB of L3 and 64 GiB of
    /// memory per NUMA node. CPUs are numbered as Linux does: first threads of all cores, then
    /// second threads of all cores.
    ///
    /// Fails with [`Error::InvalidArgument`] unless there are five numbers from 1 whose product
    /// is at most 65536.
    pub fn synthetic(spec: &str) -> Result<Topology> {
        let bad = |why: String| Error::invalid(TOPOLOGY.name, format!("\"{spec}\" {why}"));
        let parts: Vec<&str> = spec.trim().split(['x', 'X', '×']).map(str::trim).collect();
        let Ok([packages, nodes, caches, cores, threads]) = <[&str; 5]>::try_from(parts.as_slice())
        else {
            return Err(bad(format!("has {} part(s); wanted are {WANT}", parts.len())));
        };
        let number = |text: &str| match text.parse::<u32>() {
            Ok(0) => Err(bad(format!("has a zero; wanted are {WANT}"))),
            Ok(n) => Ok(n),
            Err(_) => Err(bad(format!("has \"{text}\" for a number; wanted are {WANT}"))),
        };
        let [p, n, l, c, t] =
            [number(packages)?, number(nodes)?, number(caches)?, number(cores)?, number(threads)?];
        [p, n, l, c, t]
            .into_iter()
            .try_fold(1u32, |all, n| all.checked_mul(n).filter(|&all| all <= MAX_CPUS))
            .ok_or_else(|| bad(format!("is a machine of more than {MAX_CPUS} CPUs")))?;

        let all_cores = p * n * l * c;
        let found = (0..all_cores * t).map(|id| {
            let core = id % all_cores;
            let cache = core / c;
            let numa = cache / l;
            Found {
                id,
                package: i64::from(numa / n),
                numa: Some(numa),
                cache: Some((3, cache * c)),
                cache_bytes: Some(32 << 20),
                core,
                speed: 1024,
                allowed: true,
            }
        });
        let memory: BTreeMap<u32, u64> = (0..p * n).map(|node| (node, 64 << 30)).collect();
        let mut topology = Topology::build(found.collect(), &memory);
        topology.synthetic = true;
        let group = |level, kind, bytes, sharers, count| CacheGroup {
            level,
            kind,
            bytes: Some(bytes),
            sharers,
            count,
        };
        let caches = vec![
            group(1, CacheKind::Data, 32 << 10, t, all_cores),
            group(2, CacheKind::Unified, 1 << 20, t, all_cores),
            group(3, CacheKind::Unified, 32 << 20, c * t, p * n * l),
        ];
        let name = format!("synthetic {p}x{n}x{l}x{c}x{t}");
        topology.details = Details::Given { name, caches };
        Ok(topology)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_two_package_machine_has_the_groups_it_should() {
        let t = Topology::synthetic("2x4x2x8x2").unwrap();
        assert_eq!(t.cpus().len(), 256);
        assert_eq!(t.count(Level::Package), 2);
        assert_eq!(t.count(Level::Numa), 8);
        assert_eq!(t.count(Level::Cache), 16);
        assert_eq!(t.count(Level::Core), 128);
        assert_eq!(t.allowed_cores(), 128);
        // Tree order: the threads of a core are neighbours though their numbers are not.
        assert_eq!((t.cpus()[0].id, t.cpus()[1].id), (0, 128));
        let last = t.cpu(255).unwrap();
        assert_eq!(
            (last.package, last.numa, last.cache, last.core, last.thread),
            (1, 7, 15, 127, 1)
        );
        assert_eq!(t.cpu(256), None);
    }

    #[test]
    fn bad_specifications_say_what_is_wrong() {
        for (spec, part) in [
            ("2x4", "has 2 part(s)"),
            ("1x1x1x1x1x1", "has 6 part(s)"),
            ("", "has 1 part(s)"),
            ("2x0x1x1x1", "has a zero"),
            ("2xax1x1x1", "has \"a\" for a number"),
            ("-1x1x1x1x1", "has \"-1\""),
            ("64x64x64x64x64", "more than 65536 CPUs"),
            ("4294967295x4294967295x1x1x1", "more than 65536 CPUs"),
        ] {
            let text = Topology::synthetic(spec).unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("HITHER_TOPOLOGY"), "{text}");
        }
        assert_eq!(Topology::synthetic(" 1 x 1 x1X1×1 ").unwrap().cpus().len(), 1);
    }
}
