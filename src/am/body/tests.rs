use super::*;
use crate::am::buffers::GRAIN;
use crate::am::pack::Form;
use proptest::prelude::*;
use proptest::sample::Index;

fn units() -> impl Strategy<Value = Unit<'static>> {
    const DATA: &[u8] = b"packed input of any kind";
    let names = (any::<u64>(), any::<u32>(), any::<u32>(), any::<[bool; 4]>(), 0u8..3);
    let place = (any::<u32>(), 0u64..1 << 40, 1u64..1 << 40);
    let sizes = (0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, 1u32..9, 0u64..1 << 40, 0u32..40);
    (names, place, sizes, 0..=DATA.len()).prop_map(|(names, place, sizes, len)| {
        let (message, unit, handler, [vector, concurrent, release, ends], work) = names;
        let (at, span, first, segments, output, described) = sizes;
        let work = [Work::Run, Work::Fetch, Work::Store][usize::from(work)];
        let run = work == Work::Run;
        let input = if work == Work::Fetch { 0 } else { DATA.len() as u64 };
        Unit {
            message,
            unit,
            handler,
            work,
            vector: vector && run,
            concurrent,
            release,
            ends,
            place: Place { space: place.0, position: place.1 * GRAIN, bytes: place.2 * GRAIN },
            at,
            span,
            first,
            segments: if run { segments } else { 0 },
            input,
            output: if work == Work::Store { 0 } else { output },
            described,
            data: &DATA[..len.min(input as usize + described as usize)],
        }
    })
}

fn requests() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![
        4 => units().prop_map(Request::Unit),
        1 => any::<(u64, u32, u64)>().prop_map(|(message, unit, position)| {
            Request::More { message, unit, position, data: b"more" }
        }),
        1 => (any::<u64>(), 1..=u64::MAX, any::<u64>(), any::<bool>()).prop_map(
            |(ticket, least, more, all)| {
                Request::Reserve { ticket, least, most: least.saturating_add(more), all }
            }
        ),
        1 => any::<u64>().prop_map(|ticket| Request::Withdraw { ticket }),
        1 => any::<u32>().prop_map(|space| Request::Release { space }),
    ]
}

/// A note and the bytes of its spaces.
fn check_note(made: &Made, mut look: impl FnMut(Note<'_>)) {
    let mut bytes = Vec::new();
    match made {
        Made::Done(message, unit, status, packed, position, last) => {
            let form = if *packed { Form::Packed } else { Form::Whole };
            let data: &[u8] = if matches!(status, Status::Done | Status::Panicked) {
                b"what came of it"
            } else {
                &[]
            };
            let done = *status == Status::Done;
            look(Note::Done {
                message: *message,
                unit: *unit,
                status: *status,
                form: if done { form } else { Form::Whole },
                position: if done { *position } else { 0 },
                last: *last || !done,
                data,
            });
        }
        Made::Granted(ticket, spaces) => {
            for (space, size) in spaces {
                put_space(&mut bytes, *space, *size);
            }
            let spaces_ = Spaces::new(&bytes).unwrap();
            assert!(spaces_.iter().eq(spaces.iter().copied()));
            look(Note::Granted { ticket: *ticket, spaces: spaces_ });
        }
        Made::Refused(ticket, largest, attached) => {
            look(Note::Refused { ticket: *ticket, largest: *largest, attached: *attached });
        }
    }
}

#[derive(Clone, Debug)]
enum Made {
    Done(u64, u32, Status, bool, u64, bool),
    Granted(u64, Vec<(u32, u64)>),
    Refused(u64, u64, u64),
}

fn notes() -> impl Strategy<Value = Made> {
    let status = prop_oneof![
        4 => Just(Status::Done),
        1 => Just(Status::Panicked),
        1 => any::<u32>().prop_map(|culprit| Status::Poisoned { culprit }),
        1 => Just(Status::Unknown),
        1 => Just(Status::Stale),
        1 => any::<u32>().prop_map(|why| Status::Failed { why }),
    ];
    let done = (any::<u64>(), any::<u32>(), status, any::<bool>(), 0u64..1 << 60, any::<bool>());
    let spaces = prop::collection::vec(any::<(u32, u64)>(), 0..5);
    prop_oneof![
        done.prop_map(|(m, u, s, f, p, l)| Made::Done(m, u, s, f, p, l)),
        (any::<u64>(), spaces).prop_map(|(t, s)| Made::Granted(t, s)),
        any::<(u64, u64, u64)>().prop_map(|(t, l, a)| Made::Refused(t, l, a)),
    ]
}

/// Some bytes changed, some cut off or added.
fn damage(bytes: &mut Vec<u8>, hits: &[(Index, u8)], cut: Option<Index>) {
    for (at, value) in hits {
        let at = at.index(bytes.len());
        bytes[at] = *value;
    }
    match cut {
        Some(cut) if cut.index(2) == 0 => bytes.truncate(cut.index(bytes.len() + 1)),
        Some(cut) => bytes.extend(std::iter::repeat_n(0, cut.index(9))),
        None => {}
    }
}

proptest! {
    #[test]
    fn requests_survive_the_wire(request in requests()) {
        let mut bytes = vec![9; 3];
        request.encode(&mut bytes);
        prop_assert_eq!(Request::decode(&bytes).unwrap(), request);
    }

    #[test]
    fn notes_survive_the_wire(made in notes()) {
        check_note(&made, |note| {
            let mut bytes = Vec::new();
            note.encode(&mut bytes);
            assert_eq!(Note::decode(&bytes).unwrap(), note);
        });
    }

    #[test]
    fn damaged_requests_are_refused_or_have_one_form(
        request in requests(),
        hits in prop::collection::vec(any::<(Index, u8)>(), 0..4),
        cut in prop::option::of(any::<Index>()),
    ) {
        let (mut bytes, mut again) = (Vec::new(), Vec::new());
        request.encode(&mut bytes);
        damage(&mut bytes, &hits, cut);
        if let Ok(read) = Request::decode(&bytes) {
            read.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn damaged_notes_are_refused_or_have_one_form(
        made in notes(),
        hits in prop::collection::vec(any::<(Index, u8)>(), 0..4),
        cut in prop::option::of(any::<Index>()),
    ) {
        check_note(&made, |note| {
            let (mut bytes, mut again) = (Vec::new(), Vec::new());
            note.encode(&mut bytes);
            damage(&mut bytes, &hits, cut);
            if let Ok(read) = Note::decode(&bytes) {
                read.encode(&mut again);
                assert_eq!(again, bytes);
            }
        });
    }

    #[test]
    fn noise_is_no_message(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let mut body = bytes;
        if let Some(first) = body.first_mut() {
            *first = VERSION;
        }
        let mut again = Vec::new();
        if let Ok(read) = Request::decode(&body) {
            read.encode(&mut again);
            prop_assert_eq!(&again, &body);
        }
        if let Ok(read) = Note::decode(&body) {
            read.encode(&mut again);
            prop_assert_eq!(&again, &body);
        }
    }
}

#[test]
fn units_that_make_no_sense_are_refused() {
    let place = Place { space: 0, position: 0, bytes: 64 };
    let good = Unit {
        message: 1,
        unit: 0,
        handler: 3,
        work: Work::Run,
        vector: false,
        concurrent: false,
        release: false,
        ends: true,
        place,
        at: 8,
        span: 8,
        first: 0,
        segments: 1,
        input: 4,
        output: 4,
        described: 0,
        data: b"abcd",
    };
    let refused = |unit: Unit<'_>| {
        let mut bytes = Vec::new();
        Request::Unit(unit).encode(&mut bytes);
        Request::decode(&bytes).is_err()
    };
    assert!(!refused(good));
    assert!(refused(Unit { segments: 0, ..good }));
    let closes = Unit {
        segments: 0,
        input: 0,
        output: 0,
        data: &[],
        place: Place { bytes: 0, ..place },
        ..good
    };
    assert!(!refused(closes));
    assert!(refused(Unit { ends: false, ..closes }) && refused(Unit { output: 1, ..closes }));
    assert!(refused(Unit { place, ..closes }));
    assert!(refused(Unit { data: b"abcde", ..good }));
    assert!(refused(Unit { place: Place { bytes: 0, ..place }, ..good }));
    assert!(refused(Unit { place: Place { position: 8, ..place }, ..good }));
    assert!(refused(Unit { place: Place { bytes: u64::MAX - 63, position: 64, ..place }, ..good }));
    assert!(refused(Unit { at: u64::MAX, ..good }));
    assert!(refused(Unit { first: u64::MAX, ..good }));
    assert!(refused(Unit { input: u64::MAX, described: 1, ..good }));
    assert!(refused(Unit { work: Work::Fetch, segments: 0, ..good }));
    assert!(refused(Unit { work: Work::Store, segments: 0, ..good }));
    assert!(!refused(Unit { work: Work::Store, segments: 0, output: 0, ..good }));
}
