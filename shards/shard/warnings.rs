//! What does an operator hear of at once, without asking? A line in the log, which the driver writes.
//!
//! Invariants: of one kind at most so many lines come in a [`WARNINGS_PERIOD_US`]; those that are left out are counted.

use crate::effect::Effect;
use crate::limits::WARNINGS_PERIOD_US;

/// Warnings of one kind.
#[derive(Debug)]
pub(crate) struct Warnings {
    /// In one period.
    max: u32,
    began: Option<u64>,
    given: u32,
    left_out: u64,
}

impl Warnings {
    pub(crate) fn new(max: u32) -> Warnings {
        Warnings { max, began: None, given: 0, left_out: 0 }
    }

    /// Warns, unless that was done often enough; the text is told how many were left out before.
    pub(crate) fn warn(&mut self, now: u64, effects: &mut Vec<Effect>, text: impl FnOnce(u64) -> String) {
        if self.began.is_none_or(|began| now.saturating_sub(began) >= WARNINGS_PERIOD_US) {
            self.began = Some(now);
            self.given = 0;
        }
        if self.given >= self.max {
            self.left_out += 1;
            return;
        }
        self.given += 1;
        effects.push(Effect::Warn { text: text(std::mem::take(&mut self.left_out)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_a_period_and_the_others_are_counted() {
        let mut warnings = Warnings::new(2);
        let mut effects = Vec::new();
        for step in [0, 1, 2, 3, WARNINGS_PERIOD_US - 1, WARNINGS_PERIOD_US, WARNINGS_PERIOD_US + 1] {
            warnings.warn(1_000 + step, &mut effects, |left_out| left_out.to_string());
        }
        let texts: Vec<String> = effects
            .into_iter()
            .map(|effect| match effect {
                Effect::Warn { text } => text,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["0", "0", "3", "0"]);
    }
}
