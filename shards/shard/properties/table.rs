//! The table: every property with its range, default and effect.

use super::{DAY, Field, Kind, Merge, Property, Range, Unit, YEARS};

macro_rules! field {
    ($name:ident) => {
        Field { of: |rule| &rule.$name, of_mut: |rule| &mut rule.$name }
    };
}

pub(super) const fn count(min: u64, max: u64, none: Option<&'static str>) -> Range {
    Range { unit: Unit::Count, min, max, none }
}

const fn bytes(min: u64, max: u64, none: Option<&'static str>) -> Range {
    Range { unit: Unit::Bytes, min, max, none }
}

pub(super) const fn duration(min: u64, max: u64, none: Option<&'static str>) -> Range {
    Range { unit: Unit::Microseconds, min, max, none }
}

const fn property(
    name: &'static str,
    kind: Kind,
    merge: Merge,
    default: &'static str,
    effect: &'static str,
) -> Property {
    Property { name, alias: None, kind, default, per_queue: true, merge, effect }
}

const fn flag(name: &'static str, field: Field<bool>, effect: &'static str) -> Property {
    property(name, Kind::Flag(field), Merge::AddsUp, "false", effect)
}

const fn number(
    name: &'static str,
    range: Range,
    field: Field<u64>,
    default: &'static str,
    effect: &'static str,
) -> Property {
    property(name, Kind::Number(range, field), Merge::MostSpecific, default, effect)
}

/// All properties.
pub const PROPERTIES: &[Property] = &[
    flag(
        "exclusive",
        field!(exclusive),
        "One consumer is active and the others stand by, in the order in which they attached. The next starts when the \
         messages of the one before are back in place.",
    ),
    Property {
        alias: Some("active-consumers-max"),
        ..number(
            "consumers-max",
            count(1, 1_000_000, Some("all")),
            field!(consumers_max),
            "all",
            "So many consumers are active and the others stand by.",
        )
    },
    property(
        "prefetch",
        Kind::Prefetch,
        Merge::Largest,
        "the client's credit",
        "Unsettled messages that a consumer may have, whatever credit it gave. none: one, and the next only on a flow that \
         comes after it was settled. 0: as the wildcards say, else 5 for a queue and 64 for a topic's subscription.",
    ),
    property(
        "dispatch",
        Kind::Dispatch,
        Merge::MostSpecific,
        "round-robin",
        "Who gets a message of several consumers that could take it: each in turn, or the one with the fewest unsettled \
         messages.",
    ),
    number(
        "expiration",
        duration(1_000, YEARS, Some("never")),
        field!(expiration_us),
        "the producer's",
        "Replaces the time to live of every message that comes from then on; what is in the queue keeps what it has.",
    ),
    flag(
        "priorities",
        field!(priorities),
        "Ten levels by message priority, in order within a level. Set on a queue that is used: what is in it by then comes \
         first. Taken back: what comes from then on comes last.",
    ),
    number(
        "messages-max",
        count(1, 4_000_000_000, Some("unlimited")),
        field!(messages_max),
        "unlimited",
        "Messages in the queue, those included that consumers hold; what happens beyond says overflow.",
    ),
    number(
        "bytes-max",
        bytes(1, 1 << 50, Some("unlimited")),
        field!(bytes_max),
        "unlimited",
        "Bytes of the messages in the queue, likewise.",
    ),
    property(
        "overflow",
        Kind::Overflow,
        Merge::Strictest,
        "reject",
        "What a full queue does with one more message: reject it, with reject-dead-letter also as a dead letter; drop the oldest that no consumer holds, with priorities the \
         oldest of the lowest level that has one, for a message of any level; or block: take it, and give its producer no more credit \
         until there is room. Each producer sends what it was given credit for before, half of messages-max or 1000 messages at most, \
         so many of them may go beyond the limits together. What is sent in a transaction counts from then on \
         if it may be rejected or block; the oldest are dropped for it when it commits, and never if it does not.",
    ),
    property(
        "dead-letter",
        Kind::Name(field!(dead_letter)),
        Merge::MostSpecific,
        "none",
        "The queue, topic or exchange where messages go that are rejected, expire, fail too often, are dropped by overflow, or are held by \
         a consumer when their queue is deleted; without it they are gone. If that queue is full, it does what its own overflow says: with \
         reject the dead letter is lost, as where there is no such queue and auto-create is false, or nothing is subscribed to that \
         topic or bound to that exchange (dead-letters-lost of the queue \
         it comes from counts them, and the log says so); with drop-oldest its oldest message is; with block it takes the dead \
         letter, beyond its limits: nobody can be made to wait.",
    ),
    Property {
        alias: Some("delivery-max"),
        ..number(
            "deliveries-max",
            count(1, 65_535, Some("unlimited")),
            field!(deliveries_max),
            "unlimited",
            "A message whose delivery failed so often leaves the queue as if it were rejected.",
        )
    },
    property(
        "redelivery-delay",
        Kind::Redelivery,
        Merge::MostSpecific,
        "none",
        "How long a message waits whose delivery failed. As a table { min, multiplier, max }: min after the first failure, \
         multiplier times as long after each further one, at most max. What stands behind it in its group waits with it; what \
         its sender wants delayed does not hold its group back.",
    ),
    number(
        "ack-deadline",
        duration(10_000, 30 * DAY, Some("never")),
        field!(ack_deadline_us),
        "never",
        "A delivery that is not settled in this time goes back to its place, as one that failed. The delivery state received \
         starts the time anew.",
    ),
    flag(
        "sticky-groups",
        field!(sticky_groups),
        "A group of messages stays with its consumer for the consumer's life, not only while it holds one of them.",
    ),
    property(
        "last-value-key",
        Kind::Text(field!(last_value_key)),
        Merge::MostSpecific,
        "none",
        "An application property: of the messages in which it has the same value, the queue keeps the last. A delayed one is \
         the last from its time on, one that is sent in a transaction from the commit. It changes only while the queue is \
         empty: until then `corelane queue set` is refused, and what the file says waits.",
    ),
    flag(
        "non-destructive",
        field!(non_destructive),
        "Consumers take nothing away: each reads every message once, and messages leave by expiry or overflow. It \
         changes only while no consumer is attached: until then `corelane queue set` is refused, and what the file says waits.",
    ),
    property(
        "durable",
        Kind::Flag(field!(durable)),
        Merge::MostSpecific,
        "as the message says",
        "true: every message in the queue is kept on the disk, whatever it says itself; false: none is. Otherwise those are \
         whose header says durable. A dynamic node keeps nothing, nor does a subscription that is not durable.",
    ),
    property(
        "deliver",
        Kind::Choice(field!(deliver_after_sync), ["at-once", "after-sync"]),
        Merge::MostSpecific,
        "at-once",
        "When a message that is kept is given to consumers: as soon as it comes, or only when it is on the disk. At once: after a \
         crash, consumers may have had a message that its producer sends again, as it had not been accepted. After the sync: \
         messages that are not kept wait behind those that are.",
    ),
    Property {
        per_queue: false,
        ..property(
            "auto-create",
            Kind::Flag(field!(auto_create)),
            Merge::MostSpecific,
            "true",
            "The queue is made on first use.",
        )
    },
    flag("auto-delete", field!(auto_delete), "The queue goes with its last consumer, once it had one."),
    number(
        "idle-expiry",
        duration(100_000, YEARS, Some("never")),
        field!(idle_expiry_us),
        "never",
        "A queue to which no link was attached for so long is deleted, with what is in it.",
    ),
    flag(
        "sender-name",
        field!(sender_name),
        "The message annotation x-opt-sender says who has sent a message: the user that has logged in.",
    ),
    Property {
        per_queue: false,
        ..number(
            "shard",
            count(0, 1023, None),
            field!(shard),
            "by the name",
            "The shard that the queue is to live on. Read when the broker starts. Management calls it pinned-shard; its shard is \
             where a queue lives.",
        )
    },
    Property {
        per_queue: false,
        ..property(
            "topic",
            Kind::Flag(field!(topic)),
            Merge::MostSpecific,
            "false",
            "The name is a topic's: each of its subscriptions gets every message. The other properties are those of the \
             subscriptions.",
        )
    },
];

/// How rules merge, for people.
pub const MERGING: &str = "\
A pattern is words with dots between; `*` stands for one word, a last `>` for one or more. All rules that match a name
hold, and where they differ:

- flags add up: what any of them sets is set (but for auto-create, durable and topic, where the most specific rule is
  followed);
- prefetch: the exact name's, unless that is 0; else the largest of those of wildcards;
- overflow: the exact name's; else, of those of wildcards, reject-dead-letter before reject before block before
  drop-oldest;
- every other value: the exact name's, else that of the most specific wildcard: the one with more words that are no
  wildcards, then the one without `>`, then the one that comes later in the alphabet (of `a.*` and `*.b`: `a.*`).

A word for none (`never`, `unlimited`, `all`, `none`, or 0) given to the exact name takes back what a wildcard says. A
dead-letter of a wildcard is none for the queue that it names itself.";

/// What message annotations the broker reads and writes, for people.
pub const ANNOTATIONS: &str = "\
Message annotations:

  x-opt-delivery-delay   set by a sender: nobody gets the message for so many milliseconds from when it comes to its queue
  x-opt-delivery-time    set by a sender: nobody gets it before this time, in milliseconds since 1970; goes before the delay
  (both are whole numbers or timestamps; what is negative is over, and a value of any other type says nothing)
  x-opt-death-reason     set on a dead letter: rejected, expired, deliveries (it failed too often), overflow, or deleted
  x-opt-death-queue      the queue it left last
  x-opt-death-count      how often it has become a dead letter, also if it was moved back in between (what a client sends anew
                         begins anew)
  x-opt-death-path       the queues it has left so, the first one first
  x-opt-deaths           for each queue and reason, the last first: how often it has left so, first and last time, exchange and routing
                         keys, as RabbitMQ says it; with x-first-death-queue, -reason, -exchange and x-last-death-queue, …
  x-opt-sender           the user who has sent it, where sender-name is set

`corelane receive -v`, `browse -v` and `queue peek` show them; `corelane send --delay 5s` sets the first.";
