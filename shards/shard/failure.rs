//! Why can a transaction not commit, and what is its peer told then?

use crate::limits::{
    TRANSACTION_ACQUIRED_MAX, TRANSACTION_ANNOTATIONS_BYTES_MAX, TRANSACTION_KEPT_BYTES_MAX,
    TRANSACTION_WORK_MAX,
};
use crate::mail::{PublishOutcome, Vote};

/// Why a transaction cannot commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Refused(PublishOutcome),
    QueueGone,
    Late,
    /// An outcome was for a delivery that had been settled before, or had never been.
    NotUnsettled,
    TooLarge,
    LinkEnded,
    CoordinatorEnded,
}

impl Failure {
    /// What the peer is told.
    pub(crate) fn text(self) -> String {
        match self {
            Failure::Refused(outcome) => {
                let (condition, description) = outcome.error();
                format!("rolled back: a message was refused with {condition}, {description}")
            }
            Failure::QueueGone => "rolled back: a queue it is about was deleted".to_owned(),
            Failure::Late => {
                "rolled back: a delivery settled in it had gone back to its queue before".to_owned()
            }
            Failure::NotUnsettled => {
                "rolled back: a delivery settled in it was not unsettled any more, or never was one of the session".to_owned()
            }
            Failure::TooLarge => {
                format!(
                    "rolled back: it has more than {TRANSACTION_WORK_MAX} pieces of work, or {TRANSACTION_ACQUIRED_MAX} \
                     deliveries without an outcome, or its outcomes more than {TRANSACTION_ANNOTATIONS_BYTES_MAX} bytes of annotations, \
                     or more than {TRANSACTION_KEPT_BYTES_MAX} bytes of it would be written on one shard"
                )
            }
            Failure::LinkEnded => {
                "rolled back: the link of a delivery that has an outcome in it ended".to_owned()
            }
            Failure::CoordinatorEnded => "rolled back: the coordinator's link ended".to_owned(),
        }
    }
}

impl Vote {
    pub(crate) fn failure(self) -> Option<Failure> {
        match self {
            Vote::Yes { .. } => None,
            Vote::Late => Some(Failure::Late),
            Vote::QueueGone => Some(Failure::QueueGone),
            Vote::TooLarge => Some(Failure::TooLarge),
        }
    }
}
