//! What the engine has done, for tests, benchmarks and the curious.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counts since the engine was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Name and value of each.
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counters! {
    /// Requests sent.
    requests_sent,
    /// Replies sent.
    replies_sent,
    /// Operations among the requests, with those sent again.
    operations_sent,
    /// Operations sent before the lock was known to be granted.
    speculated,
    /// Operations that carried a lock and its release.
    single_messages,
    /// Operations that carried the end of an epoch.
    piggybacked,
    /// Operations performed for others and for itself.
    performed,
    /// Target objects freed in the middle of an epoch to make room.
    clean_ups,
    /// Times that kept operations were sent early to make room.
    drains,
    /// Lock queries that stand in line here without an origin object.
    queries_crowded,
    /// Speculative operations discarded here.
    operations_discarded,
    /// Lock-all epochs that changed to the window-wide protocol.
    wide_switches,
    /// Messages that fit nothing here: of a window that is gone, or from a faulty peer.
    strays,
    /// Calls that found a pool or the transport full.
    blocked,
    /// Most target objects in use at a time.
    most_targets,
    /// Most origin objects in use at a time.
    most_origins,
    /// Most operation objects in use at a time.
    most_operations,
    /// Most operations outstanding at a time.
    most_outstanding,
}
