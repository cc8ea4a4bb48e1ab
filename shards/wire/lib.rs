//! How do bytes on a socket become AMQP frames, performatives and values, and back?
//!
//! Everything decoded borrows from the input; nothing here keeps state, does I/O or decides policy. Decoders answer
//! every input with a value or an error: no panic, no recursion on what a peer nests, no allocation by a size it names.

pub mod amqp091;
pub mod amqp10;
