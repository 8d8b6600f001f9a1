//! What goes back to origins: results of units, and answers about room.

use super::super::arriving::Told as Known;
use super::super::reply::Reply;
use super::super::run::{Job, Outcome};
use super::Server;
use crate::am::body::{self, Spaces, Status, Unit, Work, put_space};
use crate::am::buffers::Answer;
use crate::am::pack::{Form, Output, put_counts};
use crate::am::queue::Turn;
use crate::base::Rank;
use crate::rma::foreign::Outgoing;
use crate::rma::runtime::Sent;
use std::sync::Arc;

/// An answer about room, on its way.
#[derive(Debug)]
pub(super) struct Told {
    pub to: Rank,
    pub ticket: u64,
    bytes: Vec<u8>,
}

impl Server {
    /// A unit has been run.
    pub fn finish(&mut self, turn: Turn, job: Job, outcome: Outcome) {
        self.queue.finish(turn);
        if self.queue.running() == 0 {
            self.graves.clear();
        }
        match (job.head.work, outcome.status) {
            (Work::Run, _) => self.done.units += 1,
            (Work::Fetch, _) => self.done.fetched += 1,
            (Work::Store, Status::Stale) => self.done.stale += 1,
            (Work::Store, _) => self.done.stored += 1,
        }
        let output = job.first.wrapping_add(job.staging.output);
        self.reply(job.origin, job.head, job.told, outcome, output);
        self.answer();
    }

    pub(super) fn reply(
        &mut self,
        origin: Rank,
        head: Unit<'static>,
        told: Option<Arc<Known>>,
        outcome: Outcome,
        output: *const u8,
    ) {
        let Outcome { status, counts, text } = outcome;
        if !self.origins.contains_key(&origin.0) {
            // It has died meanwhile.
            self.buffers.leave(origin.0, head.place);
            return self.spent.told(told);
        }
        let (mut lead, mut form, mut bytes) = (text.into_bytes(), Form::Whole, 0);
        let mut short = None;
        if status == Status::Done {
            lead.clear();
            bytes = head.output as usize;
            if let (Some(counts), Some(told)) = (counts, &told) {
                let kept = &told.described.output;
                let counts: Vec<u32> = counts.iter().map(|&count| count as u32).collect();
                put_counts(kept.count, &counts, &mut lead);
                let all = Output {
                    entry: kept.layout.size(),
                    most: kept.count,
                    segments: counts.len(),
                    counts: Some(&counts),
                };
                form = all.form(self.threshold);
                bytes = all.bytes(form);
                match form {
                    Form::Packed => self.done.packed += 1,
                    Form::Whole => self.done.whole += 1,
                }
                short = Some(counts);
            }
        }
        let total = (lead.len() + bytes) as u64;
        self.done.bytes_out += total;
        self.replies.push_back(Reply {
            origin,
            head,
            status,
            form,
            lead,
            counts: short,
            told,
            output,
            position: 0,
            total,
        });
    }

    /// Keeps what the buffers have to say until it can be sent.
    pub(super) fn answer(&mut self) {
        for answer in self.buffers.answers() {
            let mut bytes = Vec::new();
            let (to, ticket) = match answer {
                Answer::Granted { origin, ticket, spaces } => {
                    self.done.granted += 1;
                    let mut list = Vec::new();
                    spaces.iter().for_each(|(space, bytes)| put_space(&mut list, *space, *bytes));
                    // What was written just now can be read.
                    let Ok(spaces) = Spaces::new(&list) else { continue };
                    body::Note::Granted { ticket, spaces }.encode(&mut bytes);
                    (origin, ticket)
                }
                Answer::Refused { origin, ticket, largest, attached } => {
                    self.done.refused += 1;
                    body::Note::Refused { ticket, largest, attached }.encode(&mut bytes);
                    (origin, ticket)
                }
            };
            self.notes.push_back(Told { to: Rank(to), ticket, bytes });
        }
    }

    /// Tells what the buffers have to say after something was done to them from outside.
    pub fn answers(&mut self) {
        self.answer();
    }

    /// Whether there is something to send.
    pub fn has_notes(&self) -> bool {
        !self.notes.is_empty() || !self.replies.is_empty()
    }

    /// Whether there is something to send, or to let go of.
    pub fn is_busy(&self) -> bool {
        self.has_notes() || !self.spent.is_empty()
    }

    /// Sends what can be sent; whether anything.
    pub fn pump(&mut self, out: &mut dyn Outgoing, most: usize) -> bool {
        let (mut sent, mut full) = (false, Vec::new());
        for _ in 0..self.notes.len() {
            let Some(note) = self.notes.pop_front() else { break };
            if full.contains(&note.to) || out.note(note.to, &note.bytes) == Sent::Full {
                full.push(note.to);
                self.notes.push_back(note);
            } else {
                sent = true;
            }
        }
        for _ in 0..self.replies.len() {
            let Some(mut reply) = self.replies.pop_front() else { break };
            if full.contains(&reply.origin) || !self.pump_reply(&mut reply, out, most, &mut sent) {
                full.push(reply.origin);
                self.replies.push_back(reply);
                continue;
            }
            self.buffers.leave(reply.origin.0, reply.head.place);
            self.shrink(reply.origin);
            self.spent.told(reply.told);
            self.answer();
        }
        sent
    }

    /// Sends the notes of a result; whether all of them.
    fn pump_reply(
        &mut self,
        reply: &mut Reply,
        out: &mut dyn Outgoing,
        most: usize,
        sent: &mut bool,
    ) -> bool {
        loop {
            let (data, last) = reply.next(most);
            let Unit { message, unit, .. } = reply.head;
            let Reply { status, form, position, .. } = *reply;
            body::Note::Done { message, unit, status, form, position, last, data: &data }
                .encode(&mut self.note);
            if out.note(reply.origin, &self.note) == Sent::Full {
                return false;
            }
            *sent = true;
            reply.position += data.len() as u64;
            if last {
                return true;
            }
        }
    }

    /// Gives back an origin's memory when nothing of it is here.
    fn shrink(&mut self, origin: Rank) {
        // Of few origins they stay, to spare their making.
        if self.origins.len() <= 16 || !self.buffers.is_idle(origin.0) {
            return;
        }
        if let Some(shared) = self.shared.filter(|id| self.buffers.is_free(*id)) {
            self.attached.remove(&shared);
        }
        if let Some(own) = self.origins.get_mut(&origin.0) {
            (own.system, own.stand_in) = (None, None);
            // Nor may it be taken for dead while something of it is in what others share.
            if own.open.is_empty() && own.arriving.is_empty() && !self.queue.has(origin.0) {
                self.origins.remove(&origin.0);
            }
        }
    }
}
