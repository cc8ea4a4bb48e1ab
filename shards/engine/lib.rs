//! corelane-engine

mod filter_index;
pub mod selector;
mod timer_wheel;
