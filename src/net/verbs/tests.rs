//! What is written down of the library's binary interface, against its own headers where they are
//! installed with a C compiler. (The suite of all providers runs in `conformance`.)

use super::bindings::*;
use std::mem::offset_of;
use std::process::{Command, Output};

/// Names in C, and the values they must have.
fn facts() -> Vec<(String, u64)> {
    let mut facts = Vec::new();
    macro_rules! layout {
        ($($rust:ident $c:literal { $($field:ident $($of:literal)?),* };)+) => {$(
            $(
                let of = [stringify!($field) $(, $of)?].last().copied().unwrap();
                facts.push((format!("offsetof(struct {}, {of})", $c), offset_of!($rust, $field) as u64));
            )*
        )+};
    }
    layout! {
        Context "ibv_context" { ops, async_fd };
        ContextOps "ibv_context_ops" { poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv };
        Cq "ibv_cq" { context, cqe };
        Qp "ibv_qp" { context, qp_num };
        CompChannel "ibv_comp_channel" { fd };
        Mr "ibv_mr" { lkey, rkey };
        SendWr "ibv_send_wr" { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr };
        RecvWr "ibv_recv_wr" { wr_id, next, sg_list, num_sge };
        Wc "ibv_wc" { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp,
            wc_flags, pkey_index, slid, sl, dlid_path_bits };
        QpInitAttr "ibv_qp_init_attr" { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
        QpCap "ibv_qp_cap" { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data };
        SrqInitAttr "ibv_srq_init_attr" { attr };
        SrqAttr "ibv_srq_attr" { max_wr, max_sge, srq_limit };
        AhAttr "ibv_ah_attr" { dgid "grh.dgid", flow_label "grh.flow_label",
            sgid_index "grh.sgid_index", hop_limit "grh.hop_limit",
            traffic_class "grh.traffic_class", dlid, sl, is_global, port_num };
        QpAttr "ibv_qp_attr" { qp_state, path_mtu, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, rate_limit };
        DeviceAttr "ibv_device_attr" { max_qp, max_qp_wr, max_sge, max_cqe, max_qp_rd_atom,
            max_qp_init_rd_atom, atomic_cap, max_srq, max_srq_wr, max_srq_sge, phys_port_cnt };
        PortAttr "ibv_port_attr" { state, active_mtu, gid_tbl_len, max_msg_sz, qkey_viol_cntr, lid,
            link_layer };
        GidEntry "ibv_gid_entry" { gid, gid_index, port_num, gid_type, ndev_ifindex };
        AsyncEvent "ibv_async_event" { element, event_type };
    }
    let remote = offset_of!(SendWr, wr) as u64;
    for (field, at) in [
        ("wr.rdma.remote_addr", 0),
        ("wr.rdma.rkey", 8),
        ("wr.atomic.compare_add", 8),
        ("wr.atomic.swap", 16),
        ("wr.atomic.rkey", 24),
        ("wr.ud.ah", 0),
        ("wr.ud.remote_qpn", 8),
        ("wr.ud.remote_qkey", 12),
    ] {
        facts.push((format!("offsetof(struct ibv_send_wr, {field})"), remote + at));
    }
    macro_rules! sizes {
        ($($rust:ident $c:literal)+) => {
            $(facts.push((format!("sizeof(struct {})", $c), size_of::<$rust>() as u64));)+
        };
    }
    sizes! {
        ContextOps "ibv_context_ops" Sge "ibv_sge" SendWr "ibv_send_wr" RecvWr "ibv_recv_wr"
        Wc "ibv_wc" QpInitAttr "ibv_qp_init_attr" SrqInitAttr "ibv_srq_init_attr"
        AhAttr "ibv_ah_attr" QpAttr "ibv_qp_attr" DeviceAttr "ibv_device_attr"
        PortAttr "ibv_port_attr" GidEntry "ibv_gid_entry" AsyncEvent "ibv_async_event"
    }
    facts.push(("sizeof(struct ibv_grh)".into(), GRH.into()));
    macro_rules! numbers {
        ($($name:ident $c:literal)+) => {
            $(facts.push((format!("IBV_{}", $c), number::$name as u64));)+
        };
    }
    numbers! {
        QP_STATE "QP_STATE" QP_ACCESS_FLAGS "QP_ACCESS_FLAGS" QP_PKEY_INDEX "QP_PKEY_INDEX"
        QP_PORT "QP_PORT" QP_QKEY "QP_QKEY" QP_AV "QP_AV" QP_PATH_MTU "QP_PATH_MTU"
        QP_TIMEOUT "QP_TIMEOUT" QP_RETRY_CNT "QP_RETRY_CNT" QP_RNR_RETRY "QP_RNR_RETRY"
        QP_RQ_PSN "QP_RQ_PSN" QP_MAX_QP_RD_ATOMIC "QP_MAX_QP_RD_ATOMIC"
        QP_MIN_RNR_TIMER "QP_MIN_RNR_TIMER" QP_SQ_PSN "QP_SQ_PSN"
        QP_MAX_DEST_RD_ATOMIC "QP_MAX_DEST_RD_ATOMIC" QP_DEST_QPN "QP_DEST_QPN"
        QPT_RC "QPT_RC" QPT_UD "QPT_UD" QPS_RESET "QPS_RESET" QPS_INIT "QPS_INIT"
        QPS_RTR "QPS_RTR" QPS_RTS "QPS_RTS" QPS_ERR "QPS_ERR" WR_RDMA_WRITE "WR_RDMA_WRITE"
        WR_RDMA_WRITE_WITH_IMM "WR_RDMA_WRITE_WITH_IMM" WR_SEND "WR_SEND"
        WR_SEND_WITH_IMM "WR_SEND_WITH_IMM" WR_RDMA_READ "WR_RDMA_READ"
        WR_ATOMIC_CMP_AND_SWP "WR_ATOMIC_CMP_AND_SWP"
        WR_ATOMIC_FETCH_AND_ADD "WR_ATOMIC_FETCH_AND_ADD" SEND_FENCE "SEND_FENCE"
        SEND_SIGNALED "SEND_SIGNALED" SEND_SOLICITED "SEND_SOLICITED" SEND_INLINE "SEND_INLINE"
        WC_WITH_IMM "WC_WITH_IMM" WC_RECV_RDMA_WITH_IMM "WC_RECV_RDMA_WITH_IMM"
        SRQ_LIMIT "SRQ_LIMIT" ATOMIC_HCA "ATOMIC_HCA" ATOMIC_GLOB "ATOMIC_GLOB"
        PORT_ACTIVE "PORT_ACTIVE" LINK_ETHERNET "LINK_LAYER_ETHERNET" GID_IB "GID_TYPE_IB"
        GID_ROCE_V1 "GID_TYPE_ROCE_V1" GID_ROCE_V2 "GID_TYPE_ROCE_V2"
        EVENT_CQ_ERR "EVENT_CQ_ERR" EVENT_QP_FATAL "EVENT_QP_FATAL"
        EVENT_QP_REQ_ERR "EVENT_QP_REQ_ERR" EVENT_QP_ACCESS_ERR "EVENT_QP_ACCESS_ERR"
        EVENT_DEVICE_FATAL "EVENT_DEVICE_FATAL" EVENT_PORT_ACTIVE "EVENT_PORT_ACTIVE"
        EVENT_PORT_ERR "EVENT_PORT_ERR" EVENT_SRQ_ERR "EVENT_SRQ_ERR"
        EVENT_SRQ_LIMIT_REACHED "EVENT_SRQ_LIMIT_REACHED"
    }
    facts
}

/// Compiles assertions of what is written down. Headers elsewhere are found by the compiler's own
/// variable, `C_INCLUDE_PATH`.
fn compile(extra: &str) -> std::io::Result<Output> {
    let dir = tempfile::tempdir()?;
    let source = dir.path().join("facts.c");
    let mut text = String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n");
    for (name, value) in facts() {
        text += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    }
    std::fs::write(&source, text + extra)?;
    let mut cc = Command::new("cc");
    cc.arg("-c").arg(&source).arg("-o").arg(dir.path().join("facts.o")).output()
}

#[test]
fn the_headers_say_the_same() {
    let probe = compile("");
    let why = match &probe {
        Err(error) => error.to_string(),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    if probe.is_err() || why.contains("infiniband/verbs.h: No such file") {
        println!("not held against the headers, which are not installed: {why}");
        return;
    }
    assert!(probe.unwrap().status.success(), "{why}");
    let wrong = compile("_Static_assert(sizeof(struct ibv_wc) == 1, \"wrong\");\n").unwrap();
    assert!(!wrong.status.success(), "assertions assert nothing");
}
