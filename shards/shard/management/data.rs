//! What does management say, before it is encoded? Values that own what they hold, so that one shard can send them to another.

use std::borrow::Cow;

use corelane_wire::amqp10::{Encode, ListWriter, MapWriter, Value};

/// A value of a request or an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Data {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'static, str>),
    List(Vec<Data>),
    Map(Pairs),
    /// A value of a message, as it is encoded there.
    Encoded(Box<[u8]>),
}

/// The pairs of a map, in order.
pub(crate) type Pairs = Vec<(Cow<'static, str>, Data)>;

impl Data {
    pub(crate) fn count(number: u64) -> Data {
        Data::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(crate) fn text(text: impl Into<Cow<'static, str>>) -> Data {
        Data::Text(text.into())
    }

    /// About how many bytes it takes when it is encoded.
    pub(crate) fn size(&self) -> usize {
        match self {
            Data::Null | Data::Bool(_) => 1,
            Data::Int(_) | Data::Float(_) => 9,
            Data::Text(text) => 5 + text.len(),
            Data::List(items) => 9 + items.iter().map(Data::size).sum::<usize>(),
            Data::Map(pairs) => size_of_pairs(pairs),
            Data::Encoded(bytes) => bytes.len(),
        }
    }

    /// The value as it is encoded, whatever it is.
    pub(crate) fn encoded(value: &Value<'_>) -> Data {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        Data::Encoded(bytes.into())
    }
}

/// About how many bytes a map of these takes when it is encoded.
pub(crate) fn size_of_pairs(pairs: &Pairs) -> usize {
    9 + pairs.iter().map(|(key, value)| 5 + key.len() + value.size()).sum::<usize>()
}

impl<T: Into<Data>> From<Option<T>> for Data {
    fn from(value: Option<T>) -> Self {
        value.map_or(Data::Null, Into::into)
    }
}

impl From<bool> for Data {
    fn from(value: bool) -> Self {
        Data::Bool(value)
    }
}

impl From<u64> for Data {
    fn from(value: u64) -> Self {
        Data::count(value)
    }
}

impl From<u32> for Data {
    fn from(value: u32) -> Self {
        Data::Int(i64::from(value))
    }
}

impl From<usize> for Data {
    fn from(value: usize) -> Self {
        Data::count(value as u64)
    }
}

impl From<i32> for Data {
    fn from(value: i32) -> Self {
        Data::Int(i64::from(value))
    }
}

impl From<&'static str> for Data {
    fn from(value: &'static str) -> Self {
        Data::Text(Cow::Borrowed(value))
    }
}

impl From<String> for Data {
    fn from(value: String) -> Self {
        Data::Text(Cow::Owned(value))
    }
}

impl Encode for Data {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Data::Null => Value::Null.encode(out),
            Data::Bool(value) => value.encode(out),
            Data::Int(value) => value.encode(out),
            Data::Float(value) => Value::Double(*value).encode(out),
            Data::Text(text) => (&**text).encode(out),
            Data::List(items) => {
                let mut list = ListWriter::new(out);
                for item in items {
                    list.field(item);
                }
                list.finish();
            }
            Data::Map(pairs) => {
                let mut map = MapWriter::new(out);
                for (key, value) in pairs {
                    map.pair(&&**key, value);
                }
                map.finish();
            }
            Data::Encoded(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// Puts a map together: `pairs!["name" => value, …]`.
macro_rules! pairs {
    ($($key:expr => $value:expr),* $(,)?) => {
        vec![$((std::borrow::Cow::Borrowed($key), $crate::management::data::Data::from($value))),*]
    };
}
pub(crate) use pairs;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_reads_the_same() {
        let inner = pairs!["one" => 1_u32, "none" => None::<u32>, "yes" => true];
        let data =
            Data::List(vec![Data::Map(inner), Data::text("words"), Data::Float(0.5), Data::List(Vec::new())]);
        let mut bytes = Vec::new();
        data.encode(&mut bytes);
        assert!((bytes.len()..2 * bytes.len()).contains(&data.size()), "{} {}", bytes.len(), data.size());
        let Ok(Value::List(list)) = Value::decode(&bytes) else { panic!("a list") };
        let items: Vec<Value<'_>> = list.iter().map(Result::unwrap).collect();
        let [Value::Map(map), Value::String("words"), Value::Double(_), Value::List(empty)] = items[..]
        else {
            panic!("{items:?}")
        };
        assert_eq!(map.find("one").unwrap().and_then(|value| value.as_i64()), Some(1));
        assert_eq!(map.find("none").unwrap(), Some(Value::Null));
        assert_eq!(map.find("yes").unwrap(), Some(Value::Boolean(true)));
        assert!(empty.is_empty());
    }
}
