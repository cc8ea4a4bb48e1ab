//! The state machine, by tables of steps and by pairs in simulated time. Wherever a test proves a paragraph of the
//! specification, the paragraph stands at it.

mod channels;
mod consuming;
mod handshake;
mod limits;
mod pair;
mod publishing;
mod script;
