//! What is written is read again, nothing else is, and nothing makes the decoder panic.

use super::*;
use crate::base::adapt::{Class, Packet};
use proptest::prelude::*;

const COOKIE: u64 = 0x0123_4567_89ab_cdef;

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

prop_compose! {
    fn headers()(
        kind in kinds(),
        credit: u16,
        ids in any::<[u32; 2]>(),
        lives in [1u32.., 1u32..],
        counts in any::<[u32; 2]>(),
        selective: u64,
    ) -> Header {
        Header {
            kind,
            length: 0,
            credit,
            cookie: COOKIE,
            from: ids[0],
            to: ids[1],
            from_life: lives[0],
            to_life: lives[1],
            sequence: counts[0],
            acknowledged: counts[1],
            selective,
        }
    }
}

fn datagram(mut header: Header, fragment: Fragment, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    if header.kind == Kind::Data {
        bytes.resize(OVERHEAD, 0);
        bytes.extend_from_slice(payload);
        assert!(fragment.encode(&mut bytes));
    }
    header.length = (bytes.len() - HEADER) as u16;
    assert!(header.encode(&mut bytes));
    bytes
}

/// Changing this changes what other versions understand: [`VERSION`] has to change with it.
#[test]
fn the_bytes_are_these() {
    let header = Header {
        kind: Kind::Data,
        length: 0,
        credit: 0x0203,
        cookie: COOKIE,
        from: 0x1122_3344,
        to: 0x5566_7788,
        from_life: 0x0001_0002,
        to_life: 0x0003_0004,
        sequence: 0xfff0_fff1,
        acknowledged: 0xfff2_fff3,
        selective: 0x8000_0000_0000_0005,
    };
    let fragment = Fragment { message: 7, total: 0x0001_0000, offset: 0x400, channel: 9 };
    let bytes = datagram(header, fragment, b"abc");
    let golden: [u8; 67] = [
        0x68, 0x69, 2, 1, 19, 0, 0x03, 0x02, // magic, version, kind, length, credit
        0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, // cookie
        0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55, // from, to
        2, 0, 1, 0, 4, 0, 3, 0, // lives
        0xf1, 0xff, 0xf0, 0xff, 0xf3, 0xff, 0xf2, 0xff, // sequence, acknowledged
        5, 0, 0, 0, 0, 0, 0, 0x80, // selective
        7, 0, 0, 0, 0, 0, 1, 0, 0, 4, 0, 0, 9, 0, 0, 0, // fragment
        b'a', b'b', b'c',
    ];
    assert_eq!(bytes, golden);
    let class = Class::new(14).unwrap();
    for (packet, connection, end_point, golden) in [
        (Packet::HandshakeReq { class }, 1, &b""[..], &[1, 14, 0, 0, 1, 0, 0, 0, 0][..]),
        (
            Packet::ConnReq { moves: Some(true) },
            0x102,
            b"xyz",
            &[3, 0, 2, 0, 2, 1, 0, 0, 3, b'x', b'y', b'z'],
        ),
        (Packet::ConnEst, 2, b"", &[5, 0, 0, 0, 2, 0, 0, 0, 0]),
    ] {
        let (bytes, used) = Control::new(packet, connection, end_point).unwrap().encode();
        assert_eq!(&bytes[..used], golden);
    }
}

#[test]
fn each_mistake_has_its_reason() {
    let header = Header {
        kind: Kind::Data,
        length: 0,
        credit: 1,
        cookie: COOKIE,
        from: 1,
        to: 2,
        from_life: 3,
        to_life: 4,
        sequence: 5,
        acknowledged: 6,
        selective: 0,
    };
    let fragment = Fragment { message: 0, total: 9, offset: 4, channel: 0 };
    let good = datagram(header, fragment, b"12345");
    assert!(Header::decode(&good, COOKIE).is_ok());
    assert_eq!(Header::decode(&good, COOKIE + 1), Err(Reject::Cookie));
    let spoilt = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Header::decode(&bytes, COOKIE).err()
    };
    assert_eq!(spoilt(0, 0), Some(Reject::Magic));
    assert_eq!(spoilt(2, VERSION + 1), Some(Reject::Version));
    assert_eq!(spoilt(3, 0), Some(Reject::Kind));
    assert_eq!(spoilt(3, 8), Some(Reject::Kind));
    assert_eq!(spoilt(3, Kind::Ack as u8), Some(Reject::Length));
    assert_eq!(spoilt(4, 20), Some(Reject::Length));
    assert_eq!(spoilt(24, 0), Some(Reject::Field));
    assert_eq!(spoilt(28, 0), Some(Reject::Field));
    for end in 0..good.len() {
        let reason = if end < HEADER { Reject::Short } else { Reject::Length };
        assert_eq!(Header::decode(&good[..end], COOKIE), Err(reason));
    }
    let (_, body) = Header::decode(&good, COOKIE).unwrap();
    assert_eq!(Fragment::decode(body), Ok((fragment, &b"12345"[..], Further::default())));
    // Beyond the message's end; empty, though the message is not; bytes that mean nothing.
    for (at, value) in [(4, 8), (8, 5), (11, 255), (13, 1), (14, 1), (15, 1)] {
        let mut body = body.to_vec();
        body[at] = value;
        assert_eq!(Fragment::decode(&body), Err(Reject::Field), "{at}");
    }
    assert_eq!(Fragment::decode(&body[..16]), Err(Reject::Field));
    assert_eq!(Fragment::decode(&body[..15]), Err(Reject::Length));
    // Who begins need not know the other's life.
    let mut hello = datagram(Header { kind: Kind::Hello, to_life: 0, ..header }, fragment, b"");
    assert!(Header::decode(&hello, COOKIE).is_ok());
    assert!(!header.encode(&mut hello[..HEADER - 1]));
    assert!(!fragment.encode(&mut hello[..HEADER]));
}

#[test]
fn end_points_are_where_they_belong() {
    let (with, without) = (Packet::ConnRep { ready: true }, Packet::ConnRep { ready: false });
    assert!(Control::new(with, 1, &[7; END_POINT]).is_some());
    assert!(Control::new(with, 1, &[7; END_POINT + 1]).is_none());
    assert!(Control::new(with, 1, &[]).is_some());
    assert!(Control::new(without, 1, &[7]).is_none());
    assert!(Control::new(without, 1, &[]).is_some());
}

#[test]
fn reasons_are_counted_apart() {
    let mut rejects = Rejects::default();
    for (i, reject) in Reject::ALL.into_iter().enumerate() {
        assert_eq!(reject as usize, i);
        (0..=i).for_each(|_| rejects.note(reject));
    }
    assert!(Reject::ALL.into_iter().all(|r| rejects.count(r) == r as u64 + 1));
    assert_eq!(rejects.total(), (1..=Reject::COUNT as u64).sum());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read(
        header in headers(),
        message: u32,
        offset in 0u32..1 << 31,
        rest in 0u32..1 << 30,
        channel: u8,
        payload in prop::collection::vec(any::<u8>(), 1..300),
    ) {
        let total = offset + payload.len() as u32 + rest;
        let fragment = Fragment { message, total, offset, channel };
        let bytes = datagram(header, fragment, &payload);
        let (read, body) = Header::decode(&bytes, COOKIE).unwrap();
        prop_assert_eq!(read, Header { length: (bytes.len() - HEADER) as u16, ..header });
        if header.kind == Kind::Data {
            prop_assert_eq!(Fragment::decode(body), Ok((fragment, &payload[..], Further::default())));
        }
    }

    /// Bytes without any sense, and datagrams with some bytes changed: never a panic, and what is
    /// taken is what was there.
    #[test]
    fn any_bytes_can_come(
        mut noise in prop::collection::vec(any::<u8>(), 0..200),
        framed: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        header in headers(),
    ) {
        if framed {
            let fragment = Fragment { message: 1, total: 500, offset: 3, channel: 1 };
            noise = datagram(header, fragment, &noise);
            for (at, value) in changes {
                let at = at.index(noise.len());
                noise[at] = value;
            }
        }
        if let Ok((header, body)) = Header::decode(&noise, COOKIE) {
            let mut again = noise.clone();
            again[..HEADER].fill(0);
            prop_assert!(header.encode(&mut again));
            prop_assert_eq!(&again, &noise);
            if let Ok((fragment, payload, _)) = Fragment::decode(body) {
                prop_assert!(fragment.offset as usize + payload.len() <= fragment.total as usize);
                again[HEADER..OVERHEAD].fill(0);
                prop_assert!(fragment.encode(&mut again));
                prop_assert_eq!(&again, &noise);
            }
        }
        let _ = Fragment::decode(&noise);
        let _ = Control::decode(&noise);
    }

    #[test]
    fn control_is_read_as_written_and_nothing_else_is(
        word in prop_oneof![any::<u32>(), (0u32..8, 0u32..45, 0u32..4).prop_map(|(a, b, c)| a | b << 8 | c << 16)],
        connection: u32,
        end_point in prop::collection::vec(any::<u8>(), 0..70),
    ) {
        let mut bytes = word.to_le_bytes().to_vec();
        bytes.extend(connection.to_le_bytes());
        bytes.push(end_point.len() as u8);
        bytes.extend(&end_point);
        match Control::decode(&bytes) {
            Ok(control) => {
                prop_assert_eq!(Some(control.packet), Packet::decode(word));
                prop_assert_eq!((control.connection, control.end_point()), (connection, &end_point[..]));
                let (again, used) = control.encode();
                prop_assert_eq!(&again[..used], &bytes[..]);
            }
            Err(_) => {
                let packet = Packet::decode(word);
                prop_assert!(packet.is_none_or(|p| Control::new(p, connection, &end_point).is_none()));
            }
        }
        bytes.push(0);
        prop_assert!(Control::decode(&bytes).is_err());
    }
}

/// What was put in comes out, and only while it lies there whole.
#[test]
fn messages_behind_the_first_one() {
    let fragment = Fragment { message: 3, total: 5, offset: 0, channel: 2 };
    let mut bytes = vec![0; 100];
    assert!(fragment.encode(&mut bytes));
    bytes[OVERHEAD..OVERHEAD + 5].copy_from_slice(b"first");
    let mut used = OVERHEAD + 5;
    for text in [&b"second"[..], b"", b"4th"] {
        let place = add(&mut bytes, used, 7, text.len()).unwrap();
        assert_eq!(place.start, used + FURTHER);
        used = place.end;
        bytes[place].copy_from_slice(text);
    }
    assert_eq!(add(&mut bytes, used, 7, 100 - used - FURTHER + 1), None);
    let body = &bytes[HEADER..used];
    let (same, payload, further) = Fragment::decode(body).unwrap();
    assert_eq!((same, payload), (fragment, &b"first"[..]));
    assert_eq!(further.collect::<Vec<_>>(), [(7, &b"second"[..]), (7, b""), (7, b"4th")]);
    assert_eq!(further.longest(), 6);
    // Cut anywhere, counted wrongly, of another length, or with bytes that mean nothing.
    for end in 16..body.len() {
        assert!(Fragment::decode(&body[..end]).is_err(), "{end}");
    }
    let spoilt = |at: usize, value: u8| {
        let mut body = body.to_vec();
        body[at] = value;
        Fragment::decode(&body).is_err()
    };
    let second = 16 + 5;
    assert!(
        [(13, 0), (13, 2), (13, 4), (4, 4), (4, 255), (8, 1)].iter().all(|&(a, v)| spoilt(a, v))
    );
    assert!([(second, 7), (second + 1, 1), (second + 3, 1)].iter().all(|&(a, v)| spoilt(a, v)));
    // There is a limit to how many are counted.
    let mut bytes = vec![0; 4096];
    assert!(fragment.encode(&mut bytes));
    let mut used = OVERHEAD + 5;
    for _ in 0..255 {
        used = add(&mut bytes, used, 1, 0).unwrap().end;
    }
    assert_eq!(add(&mut bytes, used, 1, 0), None);
    assert_eq!(Fragment::decode(&bytes[HEADER..used]).unwrap().2.count(), 255);
}
