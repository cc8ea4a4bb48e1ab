//! Which core does the generator run on, and which the broker?
//!
//! Two different ones, or the figures say little. A child process inherits the affinity of the thread that starts it, so
//! that a program that does not pin itself is pinned too, with all its threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::BenchError;

/// Who runs where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    pub broker: usize,
    pub generator: usize,
}

impl Cores {
    /// What was asked for, else the first two cores that this process may use.
    pub fn choose(broker: Option<usize>, generator: Option<usize>) -> Result<Cores, BenchError> {
        let usable = usable()?;
        for core in [broker, generator].into_iter().flatten() {
            if !usable.contains(&core) {
                return Err(BenchError::NoCore { core, usable });
            }
        }
        let generator_taken = generator;
        let broker = broker.or_else(|| usable.iter().copied().find(|core| Some(*core) != generator_taken));
        let broker = broker.or(usable.first().copied()).unwrap_or(0);
        let generator = generator.or_else(|| usable.iter().copied().find(|core| *core != broker));
        Ok(Cores { broker, generator: generator.unwrap_or(broker) })
    }

    /// The broker and the generator hinder each other.
    pub fn shared(&self) -> bool {
        self.broker == self.generator
    }
}

/// Lets this thread run again where it could before, when it is dropped.
pub struct Unpin(CpuSet);

impl Unpin {
    pub fn later() -> Result<Unpin, BenchError> {
        sched_getaffinity(None).map(Unpin).map_err(|error| BenchError::Pin { core: 0, error: error.into() })
    }
}

impl Drop for Unpin {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Runs this thread, and children that it starts, on one core only.
pub fn pin(core: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| BenchError::Pin { core, error: error.into() })
}

fn usable() -> Result<Vec<usize>, BenchError> {
    let set = sched_getaffinity(None).map_err(|error| BenchError::Pin { core: 0, error: error.into() })?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_differ_where_there_are_two() {
        let usable = usable().unwrap();
        let cores = Cores::choose(None, None).unwrap();
        assert_eq!(cores.shared(), usable.len() == 1);
        assert!(usable.contains(&cores.broker) && usable.contains(&cores.generator));
        let turned = Cores::choose(None, Some(cores.broker)).unwrap();
        assert_eq!(turned.shared(), usable.len() == 1);
        assert_eq!(turned.generator, cores.broker);
    }

    #[test]
    fn who_was_pinned_may_run_everywhere_again() {
        let before = usable().unwrap();
        let unpin = Unpin::later().unwrap();
        pin(before[0]).unwrap();
        assert_eq!(usable().unwrap(), before[..1]);
        drop(unpin);
        assert_eq!(usable().unwrap(), before);
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        let error = Cores::choose(Some(CpuSet::MAX_CPU), None).unwrap_err();
        assert!(error.to_string().contains("--broker-core"), "{error}");
    }
}
