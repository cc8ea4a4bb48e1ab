//! Does the codec read and write what AMQP 1.0 specifies, and refuse everything else without harm?

mod frames;
mod hostile;
mod messages;
mod oracle;
mod performatives;
mod round_trip;
mod strategies;
mod values;

/// Bytes from their readable form: hexadecimal pairs, ASCII text in quotes, and square brackets around what a one-byte
/// size counts: `c0 [01 a1 ['c']]`.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut open = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\'' => {
                let quoted = rest[1..].find('\'').expect("a closing quote");
                bytes.extend_from_slice(&rest.as_bytes()[1..=quoted]);
                quoted + 2
            }
            '[' => {
                open.push(bytes.len());
                bytes.push(0);
                1
            }
            ']' => {
                let start = open.pop().expect("an opening bracket");
                bytes[start] = u8::try_from(bytes.len() - start - 1).expect("a one-byte size");
                1
            }
            _ => {
                bytes.push(u8::from_str_radix(&rest[..2], 16).expect("two hexadecimal digits"));
                2
            }
        };
        rest = rest[taken..].trim_start();
    }
    assert!(open.is_empty(), "a closing bracket");
    bytes
}
