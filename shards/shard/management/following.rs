//! Would a change to a queue lead its dead letters round in a circle? Asked before it is made.
//!
//! The queue's home is asked whether the change can be made and where its dead letters would go then, that queue's home where they go
//! from there, and so on. If they come back the change is refused, with the path; otherwise it is asked for at last.

use super::plan::{Layout, Step};
use super::question::{Change, Question};
use super::reply::Fault;
use crate::dead_letter_paths::{DeadLetterPath, Stop};

/// A change that waits until the way of dead letters is known.
#[derive(Debug)]
pub(crate) struct Following {
    change: Change,
    path: DeadLetterPath,
}

impl Following {
    pub(crate) fn start(change: Change, layout: &Layout<'_>) -> (Following, Step) {
        let step = Step::Ask((layout.home)(&change.queue), Question::Try(change.clone()));
        let path = DeadLetterPath::from(Stop::Queue(change.queue.clone()));
        (Following { change, path }, step)
    }

    /// The last stop's dead letters go there.
    pub(crate) fn take(&mut self, next: Option<Stop>, layout: &Layout<'_>) -> Step {
        match next.map(|next| self.path.go_on(next)) {
            Some(Ok(Some(stop))) => {
                Step::Ask((layout.home)(stop.name()), Question::DeadLetter { stop: stop.clone() })
            }
            Some(Err(why)) => Step::Done(Fault::bad(why).into()),
            Some(Ok(None)) | None => {
                Step::Ask((layout.home)(&self.change.queue), Question::Change(self.change.clone()))
            }
        }
    }
}
