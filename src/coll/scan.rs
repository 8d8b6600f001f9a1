//! Scans: member r gets the data of all up to itself combined, or of all before itself.
//!
//! ```text
//! boards   up to 56 bytes: one exchange
//! pieces   show 16 KiB; synchronise; everybody combines what it wants: member r does r times the
//!          work of member 1
//! shares   show; synchronise; each member makes everybody's results for its share of the
//!          elements, as it comes to them; synchronise; collect
//! ```

use super::block::{BOARD, PIECE};
use super::blocks::bytes_of_mut;
use super::board::Value;
use super::operation::{Combine, Operation, Spare, Typed};
use super::pieces::share;
use super::select::Algorithm;
use super::sign::{Sign, What};
use super::step::Course;
use super::team::Team;
use crate::base::{Request, Result};
use crate::layout::Datum;

impl Team {
    /// Combines the data of ranks 0 to this one, element by element; the result is in `data`.
    /// Lengths and operation must be the same everywhere.
    ///
    /// # Errors
    /// As for [`Team::allreduce`].
    pub fn scan<T: Datum, O: Operation<T>>(&self, op: O, data: &mut [T]) -> Result<()> {
        self.scan_of(What::Scan, op, data)
    }

    /// As [`Team::scan`] without this rank's own data. Those of rank 0 stay as they are.
    ///
    /// # Errors
    /// As for [`Team::allreduce`].
    pub fn exscan<T: Datum, O: Operation<T>>(&self, op: O, data: &mut [T]) -> Result<()> {
        self.scan_of(What::Exscan, op, data)
    }

    /// The scan, begun now; the request brings the result.
    ///
    /// # Errors
    /// As for [`Team::allreduce`], partly from the request.
    pub fn iscan<T: Datum, O: Operation<T> + 'static>(
        &self,
        op: O,
        data: impl Into<Vec<T>>,
    ) -> Result<Request<Vec<T>>> {
        self.iscan_of(What::Scan, op, data.into())
    }

    /// The scan without this rank's own data, begun now; the request brings the result.
    ///
    /// # Errors
    /// As for [`Team::allreduce`], partly from the request.
    pub fn iexscan<T: Datum, O: Operation<T> + 'static>(
        &self,
        op: O,
        data: impl Into<Vec<T>>,
    ) -> Result<Request<Vec<T>>> {
        self.iscan_of(What::Exscan, op, data.into())
    }

    fn scan_of<T: Datum, O: Operation<T>>(&self, what: What, op: O, data: &mut [T]) -> Result<()> {
        let op = Typed::new(op, data.len(), what.during())?;
        let (how, sign) = self.plan_scan(what, size_of_val(data), &op);
        self.run(sign, async |course| course.scan(how, &op, bytes_of_mut(data)).await)
    }

    fn iscan_of<T: Datum, O: Operation<T> + 'static>(
        &self,
        what: What,
        op: O,
        mut data: Vec<T>,
    ) -> Result<Request<Vec<T>>> {
        let op = Typed::<T, O>::new(op, data.len(), what.during())?;
        let (how, sign) = self.plan_scan(what, size_of_val(&data[..]), &op);
        self.begin(sign, move |course| async move {
            course.scan(how, &op, bytes_of_mut(&mut data)).await?;
            Ok(data)
        })
    }

    fn plan_scan(&self, what: What, bytes: usize, op: &dyn Combine) -> (Algorithm, Sign) {
        let how = self.member.choose(what, bytes as u64).first;
        let how = fitting(how, op, self.member.block.size);
        (how, Sign::new(what, how, 0, bytes as u64, op.code()))
    }
}

/// The algorithm that is used instead where everybody's results for a share do not fit into one
/// piece.
fn fitting(how: Algorithm, op: &dyn Combine, size: u32) -> Algorithm {
    let fits = PIECE / op.unit() >= size as usize;
    if how == Algorithm::Shares && !fits { Algorithm::Pieces } else { how }
}

impl Course<'_> {
    /// See [`fitting`].
    pub(super) fn fitting_scan(&self, how: Algorithm, op: &dyn Combine) -> Algorithm {
        fitting(how, op, self.size())
    }

    pub(super) async fn scan(
        &self,
        how: Algorithm,
        op: &dyn Combine,
        data: &mut [u8],
    ) -> Result<()> {
        let me = self.rank();
        let inclusive = self.sign.what == What::Scan;
        // Members whose data this one gets.
        let last = if inclusive { me + 1 } else { me };
        match how {
            Algorithm::Boards if data.len() <= BOARD => {
                let len = data.len();
                let mut sum = Value::of(data);
                self.exchange(&sum.clone(), len, |rank, value| {
                    if rank >= last {
                    } else if rank == 0 {
                        sum = *value;
                    } else {
                        op.combine(&mut sum.bytes_mut()[..len], &value.bytes()[..len]);
                    }
                })
                .await?;
                data.copy_from_slice(&sum.bytes()[..len]);
                Ok(())
            }
            Algorithm::Shares => self.scan_by_shares(op, inclusive, data).await,
            _ => {
                let mut spare = Spare::default();
                for piece in data.chunks_mut(Self::room(op)) {
                    self.core().show_piece(0, piece);
                    let phase = self.sync().await?;
                    self.fold_pieces(op, last, phase, 0, piece, &mut spare)?;
                }
                Ok(())
            }
        }
    }

    /// Result pieces hold one block per member, each as long as the share of their owner.
    async fn scan_by_shares(
        &self,
        op: &dyn Combine,
        inclusive: bool,
        data: &mut [u8],
    ) -> Result<()> {
        let (me, size) = (self.rank(), self.size());
        let room = PIECE / op.unit() / size as usize * size as usize * op.unit();
        let mut sum = Spare::default();
        for piece in data.chunks_mut(room) {
            self.core().show_piece(0, piece);
            let phase = self.sync().await?;
            let mine = share(me, size, piece.len(), op.unit());
            let sum = sum.bytes(mine.len());
            for rank in 0..size {
                let at = rank as usize * mine.len();
                if !inclusive && rank > 0 {
                    self.core().show_result(at, sum);
                }
                let mut with = |data: &[u8]| {
                    if rank == 0 {
                        sum.copy_from_slice(data);
                    } else {
                        op.combine(sum, data);
                    }
                };
                self.core().with_piece(rank, phase, mine.clone(), &mut with);
                if inclusive {
                    self.core().show_result(at, sum);
                }
            }
            self.sync().await?;
            for rank in (0..size).filter(|_| inclusive || me > 0) {
                let share = share(rank, size, piece.len(), op.unit());
                let at = me as usize * share.len();
                self.core().look_result(rank, at, &mut piece[share]);
            }
        }
        Ok(())
    }
}
