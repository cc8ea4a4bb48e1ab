//! Which atomics and which slots is this room built on?
//!
//! The processor's and `crossbeam`'s; in the model (`--cfg loom`) loom's, and slots whose reservation and publication
//! loom can see.

#[cfg(not(loom))]
pub(crate) use crossbeam_queue::ArrayQueue as Slots;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use model::Slots;

#[cfg(loom)]
mod model {
    //! What stands for `ArrayQueue`: storage that synchronises nothing by itself, so that a missing ordering in the
    //! counters around it is seen as a slot that is not (yet) in the state it must have.

    use super::{AtomicBool, AtomicU64, Ordering};
    use std::sync::Mutex;

    pub(crate) struct Slots<T> {
        slots: Vec<(AtomicBool, Mutex<Option<T>>)>,
        head: AtomicU64,
        tail: AtomicU64,
    }

    impl<T> Slots<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            let slots = (0..capacity).map(|_| (AtomicBool::new(false), Mutex::new(None))).collect();
            Slots { slots, head: AtomicU64::new(0), tail: AtomicU64::new(0) }
        }

        pub(crate) fn push(&self, value: T) -> Result<(), T> {
            let tail = self.tail.load(Ordering::Relaxed);
            self.tail.store(tail + 1, Ordering::Relaxed);
            let (full, slot) = &self.slots[tail as usize % self.slots.len()];
            assert!(!full.load(Ordering::Relaxed), "a slot is written before its reader has left it");
            *slot.lock().expect("nothing panics while it holds a slot") = Some(value);
            full.store(true, Ordering::Relaxed);
            Ok(())
        }

        pub(crate) fn pop(&self) -> Option<T> {
            let head = self.head.load(Ordering::Relaxed);
            self.head.store(head + 1, Ordering::Relaxed);
            let (full, slot) = &self.slots[head as usize % self.slots.len()];
            assert!(full.load(Ordering::Relaxed), "a slot is read before its writer has filled it");
            let value = slot.lock().expect("nothing panics while it holds a slot").take();
            full.store(false, Ordering::Relaxed);
            value
        }
    }
}
