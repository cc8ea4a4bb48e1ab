//! How does a shard keep what it was told to keep?
//!
//! Whatever has to outlive the shard is *said*: a message that is durable and has its place in a durable queue, an entry that is gone or
//! came back, a queue's definition, the steps of a transaction. What was said waits in one line, names entries instead of holding
//! them, and is encoded when the journal's next batch begins; so a message that was settled by then is never written. A *promise*
//! (the answer to a producer, to another shard, to a coordinator) waits for the ticket of what was said before it, and is
//! kept when the batches up to that are synced.
//!
//! ```text
//!   store, settle, commit … ──say──→ line ──write_batch──→ Effect::Write ··· Event::Written ──→ promises, in order
//! ```
//!
//! A backup holds all shards at an instant, and no segment is freed while it is copied (`backup`).
//!
//! Invariants:
//! - what is said is written in the order in which it was said, and what stands in one group is written in one batch;
//! - a message has a position ⟺ a batch with its record has begun;
//! - a message that is not in memory has a position that is synced, or was before it was written again (`overflow`);
//! - a message that is kept and leaves its queue for another stays where it is until it has a position;
//! - a promise is kept after everything that was said before it is synced, and never after a write has failed.
//!
//! Left out: how records lie on the disk (`corelane-journal`), files (the driver).

mod backup;
mod batch;
mod cleaning;
mod definition;
mod exchanges;
mod leaving;
mod overflow;
mod promise;
mod restore;
mod transactions;

use std::collections::{BTreeMap, VecDeque};

use corelane_engine::{Place, QueueId, Stored};
use corelane_journal::{Journal, Position, Record, Removal, Spare, Ticket, TransactionName};
use hashbrown::{HashMap, HashSet};

use crate::Shard;
use crate::effect::Effect;
use crate::limits::SEGMENT_RETRY_US;
use crate::mail::{Arrived, TransactionKey};
use crate::message::Message;
use crate::queues::{QueueKind, QueueNode};
use backup::BackupState;
use batch::Placing;
use cleaning::Cleaning;
use exchanges::Definitions;
pub(crate) use exchanges::is_of_topology;
use leaving::Leaving;
pub(crate) use leaving::{Closing, Source};
use overflow::{Overflow, position_of};
use promise::Promise;
use restore::Restoring;
pub use restore::{Decisions, RestoreSummary};
pub(crate) use transactions::next_name;

/// What a shard knows of its journal.
pub(crate) struct Durability {
    journal: Journal,
    /// What the next batches say, one ticket each.
    line: VecDeque<Said>,
    /// Everything up to here stands in batches that have begun.
    begun: Ticket,
    promises: VecDeque<(Ticket, Promise)>,
    by_uid: HashMap<u64, QueueId>,
    definitions: Definitions,
    next_uid: u64,
    boot: u32,
    /// The last number that was given to a transaction.
    transactions: u64,
    /// Transactions that were decided here and are not done everywhere.
    decided: HashMap<TransactionName, Position>,
    /// The same, with the number of parts that are to be done, as they are called while this shard runs.
    undone: HashMap<TransactionKey, (TransactionName, usize)>,
    leaving: Leaving,
    overflow: Overflow,
    cleaning: Option<Cleaning>,
    restoring: Option<Box<Restoring>>,
    /// By the shard that they came from: hidden, as they stood there at the start, too.
    restored_hidden: BTreeMap<usize, Vec<Arrived>>,
    /// Everything that all shards had is there again.
    all_ready: bool,
    /// Subscriptions that were there and to which topics do not lead yet.
    unbound: HashSet<QueueId>,
    /// A group begins with what is said next.
    opens_group: bool,
    /// The segment's file that is being made.
    preparing: Option<Spare>,
    /// When a file that could not be made is asked for again.
    prepare_at: u64,
    /// The reason why the last one could not be made.
    refused: Option<String>,
    /// Nothing is promised, and no batch ends if it is not very large, before this is written: something has changed its place here since
    /// it was said, and only that says where it is.
    whole: Ticket,
    /// What was to be written fits into no segment that is there: it is tried again when one was made or refused.
    waits: bool,
    /// What was said last is that the shard has stopped. Nothing more is written then but what comes from other shards.
    stopped: Option<Ticket>,
    backup: BackupState,
    /// Kept for their memory.
    placing: Placing,
    removals: Vec<Removal>,
    /// What the batch in hand says, as long as it may have no room.
    taken: Vec<Said>,
}

/// Something that has to be written.
enum Said {
    /// What follows is written in one batch, up to [`Said::End`].
    Begin,
    End,
    /// The message at this place, if it is still there.
    Message {
        queue: QueueId,
        place: Place,
    },
    /// The same, for one that is not kept, so that it can leave memory.
    Overflowed {
        queue: QueueId,
        place: Place,
    },
    /// An entry is gone.
    Removed(Removal),
    /// The entry at this place came back.
    Returned {
        queue: QueueId,
        place: Place,
    },
    /// What the queue is like.
    Queue {
        queue: QueueId,
    },
    /// An exchange or a binding is there.
    Definition {
        uid: u64,
    },
    /// The queue is deleted, and has dead letters.
    Closed {
        queue: QueueId,
    },
    /// A dead letter is one after a crash, too. Said alone it need not be written of one that has gone on: that is said of it as well.
    Died {
        source: Source,
        returned: Box<corelane_journal::Returned>,
    },
    /// A queue is gone, or an exchange or a binding.
    QueueDeleted {
        uid: u64,
        since: u32,
        definition: Position,
    },
    /// What is at this position is not there any more, by what was said before.
    Forgotten(Position),
    /// What a transaction does here, if it is still open.
    Prepared {
        transaction: TransactionKey,
    },
    Decided {
        name: TransactionName,
        participants: Vec<u16>,
    },
    Done {
        name: TransactionName,
        committed: bool,
        prepared: Position,
        segments: Vec<u32>,
    },
    Started {
        time: u64,
        boot: u32,
        shards: u16,
    },
    Stopped {
        time: u64,
    },
    /// For cleaning: a message, how it came back, a queue, a transaction again, as it is now.
    MessageAgain {
        queue: QueueId,
        place: Place,
    },
    ReturnedAgain {
        queue: QueueId,
        place: Place,
    },
    /// The same for one that is not in memory, or may not be, with its record.
    AwayAgain {
        queue: QueueId,
        place: Place,
        message: Box<corelane_journal::Message>,
        payload: Vec<u8>,
    },
    DepartureAgain {
        source: Source,
        message: Box<corelane_journal::Message>,
        payload: Vec<u8>,
    },
    PreparedAgain {
        transaction: TransactionKey,
    },
    DecidedAgain {
        name: TransactionName,
        participants: Vec<u16>,
    },
    Carried(Box<Record<'static>>),
    Cleaned {
        segment: u32,
    },
}

/// What a queue is to the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    /// Names this life of the queue, for ever.
    pub(crate) uid: u64,
    /// The segment that was written when it was made.
    since: u32,
    version: u64,
    /// Where its definition lies.
    definition: Option<Position>,
}

impl Durability {
    fn new(journal: Journal, next_uid: u64, boot: u32) -> Self {
        Durability {
            journal,
            line: VecDeque::new(),
            begun: Ticket(0),
            promises: VecDeque::new(),
            by_uid: HashMap::new(),
            definitions: Definitions::default(),
            next_uid,
            boot,
            transactions: 0,
            decided: HashMap::new(),
            undone: HashMap::new(),
            leaving: Leaving::default(),
            overflow: Overflow::default(),
            cleaning: None,
            restoring: None,
            restored_hidden: BTreeMap::new(),
            all_ready: false,
            unbound: HashSet::new(),
            opens_group: false,
            preparing: None,
            prepare_at: 0,
            refused: None,
            whole: Ticket(0),
            placing: Placing::default(),
            removals: Vec::new(),
            waits: false,
            stopped: None,
            backup: BackupState::None,
            taken: Vec::new(),
        }
    }

    /// After a write has failed nothing is written any more, and whoever waits for what is said then waits in vain.
    fn say(&mut self, said: Said) {
        if self.journal.is_failed() {
            self.journal.say();
            return;
        }
        if std::mem::take(&mut self.opens_group) {
            self.push(Said::Begin);
        }
        self.push(said);
    }

    fn push(&mut self, said: Said) {
        self.line.push_back(said);
        let ticket = self.journal.say();
        debug_assert_eq!(ticket.0, self.begun.0 + self.line.len() as u64);
    }

    fn promise(&mut self, ticket: Ticket, promise: Promise) {
        self.promises.push_back((ticket, promise));
    }
}

/// Whether a message in a queue outlives the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Not,
    Kept,
    /// It is, and nobody gets it before.
    BeforeDelivery,
}

impl QueueNode {
    /// What becomes of a message that comes to it.
    pub(crate) fn keeping(&self, message: &Message) -> Keeping {
        let wants = self.destination.durable.unwrap_or(message.is_durable());
        match wants && self.is_durable() {
            false => Keeping::Not,
            true if self.destination.deliver_after_sync => Keeping::BeforeDelivery,
            true => Keeping::Kept,
        }
    }

    /// Whether durable messages in it are kept.
    pub(crate) fn is_durable(&self) -> bool {
        match self.kind {
            // One that goes with its connection is not kept, whatever was declared.
            QueueKind::Queue => {
                self.owner.is_none() && self.declared.as_ref().is_none_or(|declared| declared.durable)
            }
            QueueKind::Dynamic => false,
            QueueKind::Subscription => {
                self.subscription.as_ref().is_some_and(|subscription| subscription.terms.durable)
            }
        }
    }
}

/// Saying things.
impl Shard {
    /// What was said last: a mark for [`Self::said_since`].
    #[inline]
    pub(crate) fn said(&self) -> Ticket {
        self.durability.as_ref().map_or(Ticket(0), |durability| durability.journal.said())
    }

    /// The ticket of what was said since, if anything was.
    #[inline]
    pub(crate) fn said_since(&self, mark: Ticket) -> Option<Ticket> {
        Some(self.said()).filter(|said| *said > mark)
    }

    fn note(&mut self, said: Said) {
        if let Some(durability) = &mut self.durability {
            durability.say(said);
        }
    }

    /// What is said from here on is written as a whole or not at all.
    pub(crate) fn begin_group(&mut self) {
        self.say_what_left();
        if let Some(durability) = &mut self.durability {
            durability.opens_group = true;
        }
    }

    /// The group is written even if nothing is said in it, and waits for what was said before.
    pub(crate) fn open_group(&mut self) {
        if let Some(durability) = &mut self.durability
            && std::mem::take(&mut durability.opens_group)
        {
            durability.say(Said::Begin);
        }
    }

    pub(crate) fn end_group(&mut self) {
        self.say_what_left();
        if let Some(durability) = &mut self.durability
            && !std::mem::take(&mut durability.opens_group)
        {
            durability.say(Said::End);
        }
    }

    /// The message at this place is to be written, if it is still there then.
    pub(crate) fn keep_message(&mut self, queue: QueueId, place: Place, keeping: Keeping) {
        self.define(queue);
        self.note(Said::Message { queue, place });
        if keeping == Keeping::BeforeDelivery {
            self.reveal_kept(queue, place);
        }
    }

    /// The message at this place was stored. `waits`: it is not kept, and nobody sees it before what was said is synced.
    pub(crate) fn keep_stored(&mut self, queue: QueueId, place: Place, keeping: Keeping, waits: bool) {
        let is_hidden = self.hiding.is_some();
        if let Some(hidden) = &mut self.hiding {
            hidden.push(Arrived { queue, place });
        }
        match keeping {
            // It is shown by whoever hides it.
            Keeping::BeforeDelivery if is_hidden => self.keep_message(queue, place, Keeping::Kept),
            Keeping::Not if is_hidden => {}
            Keeping::Kept | Keeping::BeforeDelivery => self.keep_message(queue, place, keeping),
            Keeping::Not => {
                if waits {
                    self.reveal_kept(queue, place);
                }
                self.overflow_stored(queue, place);
            }
        }
    }

    /// Whether a message that is not kept has to wait in this queue, where those that are wait for the disk: it would overtake them.
    pub(crate) fn waits_behind_unsynced(&self, queue: QueueId) -> bool {
        let Some(durability) = &self.durability else { return false };
        // Those that are synced are shown when what was promised is kept, at the turn's end.
        let is_behind = !durability.promises.is_empty() && !durability.journal.is_failed();
        let node = self.queues.get(queue).filter(|_| is_behind);
        node.is_some_and(|node| node.destination.deliver_after_sync && node.is_durable())
    }

    /// What was said last has taken the place of something else in the queues of this shard: see `batch`.
    pub(crate) fn note_replaced(&mut self) {
        if let Some(durability) = &mut self.durability {
            durability.whole = durability.journal.said();
        }
    }

    /// A message that was at this place is gone for good, and so is what was written of it.
    pub(crate) fn discard(&mut self, queue: QueueId, place: Place, stored: Stored<Message>) {
        let (position, is_kept) = match &stored {
            Stored::Here(message) => (message.position, message.is_kept),
            Stored::Away(away) => {
                drop(self.take_annotations(queue, place));
                let (position, is_kept) = position_of(*away);
                (Some(position), is_kept)
            }
        };
        match position {
            Some(position) if is_kept => self.say_removed(queue, place, position),
            Some(position) => self.note(Said::Forgotten(position)),
            None => {}
        }
        self.forget_stored(stored);
    }

    /// The same for one that is not kept.
    #[cold]
    fn discard_transient(&mut self, stored: Stored<Message>) {
        match stored {
            Stored::Here(message) => {
                self.forget_transient(&message);
                self.forget(message);
            }
            Stored::Away(away) => {
                self.note(Said::Forgotten(position_of(away).0));
                self.forget_stored(stored);
            }
        }
    }

    fn say_removed(&mut self, queue: QueueId, place: Place, position: Position) {
        let uid = self.queues.get(queue).and_then(|node| node.kept.as_ref()).map(|kept| kept.uid);
        self.note(match uid {
            Some(uid) => Said::Removed(Removal { uid, place: place.0, position }),
            // Its queue is deleted, and that was said.
            None => Said::Forgotten(position),
        });
    }

    /// Says what has left the engine, or came back in it. True if there is something to be written.
    #[inline]
    pub(crate) fn say_what_left(&mut self) -> bool {
        self.engine.has_left() && self.say_all_that_left()
    }

    fn say_all_that_left(&mut self) -> bool {
        let mark = self.said();
        while let Some(spent) = self.engine.take_spent() {
            match (spent.message, spent.at) {
                // Most are this.
                (Stored::Here(message), None) if message.position.is_none() => self.forget(message),
                (stored, None) => self.discard_transient(stored),
                (stored, Some((queue, place))) => self.discard(queue, place, stored),
            }
        }
        while let Some((queue, place)) = self.engine.take_returned() {
            self.note(Said::Returned { queue, place });
        }
        self.take_in_letters(false);
        self.said_since(mark).is_some()
    }

    /// A message goes to another shard.
    pub(crate) fn note_forwarded(&mut self) {
        if let Some(durability) = &mut self.durability {
            durability.note_forwarded();
        }
    }
}

/// What the disk says.
impl Shard {
    /// Asks for the next segment's file, if one is wanted.
    fn ask_for_segment(&mut self, now: u64) {
        let Some(durability) = &mut self.durability else { return };
        let Some(spare) = durability.journal.spare_wanted() else {
            // What had no room has less to say now.
            durability.refused = None;
            return;
        };
        let is_time = durability.prepare_at <= now && !durability.journal.is_failed();
        if durability.preparing.is_none() && is_time {
            durability.preparing = Some(spare);
            self.effects.push(Effect::PrepareSegment { spare });
        }
    }

    pub(crate) fn on_segment_prepared(&mut self, number: u32, epoch: u64) {
        let Some(durability) = &mut self.durability else { return };
        durability.waits = false;
        durability.refused = None;
        if let Some(spare) = durability.preparing.take() {
            debug_assert_eq!(spare.number, number, "one is made at a time");
            durability.journal.handle_spare(spare, epoch);
        }
    }

    /// There is no room for more: what waits for a segment waits on, and it is asked for again.
    pub(crate) fn on_segment_refused(&mut self, now: u64, reason: String) {
        let Some(durability) = &mut self.durability else { return };
        durability.preparing = None;
        durability.waits = false;
        durability.prepare_at = now.saturating_add(SEGMENT_RETRY_US);
        if durability.refused.is_none() {
            let text = format!(
                "no file for the next segment of the journal: {reason}; durable messages wait or are refused until there is room"
            );
            self.effects.push(Effect::Warn { text });
        }
        durability.refused = Some(reason);
        self.stop_unwritten();
    }

    /// When a segment is to be asked for again.
    #[inline]
    pub(crate) fn next_segment_deadline(&self) -> Option<u64> {
        let durability = self.durability.as_ref()?;
        let asks = durability.preparing.is_none() && !durability.journal.is_failed();
        let waits = durability.refused.is_some() && asks && durability.journal.spare_wanted().is_some();
        waits.then_some(durability.prepare_at)
    }

    pub(crate) fn on_written(
        &mut self,
        now: u64,
        write: corelane_journal::Write,
        result: Result<(), String>,
    ) {
        let Some(durability) = &mut self.durability else { return };
        match result {
            Ok(()) => {
                durability.journal.handle_synced(write);
                durability.overflow.note_synced();
                self.release_freed();
            }
            Err(reason) => {
                durability.journal.handle_failed();
                let text = format!(
                    "the journal could not be written: {reason}. Nobody knows what of it is on the disk, so durable messages are refused \
                     and nothing is promised any more: mend the disk and start the broker again"
                );
                durability.line.clear();
                self.effects.push(Effect::Warn { text });
            }
        }
        self.answer_backup();
        self.resume_questions(now);
    }

    /// Whether a write has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.durability.as_deref().is_some_and(|durability| durability.journal.is_failed())
    }

    /// Whether durable messages cannot be taken: the journal has failed, or there is no room on the disk. What room is left there is
    /// for saying what is gone, which makes more.
    pub(crate) fn takes_nothing(&self) -> bool {
        let failed = |durability: &Durability| durability.journal.is_failed() || durability.refused.is_some();
        self.durability.as_deref().is_some_and(failed)
    }
}
