//! What devices say of failures, in the terms of the interface. No input or output.

use crate::net::provider::Status;

/// The status of `ibv_wc_status`, for a completion of the receive side or of the send side.
///
/// Where `LocalOperation` comes from memory that is not registered so (devices differ in how they say
/// that), whoever knows the memory says `LocalProtection` instead.
pub(super) fn status(code: u32, receive: bool) -> Status {
    match (code, receive) {
        (0, _) => Status::Success,
        // A receiver's own account of a message that is too long differs between devices.
        (1, _) | (9, true) => Status::LocalLength,
        (2 | 3, _) => Status::LocalOperation,
        (4 | 6 | 8, _) | (10, true) => Status::LocalProtection,
        (5, _) => Status::Flushed,
        (9, false) => Status::RemoteInvalid,
        (10, false) => Status::RemoteAccess,
        (7 | 11 | 14..=16, _) => Status::RemoteOperation,
        (12 | 20, _) => Status::RetryExceeded,
        (13, _) => Status::ReceiverNotReady,
        _ => Status::Fatal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_is_success_and_the_unknown_is_fatal() {
        for code in 1..100 {
            for receive in [false, true] {
                assert_ne!(status(code, receive), Status::Success, "{code}");
            }
        }
        assert_eq!(status(0, true), Status::Success);
        assert_eq!(status(12, false), Status::RetryExceeded);
        assert_eq!(
            (status(9, true), status(9, false)),
            (Status::LocalLength, Status::RemoteInvalid)
        );
        assert_eq!(status(99, false), Status::Fatal);
    }
}
