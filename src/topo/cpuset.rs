//! Sets of CPUs of any number, in the kernel's list notation, and the affinity of threads.

use crate::base::{Error, Result};
use std::fmt;

/// Largest CPU number taken from text: above what any kernel can be built for, small enough that
/// a damaged file cannot make a set eat the memory.
const MAX_CPU: u32 = 1 << 20;

/// A set of CPUs, as the kernel numbers them. CPU numbers may be sparse and above 1023.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    // No trailing zero words, so that equal sets compare equal.
    words: Vec<libc::c_ulong>,
}

const BITS: u32 = libc::c_ulong::BITS;

impl CpuSet {
    /// The empty set.
    pub fn new() -> CpuSet {
        CpuSet::default()
    }

    /// Parses the kernel's list notation: `0-3,8,12-15` (also with strides, `0-6:2/4`, as bitmap
    /// files may have). Empty text is the empty set. `None` if it is not such a list.
    pub fn parse(text: &str) -> Option<CpuSet> {
        let mut set = CpuSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (range, stride) = match part.split_once(':') {
                Some((range, stride)) => (range, Some(stride.split_once('/')?)),
                None => (part, None),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            let (used, group) = match stride {
                Some((used, group)) => (used.parse::<u32>().ok()?, group.parse::<u32>().ok()?),
                None => (1, 1),
            };
            if first > last || last >= MAX_CPU || used == 0 || used > group {
                return None;
            }
            for cpu in (first..=last).filter(|cpu| (cpu - first) % group < used) {
                set.insert(cpu);
            }
        }
        Some(set)
    }

    /// Parses the kernel's mask notation: comma-separated 32-bit groups in hexadecimal, the
    /// highest first. `None` if it is not such a mask.
    pub fn parse_mask(text: &str) -> Option<CpuSet> {
        let mut set = CpuSet::new();
        for (i, group) in text.trim().rsplit(',').enumerate() {
            let bits = u32::from_str_radix(group.trim(), 16).ok()?;
            let base = u32::try_from(i).ok()?.checked_mul(32).filter(|&base| base < MAX_CPU)?;
            for bit in (0..32).filter(|bit| bits & (1 << bit) != 0) {
                set.insert(base + bit);
            }
        }
        Some(set)
    }

    /// The CPUs that the calling thread may run on.
    pub fn of_thread() -> Result<CpuSet> {
        // The kernel wants room for every CPU it was built for and says EINVAL if there is less.
        let mut words = vec![0 as libc::c_ulong; 1024 / BITS as usize];
        loop {
            let bytes = size_of_val(words.as_slice());
            // SAFETY: the kernel writes at most `bytes` bytes to the vector, which is that long
            // and of plain integers. (rustix's and libc's sets end at CPU 1023, so neither fits.)
            let rc =
                unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, words.as_mut_ptr()) };
            if rc >= 0 {
                let mut set = CpuSet { words };
                set.trim();
                return Ok(set);
            }
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINVAL) || bytes * 8 >= MAX_CPU as usize {
                return Err(Error::os("sched_getaffinity", error));
            }
            let longer = words.len() * 2;
            words.resize(longer, 0);
        }
    }

    /// Restricts the calling thread, and the threads and processes it starts from now on, to
    /// these CPUs. Allocates nothing, so it may be called between `fork` and `exec`.
    ///
    /// Fails with `InvalidInput` inside [`Error::Os`] when none of the CPUs is usable.
    pub fn apply(&self) -> Result<()> {
        self.apply_to(0)
    }

    /// As [`CpuSet::apply`], for the main thread of process `pid` (or the thread of that id); 0
    /// is the calling thread.
    pub fn apply_to(&self, pid: i32) -> Result<()> {
        let bytes = size_of_val(self.words.as_slice());
        // SAFETY: the kernel only reads `bytes` bytes of the vector, which has exactly that many.
        let rc =
            unsafe { libc::syscall(libc::SYS_sched_setaffinity, pid, bytes, self.words.as_ptr()) };
        if rc == 0 {
            return Ok(());
        }
        Err(Error::Os {
            call: "sched_setaffinity (binding to cores)",
            source: std::io::Error::last_os_error(),
            hint: "the cores may be outside this container's cpuset; run with --bind none",
        })
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        let word = (cpu / BITS) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % BITS);
    }

    /// Takes a CPU out.
    pub fn remove(&mut self, cpu: u32) {
        if let Some(word) = self.words.get_mut((cpu / BITS) as usize) {
            *word &= !(1 << (cpu % BITS));
            self.trim();
        }
    }

    fn trim(&mut self) {
        let used = self.words.iter().rposition(|&w| w != 0).map_or(0, |last| last + 1);
        self.words.truncate(used);
    }

    /// Whether a CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get((cpu / BITS) as usize).is_some_and(|w| w & (1 << (cpu % BITS)) != 0)
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether the set has no CPU.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            (0..BITS)
                .filter(move |bit| word & (1 << bit) != 0)
                .map(move |bit| i as u32 * BITS + bit)
        })
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

/// The kernel's list notation: `0-3,8`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|&next| next == last + 1) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip_and_nonsense_is_refused() {
        for text in ["", "0", "0-1", "0-3,8,12-15", "1023-1025", "5000", "63-64,127"] {
            assert_eq!(CpuSet::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(CpuSet::parse(" 0-3 , 5\n").unwrap().to_string(), "0-3,5");
        assert_eq!(CpuSet::parse("0-15:2/8").unwrap().to_string(), "0-1,8-9");
        for text in ["a", "3-1", "-1", "1-", "0-99999999999", "4294967295", "0-7:3/2", "0-7:0/0"] {
            assert_eq!(CpuSet::parse(text), None, "{text}");
        }
    }

    #[test]
    fn masks_parse_from_the_highest_group() {
        assert_eq!(
            CpuSet::parse_mask("00000001,00000000,80000003\n").unwrap().to_string(),
            "0-1,31,64"
        );
        assert_eq!(CpuSet::parse_mask("0").unwrap(), CpuSet::new());
        assert_eq!(CpuSet::parse_mask("xyz"), None);
    }

    #[test]
    fn equal_sets_are_equal_whatever_their_history() {
        let mut a: CpuSet = [1, 3, 2000].into_iter().collect();
        a.remove(2000);
        a.remove(70_000);
        assert_eq!(a, CpuSet::parse("1,3").unwrap());
        assert_eq!(a.len(), 2);
        assert!(!a.contains(2000) && a.contains(3) && !a.is_empty());
        assert_eq!(a.first(), Some(1));
        assert!(CpuSet::new().is_empty());
    }

    #[test]
    fn the_kernel_and_the_set_agree_about_this_thread() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
        assert_eq!(CpuSet::of_thread().unwrap(), CpuSet::parse(list).unwrap());
    }

    #[test]
    fn a_thread_binds_to_one_cpu_and_back_and_an_impossible_set_is_an_error() {
        let all = CpuSet::of_thread().unwrap();
        std::thread::spawn(move || {
            for cpu in all.iter() {
                let one: CpuSet = [cpu].into_iter().collect();
                one.apply().unwrap();
                assert_eq!(CpuSet::of_thread().unwrap(), one);
                assert_eq!(rustix::thread::sched_getcpu(), cpu as usize);
            }
            all.apply().unwrap();
            assert_eq!(CpuSet::of_thread().unwrap(), all);
            let nowhere: CpuSet = [100_000].into_iter().collect();
            assert!(matches!(nowhere.apply(), Err(Error::Os { .. })));
            assert!(CpuSet::new().apply().is_err());
        })
        .join()
        .unwrap();
    }
}
