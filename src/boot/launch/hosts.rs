//! Lists of hosts as users write them, and how many ranks go to each.
//!
//! ```text
//! a,b:4,c                 on a command line
//! a                       in a file, a host a line
//! b:4                     as MPICH has it
//! b slots=4               as Open MPI has it; other words on the line are passed over
//! ```
//! A host that is named again has the slots of both lines. A host without a number among others with
//! one has one slot.

use crate::base::{Error, Result};
use crate::topo::{Map, Places};

/// A machine, and how many ranks it is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its name or address as the remote shell takes it, with `user@` in front if wanted.
    pub name: String,
    /// How many ranks it has room for, if that was said.
    pub slots: Option<u32>,
}

/// The machines of a job, each once, in the order in which they were named.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hosts(Vec<Host>);

impl Hosts {
    /// Hosts separated by commas.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the word that is no host.
    pub fn list(text: &str) -> Result<Hosts> {
        let mut hosts = Hosts::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            hosts.add(word, None)?;
        }
        hosts.some()
    }

    /// The text of a file of hosts.
    ///
    /// # Errors
    /// As [`Hosts::list`].
    pub fn file(text: &str) -> Result<Hosts> {
        let mut hosts = Hosts::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(host) = words.next() else { continue };
            let slots = words.find_map(|word| word.strip_prefix("slots=")).map(|count| {
                number(count).ok_or_else(|| wrong(line, "slots= needs a number from 1 on"))
            });
            hosts.add(host, slots.transpose()?)?;
        }
        hosts.some()
    }

    fn some(self) -> Result<Hosts> {
        if self.0.is_empty() { Err(wrong("", "no host is named")) } else { Ok(self) }
    }

    fn add(&mut self, word: &str, slots: Option<u32>) -> Result<()> {
        // More than one colon without brackets is an address of IPv6.
        let (name, count) = match word.rsplit_once(':') {
            Some((name, count)) if !name.contains(':') || name.ends_with(']') => {
                let count = number(count)
                    .ok_or_else(|| wrong(word, "a number of ranks follows the colon"))?;
                (name, Some(count))
            }
            _ => (word, None),
        };
        let name = match name.split_once('[').zip(name.strip_suffix(']')) {
            Some(((user, _), whole)) => format!("{user}{}", &whole[user.len() + 1..]),
            None => name.to_owned(),
        };
        let odd = |c: char| c.is_whitespace() || c.is_control();
        // A name that begins with a dash would be an option of the remote shell's command.
        if name.is_empty() || name.starts_with('-') || name.contains(odd) {
            return Err(wrong(word, "that is no name of a host"));
        }
        let slots = slots.or(count);
        match self.0.iter_mut().find(|host| host.name == name) {
            Some(host) => {
                let sum = host.slots.unwrap_or(1).saturating_add(slots.unwrap_or(1));
                host.slots = Some(sum);
            }
            None => self.0.push(Host { name, slots }),
        }
        Ok(())
    }

    /// Which of them get ranks, in the order of nodes, and which ranks are on which.
    ///
    /// Where slots are given they are filled in order; else ranks go to all hosts as the map has it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are not slots enough or the map does not fit.
    pub fn place(&self, ranks: u32, map: &Map) -> Result<(Vec<Host>, Places)> {
        let slotted = self.0.iter().any(|host| host.slots.is_some());
        if slotted && *map == Map::Block {
            let mut left = ranks;
            let (mut used, mut counts) = (Vec::new(), Vec::new());
            for host in &self.0 {
                let count = host.slots.unwrap_or(1).min(left);
                if count > 0 {
                    left -= count;
                    used.push(host.clone());
                    counts.push(count);
                }
            }
            if left > 0 {
                let room = ranks - left;
                let why = format!("there is room for {room} ranks on the hosts, not for {ranks}");
                return Err(Error::invalid("hosts", why));
            }
            return Ok((used, Places::counts(&counts)?));
        }
        let nodes = self.0.len().min(ranks as usize);
        let nodes = if matches!(map, Map::Counts(_)) { self.0.len() } else { nodes };
        let places = map.places(ranks, Some(nodes as u32))?;
        let used = self.0[..nodes].to_vec();
        for (node, host) in (0..).zip(&used) {
            let (count, slots) = (places.count_on(node), host.slots.unwrap_or(1));
            if slotted && count > slots {
                let why = format!("the map puts {count} ranks on {}, which has {slots}", host.name);
                return Err(Error::invalid("hosts", why));
            }
        }
        Ok((used, places))
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=65_536).contains(number))
}

fn wrong(word: &str, why: &str) -> Error {
    Error::invalid("hosts", format!("\"{}\": {why}", word.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(hosts: &Hosts) -> Vec<(&str, Option<u32>)> {
        hosts.0.iter().map(|host| (host.name.as_str(), host.slots)).collect()
    }

    #[test]
    fn hosts_are_read_as_users_write_them() {
        let hosts = Hosts::list("a, b:4,me@c,[::1]:2,me@[fe::2],::3,b").unwrap();
        let want = [
            ("a", None),
            ("b", Some(5)),
            ("me@c", None),
            ("::1", Some(2)),
            ("me@fe::2", None),
            ("::3", None),
        ];
        assert_eq!(named(&hosts), want);
        let text = "# all\na\n\n b slots=4 max_slots=8 # two\nc:3\r\na\n";
        let hosts = Hosts::file(text).unwrap();
        assert_eq!(named(&hosts), [("a", Some(2)), ("b", Some(4)), ("c", Some(3))]);
        for nonsense in ["", ",", "a:0", "a:x", "-oProxyCommand=x", "a b", ":3", "a:-1"] {
            assert!(Hosts::list(nonsense).is_err(), "{nonsense}");
        }
        assert!(Hosts::file("a slots=0").is_err() && Hosts::file("# none").is_err());
    }

    #[test]
    fn ranks_go_to_slots_in_order_or_as_the_map_has_it() {
        let counts = |text: &str, ranks, map: &Map| {
            let (hosts, places) = Hosts::list(text)?.place(ranks, map)?;
            Ok::<_, Error>((0..hosts.len() as u32).map(|n| places.count_on(n)).collect::<Vec<_>>())
        };
        assert_eq!(counts("a,b:4,c", 6, &Map::Block).unwrap(), [1, 4, 1]);
        assert_eq!(counts("a,b:4,c", 3, &Map::Block).unwrap(), [1, 2]);
        assert!(counts("a,b:4,c", 7, &Map::Block).is_err());
        assert_eq!(counts("a,b,c", 7, &Map::Block).unwrap(), [3, 2, 2]);
        assert_eq!(counts("a,b,c", 2, &Map::Block).unwrap(), [1, 1]);
        assert_eq!(counts("a,b", 4, &Map::Cyclic(1)).unwrap(), [2, 2]);
        assert_eq!(counts("a,b", 4, &Map::Counts(vec![1, 3])).unwrap(), [1, 3]);
        assert!(counts("a:2,b:1", 4, &Map::Cyclic(1)).is_err());
        assert!(counts("a,b", 4, &Map::Counts(vec![4])).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-c:0-9,\\[\\]@ #=\n-]{0,40}", ranks in 1u32..9) {
            for hosts in [Hosts::list(&text), Hosts::file(&text)].into_iter().flatten() {
                if let Ok((used, places)) = hosts.place(ranks, &Map::Block) {
                    prop_assert_eq!(used.len() as u32, places.nodes());
                    prop_assert_eq!(places.ranks(), ranks);
                }
            }
        }
    }
}
