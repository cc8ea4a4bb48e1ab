//! Does the state machine do what the specification and its users expect?
//!
//! `script` runs one side against hand-made frames and compares everything it says: one `check(input, expect)` per
//! feature. `pair` runs a client against a server in simulated time, their bytes cut at random.

mod credit;
mod deliveries;
mod faults;
mod handshake;
mod links;
mod pair;
mod pairs;
mod script;
mod sending;
mod settling;
mod sizes;
mod timing;
mod transacting;
mod wraps;
