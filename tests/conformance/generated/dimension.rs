//! What a generated case varies. Each dimension is an enum with a name per value; a case is one
//! value of each.

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
    }
}

dimension! {
    /// What is done.
    Operation {
        Put = "put",
        Get = "get",
        Accumulate = "accumulate",
        FetchAndOp = "fetch_and_op",
        CompareAndSwap = "compare_and_swap",
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
    }
}

dimension! {
    /// Within which synchronisation.
    Sync {
        Fence = "fence",
        FenceNext = "fence_next",
        LockAll = "lock_all",
        LockAllFlush = "lock_all_flush",
    }
}

dimension! {
    /// How the elements lie.
    Shape {
        Contiguous = "contiguous",
        Long = "long",
    }
}

dimension! {
    /// What is asserted or promised beyond what always holds.
    Promise {
        None = "plain",
    }
}

dimension! {
    /// How the parts are reached.
    Way {
        Direct = "direct",
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
    pub promise: Promise,
    pub way: Way,
}

/// Number of dimensions.
pub const DIMENSIONS: usize = 7;

impl Case {
    /// Values per dimension.
    pub const SIZES: [usize; DIMENSIONS] = [
        Memory::ALL.len(),
        Operation::ALL.len(),
        Elements::ALL.len(),
        Sync::ALL.len(),
        Shape::ALL.len(),
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
            promise: Promise::ALL[at[5]],
            way: Way::ALL[at[6]],
        }
    }

    pub fn name(&self) -> String {
        format!(
            "gen/{}/{}/{}/{}/{}/{}/{}",
            self.memory.name(),
            self.operation.name(),
            self.elements.name(),
            self.sync.name(),
            self.shape.name(),
            self.promise.name(),
            self.way.name(),
        )
    }

    /// Whether the values go together.
    pub fn valid(&self) -> bool {
        let single = matches!(self.operation, Operation::FetchAndOp | Operation::CompareAndSwap);
        !(single && self.shape != Shape::Contiguous)
    }
}
