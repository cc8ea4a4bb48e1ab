//! Any text as a selector, over any message: it ends, an error is inside the text, and what was read prints as itself and
//! says the same.

#![no_main]

use corelane_engine::selector::{Field, Fields, Filter, Truth, Value};
use libfuzzer_sys::fuzz_target;

/// Answers for a field by its name's first byte, out of the fuzzer's bytes.
struct Message<'d>(&'d [u8]);

impl Fields for Message<'_> {
    fn field(&self, field: &Field) -> Value<'_> {
        let start = usize::from(field.name().as_bytes().first().copied().unwrap_or(0) % 8) * 4;
        let bytes = self.0.get(start..).unwrap_or_default();
        let Some((kind, bytes)) = bytes.split_first() else { return Value::Null };
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        match kind % 8 {
            0 => Value::Null,
            1 => Value::Bool(word[0] & 1 == 1),
            2 => Value::Int(i64::from_be_bytes(word)),
            3 => Value::Int(i64::from(word[0] as i8)),
            4 => Value::Unsigned(u64::from_be_bytes(word)),
            5 => Value::Float(f64::from_be_bytes(word)),
            6 => Value::String(std::str::from_utf8(bytes).unwrap_or("abc")),
            _ => Value::Opaque,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let (message, text) = data.split_at(data.len().min(40));
    let Ok(text) = std::str::from_utf8(text) else { return };
    match Filter::parse(text) {
        Err(error) => assert!(text.is_char_boundary(error.position), "{error}"),
        Ok(filter) => {
            let message = Message(message);
            let truth = filter.evaluate(&message);
            assert_eq!(filter.matches(&message), truth == Truth::True);
            let printed = filter.to_string();
            match Filter::parse(&printed) {
                Ok(again) => {
                    assert_eq!(again, filter, "{text:?} printed as {printed:?}");
                    assert_eq!(again.evaluate(&message), truth);
                }
                // A text near a limit may print as one beyond it.
                Err(error) => assert!(text.len() > 1_000, "{text:?} printed as {printed:?}: {error}"),
            }
        }
    }
});
