//! Every limit is where the capabilities say.

use super::lab::*;
use super::{Lab, Node, Pair};
use crate::net::provider::*;

pub fn too_much_is_refused_and_posts_nothing(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a: _peer } = Pair::new(lab);
    let capabilities = *a.device.capabilities();
    let too_long = vec![0; 65];
    let data = Data::Inline(&[&too_long]);
    let works = [write(1, &[], b.at(0)), Work::new(2, Operation::Send { data, immediate: None })];
    let refused = to_b.post(&works).unwrap_err();
    assert_eq!(refused, Refused { posted: 1, why: PostError::TooLong { length: 65, limit: 64 } });
    a.expect(1, Status::Success);
    let many = [a.local(0, 1); 4];
    assert_eq!(to_b.post(&[send(1, &many)]).unwrap_err().why, PostError::TooManyPieces);
    let huge = [Local { length: u32::MAX, ..a.local(0, 1) }; 1];
    if capabilities.message < u32::MAX {
        let why = to_b.post(&[write(1, &huge, b.at(0))]).unwrap_err().why;
        let limit = capabilities.message.into();
        assert_eq!(why, PostError::TooLong { length: u32::MAX.into(), limit });
    }
    let ud = a.ud();
    let to = ud.open_peer(&ud.address()).unwrap();
    let over = [a.local(0, capabilities.datagram + 1)];
    let data = Data::Pieces(&over);
    let datagram = Datagram { id: 1, to, data, immediate: None, signalled: true, solicited: false };
    let (length, limit) = (u64::from(capabilities.datagram) + 1, capabilities.datagram.into());
    assert_eq!(ud.send(&[datagram]).unwrap_err().why, PostError::TooLong { length, limit });
    let short = capabilities.datagram + capabilities.datagram_prefix - 1;
    let why = ud.receive(&[Receive { id: 1, pieces: &[a.local(0, short)] }]).unwrap_err().why;
    let (length, needed) = (short.into(), u64::from(short) + 1);
    assert_eq!(why, PostError::TooShort { length, needed });
    assert_eq!(a.region.local(1, MEMORY as u32).unwrap_err(), PostError::OutOfBounds);
    a.quiet();
    assert_eq!(to_b.state(), State::Ready);
}

pub fn queues_that_are_full_say_so_and_go_on(lab: &dyn Lab) {
    let Pair { a, b, to_b, to_a } = Pair::new(lab);
    // Messages without a receive stay in the queue.
    for id in 0..64 {
        to_b.post(&[send(id, &[])]).unwrap();
    }
    let full = to_b.post(&[send(64, &[])]).unwrap_err();
    assert_eq!((full.posted, full.why), (0, PostError::Full));
    for id in 0..64 {
        to_a.receive(&[Receive { id, pieces: &[] }]).unwrap();
    }
    (0..64).for_each(|id| _ = a.expect(id, Status::Success));
    (0..64).for_each(|id| _ = b.expect(id, Status::Success));
    // A completion queue that is not polled has no room at last, and has it again when it is.
    let queue = b.device.completion_queue(4, None).unwrap();
    let queues = Queues { receive: &queue, ..b.queues() };
    let (one, other) = (a.rc(), b.device.rc(&queues, &RcOptions::default()).unwrap());
    connect(&*one, &*other);
    for id in 0..4 {
        other.receive(&[Receive { id, pieces: &[] }]).unwrap();
        one.post(&[send(id, &[])]).unwrap();
        a.expect(id, Status::Success);
    }
    let receive = [Receive { id: 4, pieces: &[] }];
    assert_eq!(other.receive(&receive).unwrap_err().why, PostError::Full);
    let mut some = [Completion::NONE; 3];
    assert_eq!(queue.poll(&mut some), 3);
    assert_eq!(some.map(|done| done.id), [0, 1, 2]);
    other.receive(&receive).unwrap();
    assert!(queue.arm(Arm::Any).is_err(), "nobody can wait for it");
}

pub fn making_too_much_is_refused(lab: &dyn Lab) {
    let a = Node::new(lab.device());
    let capabilities = *a.device.capabilities();
    let device = &a.device;
    assert!(device.completion_queue(capabilities.completion_depth + 1, None).is_err());
    assert!(device.completion_queue(0, None).is_err());
    assert!(device.shared_receive_queue(capabilities.shared_receive_depth + 1, 1).is_err());
    assert!(device.shared_receive_queue(1, capabilities.pieces + 1).is_err());
    let queues = a.queues();
    let wrong = [
        Queues { send_depth: capabilities.queue_depth + 1, ..queues },
        Queues { receive_depth: capabilities.queue_depth + 1, ..queues },
        Queues { send_depth: 0, ..queues },
        Queues { pieces: capabilities.pieces + 1, ..queues },
        Queues { inline: capabilities.inline + 1, ..queues },
    ];
    for queues in wrong {
        assert!(device.ud(&queues).is_err());
        assert!(device.rc(&queues, &RcOptions::default()).is_err());
    }
    let most = Queues {
        send_depth: capabilities.queue_depth,
        receive_depth: capabilities.queue_depth,
        pieces: capabilities.pieces,
        inline: capabilities.inline,
        ..queues
    };
    assert!(device.ud(&most).is_ok() && device.rc(&most, &RcOptions::default()).is_ok());
    assert!(!device.name().is_empty());
}

pub fn addresses_of_other_kinds_are_refused(lab: &dyn Lab) {
    let a = Node::new(lab.device());
    let (ud, rc) = (a.ud(), a.rc());
    for bytes in [&[][..], &[1], &[0; 64], &[255; 30]] {
        let address = Address::from_bytes(bytes).unwrap();
        assert!(ud.open_peer(&address).is_err() && rc.connect(&address).is_err());
    }
    assert!(ud.open_peer(&rc.address()).is_err());
    assert!(rc.connect(&ud.address()).is_err());
    assert_eq!(rc.state(), State::Init);
    for length in 1..ud.address().as_bytes().len() {
        let cut = Address::from_bytes(&ud.address().as_bytes()[..length]).unwrap();
        assert!(ud.open_peer(&cut).is_err());
    }
}

pub fn objects_of_other_devices_are_refused(lab: &dyn Lab) {
    let (a, b) = (Node::new(lab.device()), Node::new(lab.device()));
    assert!(a.device.ud(&b.queues()).is_err());
    assert!(a.device.rc(&Queues { receive: &b.queue, ..a.queues() }, &impatient()).is_err());
    let shared = b.device.shared_receive_queue(4, 1).unwrap();
    assert!(a.device.ud(&Queues { shared: Some(&shared), ..a.queues() }).is_err());
}
