//! What a generated case varies. Each dimension is an enum with a name per value; a case is one
//! value of each.

use hither::SignalOp;

/// A dimension: its values in order, and their names in the names of cases.
macro_rules! dimension {
    ($(#[doc = $doc:literal])+ $name:ident { $($value:ident = $text:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($value,)+ }
        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$value,)+];
            pub fn name(self) -> &'static str {
                match self { $($name::$value => $text,)+ }
            }
        }
    };
}

dimension! {
    /// How the window comes to its memory.
    Memory {
        Allocate = "allocate",
        Shared = "allocate_shared",
        SharedApart = "allocate_shared_apart",
        CreateShared = "create_shared",
        CreatePrivate = "create_private",
        CreateMixed = "create_mixed",
        Dynamic = "dynamic",
        DynamicPrivate = "dynamic_private",
    }
}

dimension! {
    /// What is done.
    Operation {
        Put = "put",
        Get = "get",
        Accumulate = "accumulate",
        GetAccumulate = "get_accumulate",
        PutRequest = "put_request",
        GetRequest = "get_request",
        AccumulateRequest = "accumulate_request",
        GetAccumulateRequest = "get_accumulate_request",
        FetchAndOp = "fetch_and_op",
        CompareAndSwap = "compare_and_swap",
        PutSignalSet = "put_signal_set",
        PutSignalAdd = "put_signal_add",
    }
}

dimension! {
    /// On which elements.
    Elements {
        U8 = "u8",
        U16 = "u16",
        U32 = "u32",
        U64 = "u64",
        I8 = "i8",
        I16 = "i16",
        I32 = "i32",
        I64 = "i64",
        F32 = "f32",
        F64 = "f64",
        F32Located = "f32_located",
        I32Located = "i32_located",
        U32Located = "u32_located",
    }
}

dimension! {
    /// Within which synchronisation.
    Sync {
        Fence = "fence",
        FenceNext = "fence_next",
        FenceDropped = "fence_dropped",
        Groups = "groups",
        GroupsTested = "groups_tested",
        GroupsInTurn = "groups_in_turn",
        LockShared = "lock_shared",
        LockExclusive = "lock_exclusive",
        LocksHeld = "locks_held",
        LockAll = "lock_all",
        LockAllFlush = "lock_all_flush",
        FreeFence = "unguarded_fence",
        FreeGroups = "unguarded_groups",
        FreeLock = "unguarded_lock",
        FreeLockAll = "unguarded_lock_all",
    }
}

dimension! {
    /// How the elements lie.
    Shape {
        Contiguous = "contiguous",
        Long = "long",
        Vector = "vector",
        VectorOrigin = "vector_at_origin",
        VectorBoth = "vectors",
        Indexed = "indexed",
        IndexedBoth = "both_indexed",
        Structure = "structure",
        Subarray = "subarray",
        Resized = "resized",
        LongVector = "long_vector",
    }
}

dimension! {
    /// What differs between the parts.
    Parts {
        Same = "same",
        Sizes = "sizes",
        Unit = "unit",
        Units = "units",
    }
}

dimension! {
    /// What is asserted or promised beyond what always holds.
    Promise {
        None = "plain",
        NoCheck = "no_check",
        Edges = "no_precede_no_succeed",
        NoLocks = "no_locks",
        SameHints = "same_hints",
        Unordered = "unordered",
    }
}

dimension! {
    /// How the parts are reached.
    Way {
        Direct = "direct",
        Packets = "packets",
    }
}

impl Memory {
    /// Whether displacements are addresses.
    pub fn is_dynamic(self) -> bool {
        matches!(self, Memory::Dynamic | Memory::DynamicPrivate)
    }
}

impl Operation {
    /// What the operation does to a signal's word, if there is one.
    pub fn signal(self) -> Option<SignalOp> {
        match self {
            Operation::PutSignalSet => Some(SignalOp::Set),
            Operation::PutSignalAdd => Some(SignalOp::Add),
            _ => None,
        }
    }
}

impl Sync {
    /// Whether it needs the locks of the window.
    pub fn locks(self) -> bool {
        matches!(
            self,
            Sync::LockShared
                | Sync::LockExclusive
                | Sync::LocksHeld
                | Sync::LockAll
                | Sync::LockAllFlush
                | Sync::FreeLock
                | Sync::FreeLockAll
        )
    }
}

/// One value of each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub memory: Memory,
    pub operation: Operation,
    pub elements: Elements,
    pub sync: Sync,
    pub shape: Shape,
    pub parts: Parts,
    pub promise: Promise,
    pub way: Way,
}

/// Number of dimensions.
pub const DIMENSIONS: usize = 8;

impl Case {
    /// Values per dimension.
    pub const SIZES: [usize; DIMENSIONS] = [
        Memory::ALL.len(),
        Operation::ALL.len(),
        Elements::ALL.len(),
        Sync::ALL.len(),
        Shape::ALL.len(),
        Parts::ALL.len(),
        Promise::ALL.len(),
        Way::ALL.len(),
    ];

    /// The case with the value `at[d]` of each dimension `d`.
    pub fn at(at: [usize; DIMENSIONS]) -> Case {
        Case {
            memory: Memory::ALL[at[0]],
            operation: Operation::ALL[at[1]],
            elements: Elements::ALL[at[2]],
            sync: Sync::ALL[at[3]],
            shape: Shape::ALL[at[4]],
            parts: Parts::ALL[at[5]],
            promise: Promise::ALL[at[6]],
            way: Way::ALL[at[7]],
        }
    }

    pub fn name(&self) -> String {
        format!(
            "gen/{}/{}/{}/{}/{}/{}/{}/{}",
            self.memory.name(),
            self.operation.name(),
            self.elements.name(),
            self.sync.name(),
            self.shape.name(),
            self.parts.name(),
            self.promise.name(),
            self.way.name(),
        )
    }

    /// Whether the values go together.
    pub fn valid(&self) -> bool {
        use Operation as O;
        let shaped = match self.operation {
            O::Put | O::Get | O::Accumulate | O::GetAccumulate => true,
            O::FetchAndOp | O::CompareAndSwap => self.shape == Shape::Contiguous,
            _ => matches!(self.shape, Shape::Contiguous | Shape::Long),
        };
        // To the word it is all the same what the data are.
        let few = matches!(self.elements, Elements::U8 | Elements::U64 | Elements::F32Located);
        let signalled = self.operation.signal().is_none() || few;
        let fence = matches!(
            self.sync,
            Sync::Fence | Sync::FenceNext | Sync::FenceDropped | Sync::FreeFence
        );
        let promised = match self.promise {
            Promise::None | Promise::SameHints | Promise::Unordered => true,
            Promise::NoCheck => !fence,
            Promise::Edges => fence,
            Promise::NoLocks => !self.sync.locks(),
        };
        let named = self.parts == Parts::Same || !self.memory.is_dynamic();
        promised && shaped && named && signalled
    }
}
