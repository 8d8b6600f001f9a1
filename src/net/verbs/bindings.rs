//! The binary interface of rdma-core's `libibverbs.so.1`: layouts, numbers, functions.
//!
//! What the library promises to keep (its symbol version `IBVERBS_1.1`, in use since 2009; the table
//! of GIDs since release 33) is written down here and nowhere else; assertions hold sizes and offsets
//! to it, for machines with eight-byte pointers. Posting, polling and arming are no functions of the
//! library but entries of a table that each opened device has ([`ContextOps`]).

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// Bytes that the library writes before a datagram in the receiver's buffer.
pub const GRH: u32 = 40;

/// A global identifier: an IPv6 address, or an IPv4 one mapped into it.
pub type Gid = [u8; 16];

macro_rules! opaque {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        $($(#[doc = $doc])+ #[repr(C)] pub struct $name([u8; 0]);)+
    };
}

opaque! {
    /// `ibv_device`: one of the list.
    Device;
    /// `ibv_pd`.
    Domain;
    /// `ibv_ah`.
    Handle;
}

/// `ibv_context`, as far as it is looked at.
#[repr(C)]
pub struct Context {
    device: *mut Device,
    pub ops: ContextOps,
    cmd_fd: c_int,
    pub async_fd: c_int,
}

type Unused = *mut c_void;

/// `ibv_context_ops`: what is called most, without a way through the library.
#[repr(C)]
pub struct ContextOps {
    unused0: [Unused; 11],
    pub poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    unused1: [Unused; 7],
    pub post_srq_recv: unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    unused2: [Unused; 4],
    pub post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    unused3: [Unused; 5],
}

/// `ibv_cq`, as far as it is looked at.
#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
    channel: *mut CompChannel,
    cq_context: *mut c_void,
    handle: u32,
    pub cqe: c_int,
}

/// `ibv_srq`, as far as it is looked at.
#[repr(C)]
pub struct Srq {
    pub context: *mut Context,
}

/// `ibv_qp`, as far as it is looked at.
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    qp_context: *mut c_void,
    others: [*mut c_void; 4],
    handle: u32,
    pub qp_num: u32,
}

/// `ibv_comp_channel`, as far as it is looked at.
#[repr(C)]
pub struct CompChannel {
    context: *mut Context,
    pub fd: c_int,
}

/// `ibv_mr`, as far as it is looked at.
#[repr(C)]
pub struct Mr {
    context: *mut Context,
    pd: *mut Domain,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `ibv_sge`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `ibv_send_wr`. Its union as words: write and read (address, key), atomics (address, two operands,
/// key), datagrams (handle, number and key).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    /// In network byte order.
    pub imm_data: u32,
    pub wr: [u64; 4],
    unused: [u64; 7],
}

impl SendWr {
    pub const NONE: SendWr = SendWr {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        imm_data: 0,
        wr: [0; 4],
        unused: [0; 7],
    };
}

/// Two fields of four bytes in one word of the union, in the order of memory.
pub fn halves(first: u32, second: u32) -> u64 {
    let [a, b] = [first.to_ne_bytes(), second.to_ne_bytes()];
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
}

/// `ibv_recv_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

impl RecvWr {
    pub const NONE: RecvWr =
        RecvWr { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 };
}

/// `ibv_wc`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// In network byte order.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `ibv_qp_cap`.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `ibv_qp_init_attr`.
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
}

/// `ibv_srq_init_attr`.
#[repr(C)]
pub struct SrqInitAttr {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
}

/// `ibv_srq_attr`.
#[repr(C)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// `ibv_ah_attr`, with `ibv_global_route` in front.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
pub struct AhAttr {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub unused: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `ibv_qp_attr`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct QpAttr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `ibv_device_attr`, as far as it is looked at; the library writes all of it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct DeviceAttr {
    unused0: [u8; 108],
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    device_cap_flags: u32,
    pub max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    max_ee_init_rd_atom: c_int,
    pub atomic_cap: u32,
    unused1: [u8; 44],
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    max_pkeys: u16,
    local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `ibv_port_attr`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct PortAttr {
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    sm_lid: u16,
    lmc: u8,
    unused: [u8; 7],
    pub link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
}

/// `ibv_gid_entry`.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
pub struct GidEntry {
    pub gid: Gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

/// `ibv_async_event`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AsyncEvent {
    /// Which queue pair, queue or port, by kind.
    pub element: u64,
    pub event_type: u32,
}

const _: () = {
    assert!(size_of::<*mut c_void>() == 8);
    assert!(offset_of!(Context, ops) == 8 && size_of::<ContextOps>() == 256);
    assert!(offset_of!(Context, async_fd) == 268);
    assert!(offset_of!(ContextOps, poll_cq) == 88);
    assert!(offset_of!(ContextOps, req_notify_cq) == 96);
    assert!(offset_of!(ContextOps, post_srq_recv) == 160);
    assert!(offset_of!(ContextOps, post_send) == 200);
    assert!(offset_of!(ContextOps, post_recv) == 208);
    assert!(offset_of!(Cq, cqe) == 28 && offset_of!(Qp, qp_num) == 52);
    assert!(offset_of!(CompChannel, fd) == 8);
    assert!(offset_of!(Mr, lkey) == 36 && offset_of!(Mr, rkey) == 40);
    assert!(size_of::<Sge>() == 16 && size_of::<RecvWr>() == 32);
    assert!(size_of::<SendWr>() == 128 && offset_of!(SendWr, wr) == 40);
    assert!(size_of::<Wc>() == 48 && offset_of!(Wc, dlid_path_bits) == 45);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, qp_type) == 52);
    assert!(size_of::<SrqInitAttr>() == 24 && size_of::<SrqAttr>() == 12);
    assert!(size_of::<AhAttr>() == 32 && offset_of!(AhAttr, port_num) == 30);
    assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, ah_attr) == 56);
    assert!(offset_of!(QpAttr, max_rd_atomic) == 126 && offset_of!(QpAttr, rate_limit) == 136);
    assert!(size_of::<DeviceAttr>() == 232 && offset_of!(DeviceAttr, max_qp) == 108);
    assert!(offset_of!(DeviceAttr, max_cqe) == 132 && offset_of!(DeviceAttr, atomic_cap) == 164);
    assert!(offset_of!(DeviceAttr, max_qp_rd_atom) == 144);
    assert!(offset_of!(DeviceAttr, max_qp_init_rd_atom) == 156);
    assert!(offset_of!(DeviceAttr, max_srq_sge) == 220);
    assert!(offset_of!(DeviceAttr, phys_port_cnt) == 227);
    assert!(size_of::<PortAttr>() == 52 && offset_of!(PortAttr, link_layer) == 46);
    assert!(offset_of!(PortAttr, lid) == 34);
    assert!(size_of::<GidEntry>() == 32 && size_of::<AsyncEvent>() == 16);
};

/// The numbers that are used.
pub mod number {
    pub const QP_STATE: i32 = 1;
    pub const QP_ACCESS_FLAGS: i32 = 8;
    pub const QP_PKEY_INDEX: i32 = 16;
    pub const QP_PORT: i32 = 32;
    pub const QP_QKEY: i32 = 64;
    pub const QP_AV: i32 = 128;
    pub const QP_PATH_MTU: i32 = 256;
    pub const QP_TIMEOUT: i32 = 512;
    pub const QP_RETRY_CNT: i32 = 1024;
    pub const QP_RNR_RETRY: i32 = 2048;
    pub const QP_RQ_PSN: i32 = 4096;
    pub const QP_MAX_QP_RD_ATOMIC: i32 = 8192;
    pub const QP_MIN_RNR_TIMER: i32 = 32768;
    pub const QP_SQ_PSN: i32 = 65536;
    pub const QP_MAX_DEST_RD_ATOMIC: i32 = 131072;
    pub const QP_DEST_QPN: i32 = 1048576;
    pub const QPT_RC: u32 = 2;
    pub const QPT_UD: u32 = 4;
    pub const QPS_RESET: u32 = 0;
    pub const QPS_INIT: u32 = 1;
    pub const QPS_RTR: u32 = 2;
    pub const QPS_RTS: u32 = 3;
    pub const QPS_ERR: u32 = 6;
    pub const WR_RDMA_WRITE: u32 = 0;
    pub const WR_RDMA_WRITE_WITH_IMM: u32 = 1;
    pub const WR_SEND: u32 = 2;
    pub const WR_SEND_WITH_IMM: u32 = 3;
    pub const WR_RDMA_READ: u32 = 4;
    pub const WR_ATOMIC_CMP_AND_SWP: u32 = 5;
    pub const WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub const SEND_FENCE: u32 = 1;
    pub const SEND_SIGNALED: u32 = 2;
    pub const SEND_SOLICITED: u32 = 4;
    pub const SEND_INLINE: u32 = 8;
    pub const WC_WITH_IMM: u32 = 2;
    pub const WC_RECV_RDMA_WITH_IMM: u32 = 129;
    pub const SRQ_LIMIT: i32 = 2;
    pub const ATOMIC_HCA: u32 = 1;
    pub const ATOMIC_GLOB: u32 = 2;
    pub const PORT_ACTIVE: u32 = 4;
    pub const LINK_ETHERNET: u8 = 2;
    pub const GID_IB: u32 = 0;
    pub const GID_ROCE_V1: u32 = 1;
    pub const GID_ROCE_V2: u32 = 2;
    pub const EVENT_CQ_ERR: u32 = 0;
    pub const EVENT_QP_FATAL: u32 = 1;
    pub const EVENT_QP_REQ_ERR: u32 = 2;
    pub const EVENT_QP_ACCESS_ERR: u32 = 3;
    pub const EVENT_DEVICE_FATAL: u32 = 8;
    pub const EVENT_PORT_ACTIVE: u32 = 9;
    pub const EVENT_PORT_ERR: u32 = 10;
    pub const EVENT_SRQ_ERR: u32 = 14;
    pub const EVENT_SRQ_LIMIT_REACHED: u32 = 15;
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)+) => {
        /// The functions of the library.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl Functions {
            /// Takes each from where `find` says it is; else the name of the first that is nowhere.
            ///
            /// # Safety
            /// What `find` gives are the functions of libibverbs that have these names, for ever.
            pub unsafe fn load(
                find: impl Fn(&str) -> Option<*mut c_void>,
            ) -> Result<Functions, &'static str> {
                Ok(Functions {
                    $($name: {
                        let found = find(stringify!($name)).ok_or(stringify!($name))?;
                        // SAFETY: the caller's: it is that function, which has this type.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(found)
                        }
                    },)+
                })
            }
        }
    };
}

functions! {
    ibv_fork_init() -> c_int;
    ibv_get_device_list(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list(*mut *mut Device) -> ();
    ibv_get_device_name(*mut Device) -> *const c_char;
    ibv_open_device(*mut Device) -> *mut Context;
    ibv_close_device(*mut Context) -> c_int;
    ibv_query_device(*mut Context, *mut DeviceAttr) -> c_int;
    ibv_query_port(*mut Context, u8, *mut PortAttr) -> c_int;
    _ibv_query_gid_table(*mut Context, *mut GidEntry, usize, u32, usize) -> isize;
    ibv_get_async_event(*mut Context, *mut AsyncEvent) -> c_int;
    ibv_ack_async_event(*mut AsyncEvent) -> ();
    ibv_alloc_pd(*mut Context) -> *mut Domain;
    ibv_dealloc_pd(*mut Domain) -> c_int;
    ibv_reg_mr(*mut Domain, *mut c_void, usize, c_int) -> *mut Mr;
    ibv_dereg_mr(*mut Mr) -> c_int;
    ibv_create_comp_channel(*mut Context) -> *mut CompChannel;
    ibv_destroy_comp_channel(*mut CompChannel) -> c_int;
    ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    ibv_resize_cq(*mut Cq, c_int) -> c_int;
    ibv_destroy_cq(*mut Cq) -> c_int;
    ibv_get_cq_event(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut Cq, u32) -> ();
    ibv_create_srq(*mut Domain, *mut SrqInitAttr) -> *mut Srq;
    ibv_modify_srq(*mut Srq, *mut SrqAttr, c_int) -> c_int;
    ibv_destroy_srq(*mut Srq) -> c_int;
    ibv_create_qp(*mut Domain, *mut QpInitAttr) -> *mut Qp;
    ibv_modify_qp(*mut Qp, *mut QpAttr, c_int) -> c_int;
    ibv_destroy_qp(*mut Qp) -> c_int;
    ibv_create_ah(*mut Domain, *mut AhAttr) -> *mut Handle;
    ibv_destroy_ah(*mut Handle) -> c_int;
}
