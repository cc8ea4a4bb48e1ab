//! What can a selector name, and what may a message answer?
//!
//! A selector names header fields, `JMSX` fields and properties; [`Fields`] is the door through which it reads them. The
//! reader borrows from the encoded message: nothing is built, and a field is asked for only when the outcome depends on it.
//! How a name maps to a section of a message is the implementer's business.

/// A name in a selector, resolved once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// One of the names JMS defines.
    Header(HeaderField),
    /// Any other name: an application property.
    Property(Box<str>),
}

/// The names JMS defines. §3.8.1.1 allows a selector `JMSDeliveryMode`, `JMSPriority`, `JMSMessageID`, `JMSTimestamp`,
/// `JMSCorrelationID`, `JMSType` and the `JMSX` names; the others are accepted because brokers accept them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeaderField {
    /// `JMSDestination`: string.
    Destination,
    /// `JMSDeliveryMode`: the string `PERSISTENT` or `NON_PERSISTENT` (§3.8.1.3).
    DeliveryMode,
    /// `JMSPriority`: integer.
    Priority,
    /// `JMSMessageID`: string or null.
    MessageId,
    /// `JMSTimestamp`: integer, milliseconds since the Unix epoch.
    Timestamp,
    /// `JMSCorrelationID`: string or null.
    CorrelationId,
    /// `JMSType`: string or null.
    Type,
    /// `JMSReplyTo`: string or null.
    ReplyTo,
    /// `JMSExpiration`: integer, milliseconds since the Unix epoch, 0 for never.
    Expiration,
    /// `JMSDeliveryTime`: integer, milliseconds since the Unix epoch.
    DeliveryTime,
    /// `JMSRedelivered`: boolean, whether a delivery has failed. Changes when the message comes back.
    Redelivered,
    /// `JMSXDeliveryCount`: integer, 1 at the first delivery. Changes when the message comes back.
    DeliveryCount,
    /// `JMSXGroupID`: string or null.
    GroupId,
    /// `JMSXGroupSeq`: integer or null.
    GroupSequence,
    /// `JMSXUserID`: string or null.
    UserId,
}

const HEADER_FIELDS: [(&str, HeaderField); 15] = [
    ("JMSDestination", HeaderField::Destination),
    ("JMSDeliveryMode", HeaderField::DeliveryMode),
    ("JMSPriority", HeaderField::Priority),
    ("JMSMessageID", HeaderField::MessageId),
    ("JMSTimestamp", HeaderField::Timestamp),
    ("JMSCorrelationID", HeaderField::CorrelationId),
    ("JMSType", HeaderField::Type),
    ("JMSReplyTo", HeaderField::ReplyTo),
    ("JMSExpiration", HeaderField::Expiration),
    ("JMSDeliveryTime", HeaderField::DeliveryTime),
    ("JMSRedelivered", HeaderField::Redelivered),
    ("JMSXDeliveryCount", HeaderField::DeliveryCount),
    ("JMSXGroupID", HeaderField::GroupId),
    ("JMSXGroupSeq", HeaderField::GroupSequence),
    ("JMSXUserID", HeaderField::UserId),
];

impl Field {
    /// The field a name stands for. Names are case-sensitive.
    pub fn named(name: &str) -> Self {
        match HEADER_FIELDS.iter().find(|(known, _)| *known == name) {
            Some((_, header)) => Field::Header(*header),
            None => Field::Property(name.into()),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Field::Header(header) => header.name(),
            Field::Property(name) => name,
        }
    }

    /// Whether the value stays the same for the message's whole life in its queue.
    pub(crate) fn is_stable(&self) -> bool {
        !matches!(self, Field::Header(HeaderField::Redelivered | HeaderField::DeliveryCount))
    }
}

impl HeaderField {
    pub fn name(self) -> &'static str {
        // The table holds the fields in the order of their declaration; a test compares the two.
        HEADER_FIELDS[self as usize].0
    }
}

/// What a message answers when a selector reads a field.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// The message has no such field.
    Null,
    Bool(bool),
    /// Any exact number that fits. Times are milliseconds since the Unix epoch.
    Int(i64),
    /// An exact number of an unsigned type; compares by its value with the two other kinds of number.
    Unsigned(u64),
    /// An approximate number; a single-precision value is widened.
    Float(f64),
    String(&'a str),
    /// The field is there, but selectors have no use for its type (binary, list, map): not null, and equal to nothing.
    Opaque,
}

/// Reads a message's fields.
pub trait Fields {
    fn field(&self, field: &Field) -> Value<'_>;
}

impl<F: Fields + ?Sized> Fields for &F {
    fn field(&self, field: &Field) -> Value<'_> {
        (**self).field(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_name_round_trips() {
        for (name, header) in HEADER_FIELDS {
            assert_eq!(header.name(), name);
            assert_eq!(Field::named(name), Field::Header(header));
        }
    }

    #[test]
    fn names_are_case_sensitive() {
        assert_eq!(Field::named("jmspriority"), Field::Property("jmspriority".into()));
        assert_eq!(Field::named("jmspriority").name(), "jmspriority");
    }
}
