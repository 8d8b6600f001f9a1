//! Connects a process to those of other nodes, as the settings want it.

use crate::base::adapt::Limits;
use crate::base::{Deadline, Error, Rank, Result, settings};
use crate::boot::Bootstrap;
use crate::link::core::Core;
use crate::link::far::PairSettings;
use crate::link::far::edge::{Directory, Edge};
use crate::net::fault::{FaultDevice, Plan};
use crate::net::promotion::{self, When};
use crate::net::provider::{Address, Device};
use crate::net::{sockets, verbs};
use crate::shm::node::Node;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Connects a process to those of other nodes, over what the settings want and all have.
pub(super) fn connect(
    node: &Arc<Node>,
    mut bootstrap: Box<dyn Bootstrap>,
    deadline: Deadline,
) -> Result<()> {
    const KEY: &str = "net";
    let cookie = bootstrap.job();
    let device = match provide(&mut *bootstrap, cookie, deadline)? {
        Ok(device) => device,
        Err(error) => {
            // Others may have one: they are to learn that this rank says nothing, not to wait for it.
            let _ = bootstrap.fence(deadline);
            return Err(error);
        }
    };
    over(node, device, cookie, |address| {
        bootstrap.put(KEY, address.as_bytes())?;
        bootstrap.fence(deadline)?;
        Ok(Box::new(Published { bootstrap: Mutex::new(bootstrap), key: KEY }))
    })
}

/// Opens the device. With `auto` all processes say what RDMA network they have a device on; if it is
/// one for all it is used, else sockets are. Rank 0 looks at what they say, so that nobody else has to.
///
/// # Errors
/// The outer ones of the exchange; the inner ones are why this rank has no device.
fn provide(
    bootstrap: &mut dyn Bootstrap,
    cookie: u64,
    deadline: Deadline,
) -> Result<Result<Arc<dyn Device>>> {
    const HAVE: &str = "net-have";
    const USE: &str = "net-use";
    let beyond = bootstrap.reaches_beyond();
    let sockets = || {
        // The edge has a thread that waits.
        let config = sockets::Config { thread: false, ..sockets::Config::from_settings(cookie)? };
        if beyond && config.address.is_loopback() {
            return Err(reached_by_nobody(&config.address.to_string()));
        }
        sockets::open(&config)
    };
    let open = || verbs::open(&verbs::Config::from_settings(cookie)?);
    match settings::NET_PROVIDER.text().as_str() {
        "sockets" => return Ok(sockets()),
        "verbs" => return Ok(open().map(|(device, _)| device)),
        "auto" => {}
        other => {
            let why = format!("\"{other}\" is none of auto, sockets and verbs");
            return Ok(Err(Error::invalid(settings::NET_PROVIDER.name, why)));
        }
    }
    let own = open().ok();
    let network = own.as_ref().map_or(Vec::new(), |(_, network)| vec![*network as u8]);
    bootstrap.put(HAVE, &network)?;
    bootstrap.fence(deadline)?;
    if bootstrap.rank() == Rank(0) {
        let mut same = !network.is_empty();
        for rank in 1..bootstrap.size() {
            same = same && bootstrap.get(Rank(rank), HAVE, deadline)?.as_ref() == Some(&network);
        }
        bootstrap.put(USE, if same { &network } else { &[] })?;
    }
    bootstrap.fence(deadline)?;
    let chosen = bootstrap.get(Rank(0), USE, deadline)?;
    Ok(match own {
        Some((device, _)) if !network.is_empty() && chosen == Some(network) => Ok(device),
        _ => sockets(),
    })
}

#[cold]
fn reached_by_nobody(address: &str) -> Error {
    let name = settings::NET_ADDRESS.name;
    Error::boot(format!(
        "ranks of the job are on other machines, or in other network namespaces (containers), which do \
         not reach this one at {address}: set {name} there and here to an address of the machine, or \
         container, that the others reach, or to the name of the interface that has it"
    ))
}

/// Connects a process to those of other nodes over a device, with the faults that the settings want.
/// `publish` tells the others where it is reached, and gives the directory.
pub(super) fn over(
    node: &Arc<Node>,
    device: Arc<dyn Device>,
    cookie: u64,
    publish: impl FnOnce(&Address) -> Result<Box<dyn Directory>>,
) -> Result<()> {
    let device: Arc<dyn Device> = match Plan::from_settings(node.rank_of(node.slot()).0)? {
        Some(plan) => FaultDevice::over(device, plan),
        None => device,
    };
    let silence = settings::NET_TIMEOUT.seconds()?.unwrap_or(Duration::MAX);
    let core = Core::of(node)?;
    let pairs = PairSettings {
        policy: policy()?,
        // Sooner than the peer counts as dead: what it may have missed goes by datagrams then.
        patience: (silence / 4).min(Duration::from_secs(2)),
        limits: Limits::from_settings()?,
        hints: core.hints().clone(),
        kept: settings::NET_KEPT.bytes()?,
    };
    let edge = Edge::open(node, device, cookie, silence, pairs, publish)?;
    node.look_beyond(edge.clone());
    core.reach_far(edge);
    Ok(())
}

/// Who gets a queue pair.
fn policy() -> Result<promotion::Settings> {
    let small = |setting: &settings::Setting| -> Result<u32> {
        Ok(setting.number()?.min(u64::from(u32::MAX)) as u32)
    };
    let (when, after) = match settings::NET_PAIRS.text().as_str() {
        "never" => (When::Never, 1),
        "kernel" => (When::Kernel, 1),
        "traffic" => (When::Traffic, small(&settings::NET_PAIR_AFTER)?),
        other => {
            let why = format!("\"{other}\" is none of never, kernel and traffic");
            return Err(Error::invalid(settings::NET_PAIRS.name, why));
        }
    };
    let limit = small(&settings::NET_PAIR_LIMIT)? as usize;
    Ok(promotion::Settings { when, limit, after, ..Default::default() })
}

/// Addresses as the processes have published them where the job was wired up.
struct Published {
    bootstrap: Mutex<Box<dyn Bootstrap>>,
    key: &'static str,
}

impl Directory for Published {
    fn address(&self, rank: Rank) -> Result<Address> {
        let mut bootstrap = self.bootstrap.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = Deadline::after(Duration::from_secs(10));
        let bytes = bootstrap
            .get(rank, self.key, patience)?
            .ok_or_else(|| Error::boot(format!("rank {rank} has not said where it is reached")))?;
        Address::from_bytes(&bytes)
    }
}
