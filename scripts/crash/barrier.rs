//! From when on does what a consumer has said outlive a crash?
//!
//! Nobody answers a consumer. But what it sends to the same node after it has settled is handled after that, and the broker answers for
//! what was sent when it is synced. What is settled may be written a batch later than what is stored in the same moment; so two messages
//! are sent one after the other, and the answer to the second one counts. Of a message that has been settled since, how often it had
//! failed is not written any more.

use crate::ledger::Number;

/// As many outcomes gather before a message is sent.
const GATHERED_MIN: usize = 20;

/// A message, and the deliveries that failed if it came back.
type Said = (Number, Option<u32>);

#[derive(Debug, Default)]
pub struct Barrier {
    gathered: Vec<Said>,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// The first message is not answered.
    First(Number, Vec<Said>),
    /// It is; the second one is not sent.
    Between(Vec<Said>),
    Second(Number, Vec<Said>),
}

impl Barrier {
    /// An outcome is about to be sent.
    pub fn note(&mut self, number: Number, failed: Option<u32>) {
        self.gathered.push((number, failed));
    }

    /// Whether a message is to be sent.
    pub fn is_due(&self) -> bool {
        match self.state {
            State::Idle => self.gathered.len() >= GATHERED_MIN,
            State::Between(_) => true,
            State::First(..) | State::Second(..) => false,
        }
    }

    /// It was sent.
    pub fn asked(&mut self, number: Number) {
        self.state = match std::mem::take(&mut self.state) {
            State::Between(said) => State::Second(number, said),
            State::Idle | State::First(..) | State::Second(..) => {
                State::First(number, std::mem::take(&mut self.gathered))
            }
        };
    }

    /// A message is answered: what outlives a crash now.
    pub fn answered(&mut self, number: Number, accepted: bool) -> Vec<Said> {
        let (state, outlives) = match std::mem::take(&mut self.state) {
            State::First(asked, said) if asked == number && accepted => (State::Between(said), Vec::new()),
            State::Second(asked, said) if asked == number && accepted => (State::Idle, said),
            State::First(asked, _) | State::Second(asked, _) if asked == number => (State::Idle, Vec::new()),
            state => (state, Vec::new()),
        };
        self.state = state;
        outlives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_answer_counts() {
        let mut barrier = Barrier::default();
        (0..GATHERED_MIN as u64).for_each(|number| barrier.note(number, None));
        assert!(barrier.is_due());
        barrier.asked(100);
        barrier.note(99, None);
        assert!(!barrier.is_due() && barrier.answered(100, true).is_empty() && barrier.is_due());
        barrier.asked(101);
        assert!(barrier.answered(7, true).is_empty());
        assert_eq!(barrier.answered(101, true).len(), GATHERED_MIN);
        assert!(!barrier.is_due(), "one has gathered since");
    }

    #[test]
    fn a_message_that_is_refused_says_nothing() {
        let mut barrier = Barrier::default();
        (0..GATHERED_MIN as u64).for_each(|number| barrier.note(number, None));
        barrier.asked(100);
        assert!(barrier.answered(100, false).is_empty() && !barrier.is_due());
    }
}
