//! Addresses of this machine, by what users call them.

use crate::base::{Error, Result};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address that `text` names: an IP address itself, or an interface's (its IPv4 address, else
/// one of IPv6 that is not link-local).
pub fn find(text: &str) -> Result<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return check(address);
    }
    let interfaces = addresses()?;
    let of_it = || interfaces.iter().filter(|(name, _)| name == text).map(|(_, address)| *address);
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    let best = of_it().find(IpAddr::is_ipv4).or_else(|| of_it().find(usable));
    best.ok_or_else(|| {
        let mut names: Vec<&str> = interfaces.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        Error::invalid(
            "HITHER_NET_ADDRESS",
            format!(
                "\"{text}\" is no IP address and no interface with one (there are {})",
                names.join(", ")
            ),
        )
    })
}

/// An error for addresses that are none of one interface.
pub fn check(address: IpAddr) -> Result<IpAddr> {
    let local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if address.is_unspecified() || address.is_multicast() || local {
        return Err(Error::invalid(
            "HITHER_NET_ADDRESS",
            format!("{address} does not tell one interface everywhere; use an address that does"),
        ));
    }
    Ok(address)
}

fn addresses() -> Result<Vec<(String, IpAddr)>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: a list is made and its address put into `list`.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(Error::os(
            "getifaddrs for the network's address",
            std::io::Error::last_os_error(),
        ));
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: `next` is null or an entry of the list, which is freed only below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() || entry.ifa_name.is_null() {
            continue;
        }
        // SAFETY: not null, and a socket address whose family says how long it is.
        let address = unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let v4 = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
                }
                libc::AF_INET6 => {
                    let v6 = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
                }
                _ => None,
            }
        };
        // SAFETY: not null, a string of the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        found.extend(address.map(|address| (name, address)));
    }
    // SAFETY: from getifaddrs, freed once; nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_interfaces_are_found() {
        assert_eq!(find("127.0.0.1").unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(find("::1").unwrap(), IpAddr::V6(Ipv6Addr::LOCALHOST));
        assert_eq!(find("lo").unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        for wrong in ["0.0.0.0", "::", "224.0.0.1", "fe80::1", "nonsense", ""] {
            let message = find(wrong).unwrap_err().to_string();
            assert!(message.contains("HITHER_NET_ADDRESS"), "{message}");
        }
    }
}
