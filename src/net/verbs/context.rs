//! Opened devices, and what they say of themselves and their ports.

use super::bindings::{self, DeviceAttr, Functions, GidEntry, PortAttr, number};
use super::policy::{Entry, Kind, Link, Port};
use super::region;
use crate::base::{Error, Result};
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Longest table of GIDs that is read.
const ENTRIES: usize = 1024;

/// What failed, of a function that gives a pointer or -1.
pub(super) fn last_error(what: &'static str) -> Error {
    Error::os(what, std::io::Error::last_os_error())
}

/// Of one that gives an error number, 0 for none.
pub(super) fn check(what: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::os(what, std::io::Error::from_raw_os_error(code.abs()))),
    }
}

/// Of one that makes an object: the limits of memory are told as such.
pub(super) fn or_limits<T>(what: &'static str, raw: *mut T) -> Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(|| {
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ENOMEM) {
            return region::no_memory(what, 0);
        }
        Error::os(what, error)
    })
}

/// An opened device. It is closed when this is dropped, after everything made of it.
pub(super) struct Context {
    pub verbs: &'static Functions,
    raw: NonNull<bindings::Context>,
    pub name: String,
}

// SAFETY: the library's functions may be called for one context from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; everything made of it keeps it.
        unsafe { (self.verbs.ibv_close_device)(self.raw.as_ptr()) };
    }
}

impl Context {
    /// All devices that can be opened, in the order of their names.
    pub fn all(verbs: &'static Functions) -> Vec<Context> {
        let mut count = 0;
        // SAFETY: it writes how many there are, and gives a list of so many, or nothing.
        let list = unsafe { (verbs.ibv_get_device_list)(&mut count) };
        if list.is_null() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for i in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` devices; opening one keeps it beyond the list's end; a
            // name is a string that stays as long as the list.
            unsafe {
                let device = *list.add(i);
                if let Some(raw) = NonNull::new((verbs.ibv_open_device)(device)) {
                    let name = CStr::from_ptr((verbs.ibv_get_device_name)(device));
                    let name = name.to_string_lossy().into_owned();
                    all.push(Context { verbs, raw, name });
                }
            }
        }
        // SAFETY: the list that was given, given back once.
        unsafe { (verbs.ibv_free_device_list)(list) };
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    pub fn raw(&self) -> *mut bindings::Context {
        self.raw.as_ptr()
    }

    /// The functions that devices bring themselves.
    pub fn ops(&self) -> &bindings::ContextOps {
        // SAFETY: the context lives as long as `self`, and the table does not change once opened.
        unsafe { &(*self.raw.as_ptr()).ops }
    }

    /// The descriptor of events without completions.
    pub fn events(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).async_fd }
    }

    pub fn attributes(&self) -> Result<DeviceAttr> {
        let mut attributes = MaybeUninit::<DeviceAttr>::zeroed();
        // SAFETY: it writes one of them, of which all patterns are values.
        let attributes = unsafe {
            let code = (self.verbs.ibv_query_device)(self.raw(), attributes.as_mut_ptr());
            check("asking an RDMA device what it can do", code)?;
            attributes.assume_init()
        };
        Ok(attributes)
    }

    pub fn port(&self, port: u8) -> Result<PortAttr> {
        let mut attributes = PortAttr::default();
        // SAFETY: it writes one of them at most.
        let code = unsafe { (self.verbs.ibv_query_port)(self.raw(), port, &mut attributes) };
        check("asking an RDMA port for its state", code)?;
        Ok(attributes)
    }

    /// Its ports, with their addresses.
    pub fn ports(&self) -> Result<Vec<Port>> {
        let mut table = vec![GidEntry::default(); ENTRIES];
        // SAFETY: it writes at most so many entries of that size.
        let count = unsafe {
            let size = size_of::<GidEntry>();
            (self.verbs._ibv_query_gid_table)(self.raw(), table.as_mut_ptr(), ENTRIES, 0, size)
        };
        table.truncate(usize::try_from(count).unwrap_or(0));
        let port = |port: u8| -> Result<Port> {
            let attributes = self.port(port)?;
            let own = table.iter().filter(|entry| entry.port_num == u32::from(port));
            let entries = own.filter_map(|entry| {
                let kind = match entry.gid_type {
                    number::GID_IB => Kind::InfiniBand,
                    number::GID_ROCE_V1 => Kind::RoceV1,
                    number::GID_ROCE_V2 => Kind::RoceV2,
                    _ => return None,
                };
                Some(Entry { index: entry.gid_index, kind, gid: entry.gid })
            });
            Ok(Port {
                device: self.name.clone(),
                number: port,
                active: attributes.state == number::PORT_ACTIVE,
                link: match attributes.link_layer {
                    number::LINK_ETHERNET => Link::Ethernet,
                    _ => Link::InfiniBand,
                },
                entries: entries.collect(),
            })
        };
        (1..=self.attributes()?.phys_port_cnt).map(port).collect()
    }
}
