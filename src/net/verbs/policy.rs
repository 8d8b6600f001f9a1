//! Which device, port and GID are used, of those there are, and why: no input or output here.
//!
//! Of active ports that the settings leave, the one with the best address wins: RoCE v2 over IPv4,
//! then over IPv6 of global reach, over link-local IPv6, then RoCE v1; on InfiniBand the port's own
//! GID, which ranks with the best. Among equals the first in the order of names, ports and indices.

use super::bindings::Gid;
use std::net::{IpAddr, Ipv6Addr};

/// What a port speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    InfiniBand,
    Ethernet,
}

/// Kinds of GIDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    InfiniBand,
    RoceV1,
    RoceV2,
}

/// An entry of a port's table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub index: u32,
    pub kind: Kind,
    pub gid: Gid,
}

impl Entry {
    /// As an address, IPv4 where it is one.
    pub fn address(&self) -> IpAddr {
        let address = Ipv6Addr::from(self.gid);
        address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
    }

    /// How good it is, best first, and what it is called; none if the link cannot use it.
    fn rank(&self, link: Link) -> Option<(u32, &'static str)> {
        let address = self.address();
        if self.gid == [0; 16] {
            return None;
        }
        match (link, self.kind, address) {
            (Link::InfiniBand, Kind::InfiniBand, _) => Some((0, "InfiniBand")),
            (Link::Ethernet, Kind::RoceV2, IpAddr::V4(_)) => Some((0, "RoCE v2 over IPv4")),
            (Link::Ethernet, Kind::RoceV2, IpAddr::V6(v6)) if v6.is_unicast_link_local() => {
                Some((2, "RoCE v2 over link-local IPv6"))
            }
            (Link::Ethernet, Kind::RoceV2, IpAddr::V6(_)) => Some((1, "RoCE v2 over IPv6")),
            (Link::Ethernet, Kind::RoceV1, _) => Some((3, "RoCE v1")),
            _ => None,
        }
    }
}

/// A port of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Port {
    pub device: String,
    pub number: u8,
    pub active: bool,
    pub link: Link,
    pub entries: Vec<Entry>,
}

/// Addresses that begin alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Subnet {
    address: IpAddr,
    bits: u8,
}

impl Subnet {
    /// From `10.0.0.0/8` or `fd00::/64`.
    pub fn parse(text: &str) -> Option<Subnet> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Subnet { address, bits })
    }

    /// Whether it has this one.
    pub fn contains(&self, address: IpAddr) -> bool {
        let word = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let differ = word(self.address) ^ word(address);
        self.address.is_ipv4() == address.is_ipv4() && differ.leading_zeros() >= self.bits.into()
    }
}

/// What the settings ask for; what is not set is left to the policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Wish {
    pub device: Option<String>,
    pub port: Option<u8>,
    pub subnet: Option<Subnet>,
    pub gid: Option<u32>,
}

/// What is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub device: String,
    pub port: u8,
    pub link: Link,
    pub entry: Entry,
    /// For people: what it is and why it.
    pub reason: String,
}

/// Kinds of networks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Network {
    /// InfiniBand.
    InfiniBand = 1,
    /// RoCE over IPv4.
    RoceV4 = 2,
    /// RoCE over IPv6.
    RoceV6 = 3,
    /// RoCE without IP: version 1.
    RoceV1 = 4,
}

impl Choice {
    /// What it is on.
    pub fn network(&self) -> Network {
        match (self.entry.kind, self.entry.address()) {
            (Kind::InfiniBand, _) => Network::InfiniBand,
            (Kind::RoceV1, _) => Network::RoceV1,
            (Kind::RoceV2, IpAddr::V4(_)) => Network::RoceV4,
            (Kind::RoceV2, IpAddr::V6(_)) => Network::RoceV6,
        }
    }
}

/// Chooses; an error text if nothing there is can be used.
pub(super) fn choose(ports: &[Port], wish: &Wish) -> Result<Choice, String> {
    if ports.is_empty() {
        return Err("this machine has no RDMA devices".into());
    }
    let mut best: Option<(Ranked<'_>, &Port)> = None;
    let mut usable = 0;
    let wanted = |port: &&Port| {
        wish.device.as_ref().is_none_or(|device| *device == port.device)
            && wish.port.is_none_or(|number| number == port.number)
    };
    for port in ports.iter().filter(wanted).filter(|port| port.active) {
        let ranked = port.entries.iter().filter_map(|entry| Ranked::new(port, entry, wish));
        let Some(ranked) = ranked.min_by_key(|ranked| (ranked.rank, ranked.entry.index)) else {
            continue;
        };
        usable += 1;
        let key =
            |ranked: &Ranked<'_>, port: &Port| (ranked.rank, port.device.clone(), port.number);
        if best.as_ref().is_none_or(|(other, at)| key(&ranked, port) < key(other, at)) {
            best = Some((ranked, port));
        }
    }
    let Some((Ranked { entry, what, .. }, port)) = best else { return Err(why_none(ports, wish)) };
    let why = match (wish.device.is_some() || wish.port.is_some(), usable) {
        (true, _) => "as the settings want it".into(),
        (false, 1) => "the only port that can be used".into(),
        (false, _) => format!("the best address of {usable} ports that can be used"),
    };
    let (device, number, address) = (&port.device, port.number, entry.address());
    let reason = format!("{device} port {number}, GID {} ({what}, {address}): {why}", entry.index);
    let (device, entry) = (device.clone(), entry.clone());
    Ok(Choice { device, port: number, link: port.link, entry, reason })
}

/// An entry that can be used.
struct Ranked<'a> {
    rank: u32,
    entry: &'a Entry,
    what: &'static str,
}

impl<'a> Ranked<'a> {
    fn new(port: &Port, entry: &'a Entry, wish: &Wish) -> Option<Ranked<'a>> {
        let wanted = wish.gid.is_none_or(|index| index == entry.index)
            && wish.subnet.is_none_or(|subnet| subnet.contains(entry.address()));
        let (rank, what) = entry.rank(port.link).filter(|_| wanted)?;
        Some(Ranked { rank, entry, what })
    }
}

fn why_none(ports: &[Port], wish: &Wish) -> String {
    let list = |ports: &mut dyn Iterator<Item = &Port>| {
        ports
            .map(|port| {
                let down = if port.active { "" } else { " (down)" };
                format!("{} port {}{down}", port.device, port.number)
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    if wish == &Wish::default() {
        let all = list(&mut ports.iter());
        return format!("no port is active and has an address: {all}; bring the link up");
    }
    format!(
        "nothing fits the settings for device, port, subnet and GID; there are: {}",
        list(&mut ports.iter())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V4: Gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 1, 2, 3];

    fn gid() -> impl Strategy<Value = Gid> {
        let v4 = any::<[u8; 4]>().prop_map(|v4| {
            let mut gid = V4;
            gid[12] = 10 + v4[0] % 2;
            gid[13..].copy_from_slice(&v4[1..]);
            gid
        });
        let v6 = (any::<u8>(), any::<bool>()).prop_map(|(last, local)| {
            let mut gid = [0; 16];
            gid[..2].copy_from_slice(if local { &[0xfe, 0x80] } else { &[0xfd, 0] });
            gid[15] = last;
            gid
        });
        prop_oneof![v4, v6, Just([0; 16])]
    }

    fn ports() -> impl Strategy<Value = Vec<Port>> {
        let kind = prop_oneof![Just(Kind::InfiniBand), Just(Kind::RoceV1), Just(Kind::RoceV2)];
        let entries = proptest::collection::vec((kind, gid()), 0..5).prop_map(|entries| {
            let entry = |(index, (kind, gid))| Entry { index, kind, gid };
            (0..).zip(entries).map(entry).collect::<Vec<_>>()
        });
        let port = (0..3u8, 1..3u8, any::<bool>(), any::<bool>(), entries);
        proptest::collection::vec(port, 0..6).prop_map(|ports| {
            let mut ports: Vec<Port> = ports
                .into_iter()
                .map(|(device, number, active, ethernet, entries)| Port {
                    device: format!("dev{device}"),
                    number,
                    active,
                    link: if ethernet { Link::Ethernet } else { Link::InfiniBand },
                    entries,
                })
                .collect();
            ports.sort_by_key(|port| (port.device.clone(), port.number));
            ports.dedup_by_key(|port| (port.device.clone(), port.number));
            ports
        })
    }

    fn wish() -> impl Strategy<Value = Wish> {
        let subnet = prop_oneof![Just("10.0.0.0/8"), Just("fd00::/16"), Just("0.0.0.0/0")];
        let maybe = proptest::option::weighted(0.3, 0..3u8);
        let port = proptest::option::weighted(0.3, 1..3u8);
        let subnet = proptest::option::weighted(0.3, subnet);
        (maybe, port, subnet, proptest::option::weighted(0.2, 0..5u32)).prop_map(
            |(device, port, subnet, gid)| Wish {
                device: device.map(|device| format!("dev{device}")),
                port,
                subnet: subnet.and_then(Subnet::parse),
                gid,
            },
        )
    }

    /// The order of preference, written down a second time.
    fn place(port: &Port, entry: &Entry) -> Option<usize> {
        let text = entry.address().to_string();
        let order = [
            (port.link == Link::InfiniBand && entry.kind == Kind::InfiniBand)
                || (port.link == Link::Ethernet
                    && entry.kind == Kind::RoceV2
                    && !text.contains(':')),
            port.link == Link::Ethernet && entry.kind == Kind::RoceV2 && text.starts_with("fd"),
            port.link == Link::Ethernet && entry.kind == Kind::RoceV2 && text.starts_with("fe80"),
            port.link == Link::Ethernet && entry.kind == Kind::RoceV1,
        ];
        order.iter().position(|is| *is).filter(|_| entry.gid != [0; 16])
    }

    fn fits(port: &Port, entry: &Entry, wish: &Wish) -> bool {
        let inside = |subnet: Subnet| {
            let text = entry.address().to_string();
            match subnet.bits {
                8 => text.starts_with("10."),
                16 => text.starts_with("fd00:"),
                _ => !text.contains(':'),
            }
        };
        port.active
            && wish.device.as_ref().is_none_or(|device| *device == port.device)
            && wish.port.is_none_or(|number| number == port.number)
            && wish.gid.is_none_or(|index| index == entry.index)
            && wish.subnet.is_none_or(inside)
    }

    proptest! {
        #[test]
        fn the_first_of_the_best_that_fit_is_chosen(ports in ports(), wish in wish()) {
            let mut all = Vec::new();
            for port in &ports {
                for entry in port.entries.iter().filter(|entry| fits(port, entry, &wish)) {
                    if let Some(place) = place(port, entry) {
                        all.push((place, port.device.clone(), port.number, entry.index));
                    }
                }
            }
            all.sort();
            let chosen = choose(&ports, &wish);
            prop_assert_eq!(chosen.is_ok(), !all.is_empty(), "{:?}", chosen);
            if let Ok(choice) = chosen {
                let (_, device, number, index) = &all[0];
                prop_assert_eq!(&choice.device, device);
                prop_assert_eq!((choice.port, choice.entry.index), (*number, *index));
                prop_assert!(choice.reason.contains(device));
            }
        }
    }

    #[test]
    fn subnets_parse_and_contain() {
        let contains = |subnet: &str, address: &str| {
            Subnet::parse(subnet).unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.1.0.0/16", "10.1.255.3") && !contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("10.1.2.3/32", "10.1.2.3") && !contains("10.1.2.3/32", "10.1.2.2"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("fd00::/64", "fd00::9") && !contains("fd00::/64", "fd00:0:0:1::"));
        for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1"] {
            assert_eq!(Subnet::parse(text), None);
        }
    }
}
