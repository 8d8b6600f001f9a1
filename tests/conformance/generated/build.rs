//! The dimensions of memory, parts and hints: makes the window of a case, and knows how its
//! elements are named in operations.

use super::dimension::{Case, Memory, Parts, Promise, Way};
use super::value::Value;
use hither::rma::Info;
use hither::rma::info::{Medium, Ordering};
use hither::{Job, Rank, Result, Window};

/// A window, and where its elements are.
pub struct Built<T> {
    pub window: Window<T>,
    case: Case,
    /// What was brought along or attached.
    memory: Option<hither::rma::Memory<T>>,
    /// Where that of each rank begins, in a dynamic window.
    addresses: Vec<u64>,
}

impl Case {
    fn info(&self) -> Info {
        let mut info =
            Info { alloc_shared_noncontig: self.memory == Memory::SharedApart, ..Info::default() };
        match self.promise {
            Promise::SameHints => {
                info.same_size = self.parts != Parts::Sizes;
                info.same_disp_unit = self.parts != Parts::Units;
            }
            Promise::NoLocks => info.no_locks = true,
            Promise::Unordered => {
                info.ordering = Ordering { rar: false, raw: false, war: false, waw: false };
            }
            Promise::None | Promise::NoCheck | Promise::Edges => {}
        }
        if self.way == Way::Packets {
            info.medium = Medium::Packets;
        }
        info
    }

    /// Bytes per displacement of a rank's part.
    fn unit<T>(&self, rank: u32) -> usize {
        match self.parts {
            Parts::Same | Parts::Sizes => size_of::<T>(),
            Parts::Unit => 2 * size_of::<T>(),
            Parts::Units => size_of::<T>() << (rank % 2),
        }
    }

    /// Elements of a rank's part of which `len` are used.
    fn len(&self, rank: u32, len: usize) -> usize {
        if self.parts == Parts::Sizes { len + 1000 * (rank as usize % 3) } else { len }
    }
}

impl<T: Value> Built<T> {
    /// Makes a window whose parts have at least `len` elements.
    pub fn new(case: &Case, job: &Job, len: usize) -> Result<Built<T>> {
        let me = job.rank().0;
        let mut builder = Window::<T>::builder(job.team()).info(case.info());
        if matches!(case.parts, Parts::Unit | Parts::Units) {
            builder = builder.unit(case.unit::<T>(me));
        }
        if case.parts == Parts::Sizes {
            builder = builder.different_sizes();
        }
        let len = case.len(me, len);
        let private = match case.memory {
            Memory::CreatePrivate | Memory::DynamicPrivate => true,
            Memory::CreateMixed => me % 2 == 1,
            _ => false,
        };
        let brought = || match private {
            true => Ok(hither::rma::Memory::private(vec![T::of(0); len])),
            false => hither::rma::Memory::shared(job.team(), len),
        };
        let mut memory = None;
        let mut addresses = Vec::new();
        let window = match case.memory {
            Memory::Allocate => builder.allocate(len)?,
            Memory::Shared | Memory::SharedApart => builder.allocate_shared(len)?,
            Memory::CreateShared | Memory::CreatePrivate | Memory::CreateMixed => {
                builder.create(memory.insert(brought()?).part(0, len)?)?
            }
            Memory::Dynamic | Memory::DynamicPrivate => {
                let window = builder.dynamic()?;
                let attached = window.attach(memory.insert(brought()?))?;
                addresses = vec![0; job.size() as usize];
                job.team().allgather(&[attached.address], &mut addresses)?;
                window
            }
        };
        if !case.memory.is_dynamic() {
            assert_eq!(window.len(), len);
        }
        if case.memory == Memory::Allocate {
            let other = Rank((me + 1) % job.size());
            let mapped = window.part(other).is_ok();
            // The other way of the sweep goes by this setting.
            let all_by_packets = std::env::var("HITHER_RMA_MEDIUM").is_ok_and(|m| m == "packets");
            let near = !all_by_packets && !job.team().spans_nodes();
            let direct = case.way == Way::Direct && near;
            assert_eq!(mapped, direct, "the way in which parts are reached");
        }
        Ok(Built { window, case: *case, memory, addresses })
    }

    /// What operations call an element of a target: even elements only.
    pub fn start(&self, target: Rank, element: usize) -> usize {
        let bytes = element * size_of::<T>();
        if let Some(address) = self.addresses.get(target.index()) {
            return *address as usize + bytes;
        }
        let unit = self.case.unit::<T>(target.0);
        assert!(bytes.is_multiple_of(unit), "element {element} has no displacement");
        bytes / unit
    }

    /// Sets the first elements of the own part.
    pub fn write(&self, values: &[T]) -> Result<()> {
        match &self.memory {
            Some(memory) => memory.write(0, values),
            None => self.window.local().write(0, values),
        }
    }

    /// The first elements of the own part.
    pub fn read(&self, count: usize) -> Result<Vec<T>> {
        let mut values = vec![T::of(0); count];
        match &self.memory {
            Some(memory) => memory.read(0, &mut values)?,
            None => self.window.local().read(0, &mut values)?,
        }
        Ok(values)
    }
}
