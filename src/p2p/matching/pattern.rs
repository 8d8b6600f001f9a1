//! What a message carries to be found by, what a receive looks for, and the names of the lists in
//! which both are kept.

use crate::base::Slot;

/// What a message is found by: it always says all three.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// Number of the team's context: messages of different teams never meet.
    pub context: u32,
    /// The process that sent it.
    pub source: Slot,
    /// What the program gave it.
    pub tag: u32,
}

/// What a receive takes: where it says `None` it takes any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// Number of the team's context.
    pub context: u32,
    /// The process that it takes messages of.
    pub source: Option<Slot>,
    /// The tag that it takes.
    pub tag: Option<u32>,
}

impl Pattern {
    /// Whether it takes a message with this envelope.
    #[inline]
    pub fn takes(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }

    /// Whether there could be a message that both take.
    #[inline]
    pub fn overlaps(&self, other: &Pattern) -> bool {
        fn meet<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
            a.is_none() || b.is_none() || a == b
        }
        self.context == other.context
            && meet(self.source, other.source)
            && meet(self.tag, other.tag)
    }

    #[inline]
    pub(super) fn form(&self) -> Form {
        match (self.source, self.tag) {
            (Some(_), Some(_)) => Form::Exact,
            (Some(_), None) => Form::Source,
            (None, Some(_)) => Form::Tag,
            (None, None) => Form::All,
        }
    }
}

/// Which parts of a pattern are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Exact,
    /// Any tag of one source.
    Source,
    /// One tag of any source.
    Tag,
    All,
}

impl Form {
    pub const EACH: [Form; 4] = [Form::Exact, Form::Source, Form::Tag, Form::All];

    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// The key of a list, or of what else is kept in a [`Table`](super::table::Table): never all
/// zero, so that zero can mean a vacant place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Name {
    pub wide: u64,
    pub narrow: u32,
}

const _: () = assert!(size_of::<Name>() == 16);

impl Name {
    #[inline]
    fn new(kind: u32, context: u32, source: u16, tag: u32) -> Name {
        let wide = u64::from(context) << 32 | u64::from(tag);
        Name { wide, narrow: (kind + 1) << 16 | u32::from(source) }
    }

    /// The list of patterns of this form, or of messages by this form, that `envelope` is in.
    #[inline]
    pub fn of(form: Form, envelope: &Envelope) -> Name {
        let Envelope { context, source, tag } = *envelope;
        match form {
            Form::Exact => Name::new(0, context, source.0, tag),
            Form::Source => Name::new(1, context, source.0, 0),
            Form::Tag => Name::new(2, context, 0, tag),
            Form::All => Name::new(3, context, 0, 0),
        }
    }

    /// The list of `pattern`.
    #[inline]
    pub fn pattern(pattern: &Pattern) -> Name {
        // What is not given does not enter the name of the pattern's form.
        let source = pattern.source.unwrap_or(Slot(0));
        let tag = pattern.tag.unwrap_or(0);
        Name::of(pattern.form(), &Envelope { context: pattern.context, source, tag })
    }

    /// A context.
    #[inline]
    pub fn context(context: u32) -> Name {
        Name::new(4, context, 0, 0)
    }

    /// A source within a context, whatever the tag.
    #[inline]
    pub fn source(context: u32, source: Slot) -> Name {
        Name::new(5, context, source.0, 0)
    }

    #[inline]
    pub fn is_vacant(&self) -> bool {
        self.narrow == 0
    }
}
