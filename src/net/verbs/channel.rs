//! Where threads sleep: the descriptor on which the device says that armed queues have something, and
//! an eventfd for everything else.

use super::bindings;
use super::context::last_error;
use super::hub::Hub;
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Result};
use crate::net::alarm::{Alarm, sleep};
use crate::net::provider::{Channel, Time, Woken};
use crate::net::soft::events::Bell;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// See the module.
pub(super) struct VerbsChannel {
    hub: Arc<Hub>,
    raw: NonNull<bindings::CompChannel>,
    alarm: Alarm,
    rung: AtomicBool,
    called: AtomicBool,
    /// Of both descriptors, for others to sleep with.
    both: OwnedFd,
}

// SAFETY: the library's functions may be called for one channel from any thread.
unsafe impl Send for VerbsChannel {}
// SAFETY: as above.
unsafe impl Sync for VerbsChannel {}

impl Drop for VerbsChannel {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; completion queues keep theirs.
        unsafe { (self.hub.verbs().ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

impl VerbsChannel {
    pub fn new(hub: &Arc<Hub>) -> Result<VerbsChannel> {
        let alarm = Alarm::new()?;
        let os = |e| Error::os("epoll for the network", e);
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os)?;
        // SAFETY: the context is open.
        let raw = unsafe { (hub.verbs().ibv_create_comp_channel)(hub.context().raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("making a completion channel"))?;
        let (rung, called) = (AtomicBool::new(false), AtomicBool::new(false));
        let channel = VerbsChannel { hub: hub.clone(), raw, alarm, rung, called, both };
        let flags = rustix::fs::fcntl_getfl(channel.completions()).map_err(os)?;
        rustix::fs::fcntl_setfl(channel.completions(), flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(os)?;
        for fd in [channel.completions(), channel.alarm.as_fd()] {
            let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
            epoll::add(&channel.both, fd, data, flags).map_err(os)?;
        }
        Ok(channel)
    }

    pub fn raw(&self) -> *mut bindings::CompChannel {
        self.raw.as_ptr()
    }

    fn completions(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor, open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// Takes what the device has said; whether it was anything.
    fn take(&self) -> bool {
        let mut any = false;
        loop {
            let (mut queue, mut of) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: it writes both where it gives 0. A queue is not destroyed before what was said
            // of it has been acknowledged.
            unsafe {
                if (self.hub.verbs().ibv_get_cq_event)(self.raw(), &mut queue, &mut of) != 0 {
                    return any;
                }
                (self.hub.verbs().ibv_ack_cq_events)(queue, 1);
            }
            any = true;
        }
    }
}

impl Bell for VerbsChannel {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.alarm.ring();
        }
    }
}

impl Channel for VerbsChannel {
    fn wait(&self, until: Time) -> Woken {
        loop {
            // Silenced before the looks, so that a ring after them is heard.
            self.alarm.silence();
            let rung = self.rung.swap(false, Ordering::AcqRel);
            if self.take() || rung {
                if self.called.load(Ordering::Acquire) {
                    self.alarm.ring();
                }
                return Woken::Ready;
            }
            if self.called.swap(false, Ordering::AcqRel) {
                return Woken::Called;
            }
            if !sleep(&[self.alarm.as_fd(), self.completions()], until) {
                return Woken::Elapsed;
            }
        }
    }

    fn wake(&self) {
        self.called.store(true, Ordering::Release);
        self.alarm.ring();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.both.as_fd())
    }
}
