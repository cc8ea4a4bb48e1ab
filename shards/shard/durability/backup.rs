//! How does a shard stand still for a backup, and keep what is being copied? See [`crate::backup`].

use corelane_mailbox::Lane;

use crate::Shard;
use crate::backup::{BackupMail, BackupRefusal, ImageSegment};
use crate::effect::Effect;
use crate::mail::Mail;

/// What a backup wants of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackupState {
    None,
    /// No write begins; this participant is answered when none is on its way.
    Asked {
        by: usize,
        number: u64,
    },
    /// No write begins.
    Held,
    /// Everything goes on, but no segment is freed.
    Copying,
}

impl BackupState {
    /// No write may begin.
    pub(super) fn holds(self) -> bool {
        match self {
            BackupState::Asked { .. } | BackupState::Held => true,
            BackupState::None | BackupState::Copying => false,
        }
    }
}

impl Shard {
    pub(crate) fn on_backup(&mut self, from: usize, mail: BackupMail) {
        match mail {
            BackupMail::Hold { number } => match &mut self.durability {
                Some(durability) => {
                    durability.backup = BackupState::Asked { by: from, number };
                    self.answer_backup();
                }
                None => self.post_held(from, number, Err(BackupRefusal::InMemory)),
            },
            BackupMail::GoOn => self.set_backup(BackupState::Copying),
            BackupMail::Release => {
                self.set_backup(BackupState::None);
                self.release_freed();
            }
            // For the control thread; no shard is sent one.
            BackupMail::Held { .. } => {}
        }
    }

    /// If a backup waits for that no write is on its way, and none is.
    pub(super) fn answer_backup(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        let BackupState::Asked { by, number } = durability.backup else { return };
        if durability.journal.is_writing() {
            return;
        }
        let result = match durability.journal.is_failed() {
            true => Err(BackupRefusal::Failed { shard: self.index }),
            false => Ok(image_of(durability.journal.image())),
        };
        durability.backup = if result.is_ok() { BackupState::Held } else { BackupState::None };
        self.post_held(by, number, result);
    }

    /// The files of segments that hold nothing any more may be used for others, unless they are being copied.
    pub(super) fn release_freed(&mut self) {
        let Some(durability) = &mut self.durability else { return };
        if durability.backup != BackupState::None {
            return;
        }
        let numbers = durability.journal.take_freed();
        if !numbers.is_empty() {
            self.effects.push(Effect::FreeSegments { numbers });
        }
    }

    fn set_backup(&mut self, state: BackupState) {
        if let Some(durability) = &mut self.durability {
            durability.backup = state;
        }
    }

    fn post_held(&mut self, to: usize, number: u64, result: Result<Vec<ImageSegment>, BackupRefusal>) {
        self.post(to, Lane::Control, Mail::Backup(BackupMail::Held { number, result }));
    }
}

fn image_of(segments: Vec<(u32, u32)>) -> Vec<ImageSegment> {
    segments.into_iter().map(|(number, bytes)| ImageSegment { number, bytes }).collect()
}
