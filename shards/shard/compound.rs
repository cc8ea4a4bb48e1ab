//! How is a compound value of AMQP 1.0 written whose size is not known before?
//!
//! With a wide size and count, whatever they turn out to be, so that nothing is moved when they are filled in.

pub(crate) const LIST: u8 = 0xd0;
pub(crate) const MAP: u8 = 0xd1;
pub(crate) const ARRAY: u8 = 0xf0;

/// Appends constructor, size and count, and what `write` writes and counts.
pub(crate) fn compound(out: &mut Vec<u8>, code: u8, write: impl FnOnce(&mut Vec<u8>) -> u32) {
    out.extend_from_slice(&[code, 0, 0, 0, 0]);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let count = write(out);
    let size = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start - 4..start].copy_from_slice(&size.to_be_bytes());
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
}
