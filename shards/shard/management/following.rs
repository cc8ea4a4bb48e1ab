//! Would a change to a queue lead its dead letters round in a circle? Asked before it is made.
//!
//! The queue's home is asked where its dead letters would go, that queue's home where they go from there, and so on. If they come back
//! the change is refused, with the path; otherwise its own question is asked at last.

use super::data::Data;
use super::plan::{Layout, Step};
use super::question::Question;
use super::reply::Fault;
use crate::dead_letter_paths::{Onward, go_on, show};
use crate::limits::DEAD_LETTER_STOPS_MAX;
use crate::properties;

/// A change that waits until the way of dead letters is known.
#[derive(Debug)]
pub(crate) struct Following {
    /// Until it is asked for, at the end.
    change: Option<Question>,
    path: Vec<Box<str>>,
}

/// What a question says of the dead letters of its queue.
fn dead_letter_in(question: &Question) -> Option<(&str, &Data)> {
    let (Question::CreateQueue { queue, properties } | Question::UpdateQueue { queue, properties }) =
        question
    else {
        return None;
    };
    let is_it = |name: &str| properties::find(name).is_some_and(|property| property.name == "dead-letter");
    let (_, value) = properties.iter().rfind(|(name, _)| is_it(name))?;
    Some((queue, value))
}

impl Following {
    /// Begins, if the question says where dead letters go; otherwise it is given back.
    pub(crate) fn start(change: Question, layout: &Layout<'_>) -> Result<(Following, Step), Question> {
        let Some((queue, value)) = dead_letter_in(&change) else { return Err(change) };
        let first = Question::DeadLetter { queue: queue.into(), given: Some(value.clone()) };
        let step = Step::Ask((layout.home)(queue), first);
        let path = vec![queue.into()];
        Ok((Following { change: Some(change), path }, step))
    }

    /// The last stop's dead letters go there.
    pub(crate) fn take(&mut self, next: Option<Box<str>>, layout: &Layout<'_>) -> Step {
        let Some(next) = next else { return self.make(layout) };
        match go_on(&mut self.path, next.clone()) {
            Onward::To => Step::Ask((layout.home)(&next), Question::DeadLetter { queue: next, given: None }),
            Onward::Elsewhere => self.make(layout),
            Onward::Circle => {
                let why = format!(
                    "dead-letter goes round in a circle: {}; allowed: queues whose own dead letters lead elsewhere or nowhere \
                     (dead-letter = \"none\")",
                    show(&self.path)
                );
                Step::Done(Fault::bad(why).into())
            }
            Onward::TooLong => {
                let why = format!("dead-letter leads over more than {DEAD_LETTER_STOPS_MAX} queues");
                Step::Done(Fault::bad(why).into())
            }
        }
    }

    fn make(&mut self, layout: &Layout<'_>) -> Step {
        let change = self.change.take().expect("what answers a change says nothing of where it leads");
        Step::Ask((layout.home)(&self.path[0]), change)
    }
}
