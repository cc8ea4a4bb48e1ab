//! How does a JSON object become a field table? Numbers are 64-bit integers or doubles, null is void.

use corelane_wire::amqp091::{FieldValue, ShortStr, TableWriter};
use serde_json::Value;

/// The table of these pairs, encoded. What cannot be said so is told.
pub(super) fn encoded<'a>(
    pairs: impl Iterator<Item = (impl AsRef<str>, &'a Value)>,
) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut writer = TableWriter::new(&mut bytes);
    for (name, value) in pairs {
        let name = name.as_ref();
        let Some(short) = ShortStr::new(name.as_bytes()) else {
            return Err(format!("the name of argument {name:?} is too long"));
        };
        let value = match value {
            Value::Null => FieldValue::Void,
            Value::Bool(flag) => FieldValue::Boolean(*flag),
            Value::String(text) => FieldValue::LongString(text.as_bytes()),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => FieldValue::Int64(number),
                (None, Some(number)) => FieldValue::Double(number),
                (None, None) => return Err(format!("argument {name:?} is no number that can be said")),
            },
            Value::Array(_) | Value::Object(_) => {
                return Err(format!(
                    "argument {name:?} is a list or a table; allowed: text, numbers, true, false"
                ));
            }
        };
        writer.pair(short, value);
    }
    Ok(bytes)
}
