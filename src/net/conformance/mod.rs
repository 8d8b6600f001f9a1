//! One suite for all providers: what `provider` promises, tried through its interface alone.
//!
//! Every test runs in every [`Lab`]: two or more devices that can reach each other.

mod atomics;
mod connected;
mod datagrams;
mod failures;
pub(super) mod lab;
mod limits;
mod memory;
mod oracle;
mod receivers;
mod waiting;

use lab::{Lab, Node, Pair};

macro_rules! suite {
    ($($module:ident: $($test:ident),+;)+) => {
        /// The suite in one lab.
        macro_rules! in_lab {
            ($lab_name:ident, $make:expr) => {
                mod $lab_name {
                    $(mod $module {
                        $(#[test]
                        fn $test() {
                            let lab: Option<Box<dyn super::super::Lab>> = $make;
                            if let Some(lab) = lab {
                                super::super::$module::$test(&*lab);
                            }
                        })+
                    })+
                }
            };
        }
    };
}

suite! {
    connected:
        messages_arrive_with_their_bytes_and_immediate_data,
        pieces_are_gathered_and_scattered,
        inline_bytes_may_change_after_posting,
        writes_land_where_they_should_and_tell_nobody,
        writes_with_immediate_data_use_a_receive,
        reads_fetch_and_fences_wait_for_them,
        nothing_is_something_too,
        large_ones_arrive_whole,
        completions_come_in_order_and_unsignalled_ones_not_at_all,
        both_ways_at_once,
        posts_before_the_peer_connects_arrive,
        a_queue_pair_may_be_connected_to_itself,
        many_queue_pairs_work_at_once;
    atomics:
        adding_and_comparing_return_what_was,
        they_are_atomic_with_the_processors_own,
        misaligned_words_are_refused;
    failures:
        wrong_keys_bounds_and_rights_break_the_queue_pair_only,
        reads_are_refused_like_writes,
        what_is_behind_a_failure_is_flushed,
        wrong_local_keys_are_found_here,
        a_peer_that_is_gone_does_not_answer,
        nobody_there,
        keepalive_finds_a_dead_peer_behind_an_idle_queue_pair,
        keepalive_leaves_a_living_one_alone,
        failing_flushes_and_resetting_starts_again,
        other_queue_pairs_go_on;
    receivers:
        a_message_that_is_too_long_fails_both_ends,
        a_late_receive_is_waited_for,
        no_receive_for_too_long_is_an_error,
        two_that_wait_for_receives_still_answer,
        a_shared_queue_feeds_many_and_tells_when_it_is_low,
        an_exhausted_shared_queue_is_waited_for;
    datagrams:
        they_arrive_with_the_senders_address,
        the_sender_can_be_answered,
        what_nobody_waits_for_is_dropped,
        closed_peers_are_unknown,
        from_pieces_and_inline,
        shared_receives_serve_datagrams,
        strangers_are_dropped_and_counted;
    oracle:
        random_operations_agree_with_an_oracle;
    limits:
        too_much_is_refused_and_posts_nothing,
        queues_that_are_full_say_so_and_go_on,
        making_too_much_is_refused,
        addresses_of_other_kinds_are_refused,
        objects_of_other_devices_are_refused;
    memory:
        memory_is_given_back_only_when_the_device_has_let_go,
        what_was_unregistered_is_refused;
    waiting:
        an_armed_queue_ends_a_wait,
        solicited_ones_only,
        a_wait_has_an_end,
        anyone_can_wake_a_sleeper,
        threads_share_a_device;
}

in_lab!(sim, Some(Box::new(crate::net::conformance::lab::SimLab::plain())));
in_lab!(sim_rough, Some(Box::new(crate::net::conformance::lab::SimLab::rough())));
in_lab!(sim_in_real_time, Some(Box::new(crate::net::conformance::lab::SimLab::in_real_time())));
in_lab!(sockets_driven, crate::net::conformance::lab::DrivenLab::boxed("127.0.0.1"));
in_lab!(sockets_ipv4, crate::net::conformance::lab::SocketLab::boxed("127.0.0.1"));
// Not every machine has IPv6, not even for itself.
in_lab!(sockets_ipv6, crate::net::conformance::lab::SocketLab::if_there("::1"));
// Not every machine has an RDMA device.
in_lab!(verbs, crate::net::conformance::lab::VerbsLab::if_there());
in_lab!(
    faults_over_sim,
    Some(Box::new(crate::net::conformance::lab::FaultLab::over(Box::new(
        crate::net::conformance::lab::SimLab::plain()
    ))))
);
in_lab!(
    faults_over_sockets,
    Some(Box::new(crate::net::conformance::lab::FaultLab::over(Box::new(
        crate::net::conformance::lab::SocketLab::new("127.0.0.1")
    ))))
);
