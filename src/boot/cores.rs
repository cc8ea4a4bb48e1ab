//! Which shard runs on which core?
//!
//! Invariants: a shard is pinned to a core that this process may use; one core of each pair that share their execution units
//! is used before the second of any.

use crate::driver::Placement;
use std::fs;
use std::{fmt, thread};

use rustix::thread::{CpuSet, sched_getaffinity};

/// More shards than this have no place in the words of a mailbox's desk that fit a cache line or two, and no machine for it.
const SHARDS_MAX: usize = 1024;

/// The cores of the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// By shard.
    pub(super) cores: Vec<usize>,
    usable_count: usize,
}

/// What is wrong with the cores asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoresError {
    /// This process may not use it, or the machine does not have it.
    NotUsable {
        core: usize,
    },
    TooManyShards {
        shards: usize,
    },
}

impl Plan {
    /// Where this shard's thread runs.
    pub(super) fn placement(&self, shard: usize) -> Placement {
        let core = self.cores[shard];
        let shards = self.cores.iter().filter(|other| **other == core).count();
        if shards > 1 { Placement::Shared(core) } else { Placement::Core(core) }
    }

    /// For so many shards (else one for each core) on these cores (else the usable ones).
    pub(super) fn new(shards: Option<usize>, cores: Option<&[usize]>) -> Result<Plan, CoresError> {
        let usable = usable_cores();
        // A share of the processor's time may be less than what its cores say.
        let parallelism = thread::available_parallelism().map_or(usable.len(), usize::from);
        let siblings = |core: usize| siblings_of(core);
        Plan::choose(shards, cores, &usable, parallelism, siblings)
    }

    fn choose(
        shards: Option<usize>,
        cores: Option<&[usize]>,
        usable: &[usize],
        parallelism: usize,
        siblings: impl Fn(usize) -> Vec<usize>,
    ) -> Result<Plan, CoresError> {
        let (cores, default_count) = match cores {
            Some(cores) => {
                if let Some(&core) = cores.iter().find(|core| !usable.contains(core)) {
                    return Err(CoresError::NotUsable { core });
                }
                (cores.to_vec(), cores.len())
            }
            None => (siblings_last(usable, siblings), parallelism.min(usable.len()).max(1)),
        };
        let count = shards.unwrap_or(default_count);
        if count > SHARDS_MAX {
            return Err(CoresError::TooManyShards { shards: count });
        }
        let cores = cores.iter().copied().cycle().take(count).collect();
        Ok(Plan { cores, usable_count: usable.len() })
    }

    /// What will cost latency and can be changed.
    pub(super) fn warnings(&self, spinning: bool) -> Vec<String> {
        let mut distinct = self.cores.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut warnings = Vec::new();
        if distinct.len() < self.cores.len() {
            warnings.push(format!(
                "{} shards share {} cores: they will wait for each other. Give --shards {} or more --cores",
                self.cores.len(),
                distinct.len(),
                distinct.len()
            ));
        }
        if spinning && distinct.len() == self.usable_count {
            warnings.push(
                "every usable core is kept busy by a polling shard, and leaves no time to the kernel's own work and \
                 to other programs. Leave a core free with --cores, or use --idle adaptive"
                    .to_owned(),
            );
        }
        let shared = distinct.iter().filter(|&&core| {
            siblings_of(core).iter().any(|&other| other != core && distinct.contains(&other))
        });
        if shared.count() > 0 {
            warnings.push(
                "some shards run on the two threads of one core and slow each other down. Name one thread of each \
                 core with --cores (see `lscpu --extended`)"
                    .to_owned(),
            );
        }
        if let Some((core, governor)) = distinct.iter().find_map(|&core| slow_governor(core)) {
            warnings.push(format!(
                "core {core} is clocked by the governor `{governor}`, which makes quiet times slow. For the best \
                 latency: `cpupower frequency-set --governor performance`"
            ));
        }
        warnings
    }
}

/// The cores this process may be scheduled on, in ascending order.
fn usable_cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => (0..thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

fn siblings_last(usable: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let is_second = |core: &usize| siblings(*core).iter().any(|other| other < core && usable.contains(other));
    let (second, first): (Vec<_>, Vec<_>) = usable.iter().partition(|core| is_second(core));
    first.into_iter().chain(second).collect()
}

/// The threads that share a core with this one, itself among them.
fn siblings_of(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs::read_to_string(path).map(|text| parse_list(&text)).unwrap_or_default()
}

/// The kernel's notation: `0-1,8`.
fn parse_list(text: &str) -> Vec<usize> {
    let parts = text.trim().split(',').filter_map(|part| match part.split_once('-') {
        Some((first, last)) => Some(first.parse().ok()?..=last.parse().ok()?),
        None => part.parse().ok().map(|core| core..=core),
    });
    parts.flatten().collect()
}

fn slow_governor(core: usize) -> Option<(usize, String)> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
    let governor = fs::read_to_string(path).ok()?;
    let governor = governor.trim();
    (governor == "powersave" || governor == "conservative").then(|| (core, governor.to_owned()))
}

impl fmt::Display for CoresError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoresError::NotUsable { core } => write!(
                formatter,
                "core {core} cannot be used: the machine does not have it, or this process may not run on it (see \
                 `taskset -p $$` and `lscpu --extended`)"
            ),
            CoresError::TooManyShards { shards } => {
                write!(formatter, "{shards} shards are too many: at most {SHARDS_MAX} can be run")
            }
        }
    }
}

impl std::error::Error for CoresError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cores 0–3 with second threads 4–7.
    fn hyper(core: usize) -> Vec<usize> {
        vec![core % 4, core % 4 + 4]
    }

    fn check(shards: Option<usize>, cores: Option<&[usize]>, usable: &[usize], expected: &[usize]) {
        let plan = Plan::choose(shards, cores, usable, usable.len(), hyper).unwrap();
        assert_eq!(plan.cores, expected);
    }

    #[test]
    fn one_shard_for_each_usable_core_and_second_threads_last() {
        check(None, None, &[0, 1], &[0, 1]);
        check(None, None, &[0, 4, 1, 5], &[0, 1, 4, 5]);
        check(Some(2), None, &[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1]);
        check(Some(1), None, &[4, 5], &[4]);
        check(Some(3), None, &[2, 6], &[2, 6, 2]);
    }

    #[test]
    fn named_cores_in_their_order() {
        check(None, Some(&[3, 1]), &[0, 1, 2, 3], &[3, 1]);
        check(Some(3), Some(&[3, 1]), &[0, 1, 2, 3], &[3, 1, 3]);
        check(Some(1), Some(&[3, 1]), &[0, 1, 2, 3], &[3]);
    }

    #[test]
    fn a_share_of_the_processor_limits_the_default_alone() {
        let plan = |shards| Plan::choose(shards, None, &[0, 1, 2, 3], 2, hyper).unwrap().cores;
        assert_eq!(plan(None), [0, 1]);
        assert_eq!(plan(Some(4)), [0, 1, 2, 3]);
    }

    #[test]
    fn cores_that_are_not_there() {
        let plan = Plan::choose(None, Some(&[0, 9]), &[0, 1], 2, hyper);
        assert_eq!(plan, Err(CoresError::NotUsable { core: 9 }));
        let plan = Plan::choose(Some(5000), None, &[0, 1], 2, hyper);
        assert_eq!(plan, Err(CoresError::TooManyShards { shards: 5000 }));
    }

    #[test]
    fn shards_that_share_cores_and_shards_that_take_all() {
        let plan = Plan { cores: vec![0, 1, 0], usable_count: 2 };
        assert_eq!(
            plan.warnings(false).iter().filter(|warning| warning.contains("share 2 cores")).count(),
            1
        );
        assert_eq!(plan.warnings(true).iter().filter(|warning| warning.contains("polling")).count(), 1);
    }

    #[test]
    fn the_notation_of_the_kernel() {
        assert_eq!(parse_list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(parse_list(""), Vec::<usize>::new());
    }
}
