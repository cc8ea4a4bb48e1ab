//! Does the codec read and write what AMQP 0-9-1 specifies and RabbitMQ makes of it, and refuse everything else without harm?

mod content;
mod frames;
mod hostile;
mod methods;
mod tables;

/// Bytes from their readable form: hexadecimal pairs, ASCII text in quotes, square brackets around what a one-byte size counts,
/// and round ones around what a four-byte size counts: `[ 'name' ] 'S' ( 'value' )`.
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
            '[' | '(' => {
                bytes.resize(bytes.len() + if first == '[' { 1 } else { 4 }, 0);
                open.push(bytes.len());
                1
            }
            ']' | ')' => {
                let start = open.pop().expect("an opening bracket");
                let size = u32::try_from(bytes.len() - start).expect("a small size").to_be_bytes();
                let size = if first == ']' { &size[3..] } else { &size };
                bytes[start - size.len()..start].copy_from_slice(size);
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
