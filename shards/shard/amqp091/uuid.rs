//! How does a UUID look as text? As a URN, `urn:uuid:` and its digits (RFC 9562 §4).

const PREFIX: &[u8] = b"urn:uuid:";
/// Where the hyphens stand.
const HYPHENS: [usize; 4] = [17, 22, 27, 32];
const SIZE: usize = 9 + 36;

pub(super) fn text(id: [u8; 16]) -> [u8; SIZE] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; SIZE];
    text[..PREFIX.len()].copy_from_slice(PREFIX);
    let digits = id.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, digit) in places().zip(digits) {
        text[place] = DIGITS[usize::from(digit)];
    }
    text
}

/// None: it is something else.
pub(super) fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; SIZE] = text.try_into().ok()?;
    if !text.starts_with(PREFIX) || HYPHENS.iter().any(|place| text[*place] != b'-') {
        return None;
    }
    let mut id = [0; 16];
    for (n, place) in places().enumerate() {
        let digit = char::from(text[place]).to_digit(16)?;
        id[n / 2] = id[n / 2] << 4 | digit as u8;
    }
    Some(id)
}

/// Where the digits stand.
fn places() -> impl Iterator<Item = usize> {
    (PREFIX.len()..SIZE).filter(|place| !HYPHENS.contains(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_a_urn() {
        let id = *b"\x55\x0e\x84\x00\xe2\x9b\x41\xd4\xa7\x16\x44\x66\x55\x44\x00\x00";
        assert_eq!(text(id).as_slice(), b"urn:uuid:550e8400-e29b-41d4-a716-446655440000");
        assert_eq!(parse(&text(id)), Some(id));
        assert_eq!(parse(b"urn:uuid:550E8400-E29B-41D4-A716-446655440000"), Some(id));
        for other in [
            "",
            "550e8400-e29b-41d4-a716-446655440000",
            "urn:uuid:550e8400-e29b-41d4-a716-44665544000",
            "urn:uuid:550e8400-e29b-41d4-a716-4466554400000",
            "urn:uuid:550e8400+e29b-41d4-a716-446655440000",
            "urn:uuid:550e8400-e29b-41d4-a716-44665544000g",
            "urn:uuid:550e8400-e29b-41d4-a716-44665544000+",
        ] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }
}
