//! What is in a message? Its number, its size, and a pattern that follows from both.

use corelane_wire::amqp10::{Encode, Header, Sections, Value, write_data};

use crate::fault::Fault;
use crate::ledger::{Number, Seen};

/// Bytes of number and size.
const HEAD_BYTES: usize = 12;

/// A message whose body has `size` bytes, and a few more.
pub fn write(number: Number, size: usize, durable: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 64);
    if durable {
        Header { durable, ..Header::default() }.encode(&mut bytes);
    }
    let mut body = Vec::with_capacity(size + HEAD_BYTES);
    body.extend_from_slice(&number.to_be_bytes());
    body.extend_from_slice(&(size as u32).to_be_bytes());
    body.extend((0..size).map(|index| pattern(number, index)));
    write_data(&mut bytes, &body);
    bytes
}

/// Which message it is. An error if it is none of ours, or has changed.
pub fn read(bytes: &[u8]) -> Result<Seen, Fault> {
    let broken = |what: &str| Fault::Other(format!("a message of {} bytes arrives and {what}", bytes.len()));
    let sections = Sections::scan(bytes).map_err(|error| broken(&format!("cannot be read: {error}")))?;
    let header = sections.header(bytes).map_err(|error| broken(&format!("its header cannot: {error}")))?;
    let Some(Ok(Value::Binary(body))) = sections.body_values(bytes).next() else {
        return Err(broken("has no data"));
    };
    let Some((number, rest)) = body.split_first_chunk::<8>() else { return Err(broken("has no number")) };
    let Some((size, rest)) = rest.split_first_chunk::<4>() else { return Err(broken("has no size")) };
    let number = Number::from_be_bytes(*number);
    let is_whole = rest.len() == u32::from_be_bytes(*size) as usize;
    if !is_whole || rest.iter().enumerate().any(|(index, byte)| *byte != pattern(number, index)) {
        return Err(broken(&format!("is not what was sent as {number}")));
    }
    Ok(Seen { number, failed: header.delivery_count, is_first: header.first_acquirer })
}

fn pattern(number: Number, index: usize) -> u8 {
    (number as usize).wrapping_mul(31).wrapping_add(index.wrapping_mul(7) ^ (index >> 8)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_a_change_is_seen() {
        for size in [0, 1, 300, 70_000] {
            let bytes = write(77, size, true);
            assert_eq!(read(&bytes).unwrap().number, 77);
            for at in [bytes.len() - 1, bytes.len() - size.max(1)] {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert!(read(&changed).is_err(), "{size} {at}");
            }
            assert!(read(&bytes[..bytes.len() - 1]).is_err());
        }
    }
}
