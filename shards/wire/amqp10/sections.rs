//! Where in a message are its sections (§3.2)?
//!
//! One pass over the message notes where each section starts and ends and looks no further: compound values are passed
//! by their size. So a message is forwarded byte for byte, and a section is read only by whom it interests.
//!
//! `header ≤ delivery annotations ≤ message annotations ≤ properties ≤ application properties ≤ body ≤ footer`, each at
//! most once; only data and amqp-sequence sections repeat. A message without body is taken, and says so: `body_kind` is
//! `None` (§3.2 wants a body, but peers send messages without, and nothing here needs it).

use std::ops::Range;

use super::descriptor::{
    self, AMQP_SEQUENCE, AMQP_VALUE, APPLICATION_PROPERTIES, DATA, DELIVERY_ANNOTATIONS, FOOTER, HEADER,
    MESSAGE_ANNOTATIONS, PROPERTIES,
};
use super::error::DecodeError;
use super::properties::{Header, PropertyFields};
use super::reader::Reader;
use super::value::{Map, Value};

/// Where one section is in its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    start: u32,
    /// Where its value starts, behind the descriptor.
    value: u32,
    /// 0 if the section is absent.
    end: u32,
}

impl Section {
    #[inline]
    pub fn is_present(&self) -> bool {
        self.end != 0
    }

    /// The section from its descriptor to its end; empty if it is absent.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The section's bytes in the message that was scanned, descriptor included.
    #[inline]
    pub fn bytes<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        &message[self.range()]
    }

    /// Where the value behind the descriptor begins; 0 if the section is absent.
    #[inline]
    pub fn value_start(&self) -> u32 {
        self.value
    }

    /// The encoded value behind the descriptor.
    #[inline]
    pub fn value<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        &message[self.value as usize..self.end as usize]
    }

    /// Reads a section that is a map; an absent one is an empty map.
    #[inline]
    pub fn map<'a>(&self, message: &'a [u8]) -> Result<Map<'a>, DecodeError> {
        if !self.is_present() {
            return Ok(Map::default());
        }
        let mut reader = Reader::new(self.value(message));
        match reader.byte()? {
            code @ (0xc1 | 0xd1) => Map::read_data(code == 0xd1, &mut reader),
            code => Err(DecodeError::WrongType { field: "a section that is a map", code }),
        }
    }
}

/// What the body's sections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// One or more binaries (§3.2.6).
    Data,
    /// One or more lists (§3.2.7).
    Sequence,
    /// One value (§3.2.8).
    Value,
}

/// Where all sections of a message are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    pub header: Section,
    pub delivery_annotations: Section,
    pub message_annotations: Section,
    pub properties: Section,
    pub application_properties: Section,
    /// From the first body section's start to the last one's end.
    pub body: Section,
    /// `None`: the message has no body.
    pub body_kind: Option<BodyKind>,
    pub footer: Section,
    size: u32,
}

impl Sections {
    /// Finds the sections of a complete message.
    #[inline]
    pub fn scan(message: &[u8]) -> Result<Self, DecodeError> {
        let mut sections = Self::default();
        sections.find(message)?;
        Ok(sections)
    }

    /// Notes them where they stay: there are many, and most messages have few of them.
    #[inline(never)]
    fn find(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let Ok(size) = u32::try_from(message.len()) else { return Err(DecodeError::MessageTooLarge) };
        self.size = size;
        let mut reader = Reader::new(message);
        let mut previous = 0;
        while !reader.is_empty() {
            let start = size - reader.rest().len() as u32;
            let code = section_code(&mut reader)?;
            let value = size - reader.rest().len() as u32;
            pass_value(code, &mut reader)?;
            let section = Section { start, value, end: size - reader.rest().len() as u32 };
            if code <= previous {
                self.repeat(code, previous, section)?;
            } else {
                self.note(code, previous, section)?;
            }
            previous = code;
        }
        Ok(())
    }

    /// Notes a section that stands behind all of a lower code.
    #[inline]
    fn note(&mut self, code: u8, previous: u8, section: Section) -> Result<(), DecodeError> {
        match code {
            HEADER => self.header = section,
            DELIVERY_ANNOTATIONS => self.delivery_annotations = section,
            MESSAGE_ANNOTATIONS => self.message_annotations = section,
            PROPERTIES => self.properties = section,
            APPLICATION_PROPERTIES => self.application_properties = section,
            FOOTER => self.footer = section,
            _ if previous >= DATA => return Err(DecodeError::MixedBody { code }),
            _ => {
                self.body = section;
                self.body_kind = Some(match code {
                    DATA => BodyKind::Data,
                    AMQP_SEQUENCE => BodyKind::Sequence,
                    _ => BodyKind::Value,
                });
            }
        }
        Ok(())
    }

    /// Notes a section whose code is not above the previous one's: right only for data and amqp-sequence.
    #[inline]
    fn repeat(&mut self, code: u8, previous: u8, section: Section) -> Result<(), DecodeError> {
        if code == previous && matches!(code, DATA | AMQP_SEQUENCE) {
            self.body.end = section.end;
            return Ok(());
        }
        let body = DATA..=AMQP_VALUE;
        if body.contains(&code) && body.contains(&previous) {
            Err(DecodeError::MixedBody { code })
        } else {
            Err(DecodeError::SectionOutOfOrder { code })
        }
    }

    /// Bytes of the whole message.
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The bare message, which nobody may change on its way: properties, application properties and body (§3.2).
    #[inline]
    pub fn bare(&self) -> Range<usize> {
        let start = self.header.end.max(self.delivery_annotations.end).max(self.message_annotations.end);
        let end = if self.footer.is_present() { self.footer.start } else { self.size };
        start as usize..end as usize
    }

    /// Everything behind header and delivery annotations: what an intermediary passes on as it is.
    #[inline]
    pub fn onward(&self) -> Range<usize> {
        self.header.end.max(self.delivery_annotations.end) as usize..self.size as usize
    }

    /// Reads the header; the defaults if there is none.
    #[inline]
    pub fn header(&self, message: &[u8]) -> Result<Header, DecodeError> {
        if self.header.is_present() {
            Header::decode(self.header.value(message))
        } else {
            Ok(Header::default())
        }
    }

    /// The properties, still encoded; without fields if there are none.
    #[inline]
    pub fn properties<'a>(&self, message: &'a [u8]) -> Result<PropertyFields<'a>, DecodeError> {
        if self.properties.is_present() {
            PropertyFields::new(self.properties.value(message))
        } else {
            Ok(PropertyFields::default())
        }
    }

    /// The value of an application property.
    pub fn application_property<'a>(
        &self,
        message: &'a [u8],
        key: &str,
    ) -> Result<Option<Value<'a>>, DecodeError> {
        self.application_properties.map(message)?.find(key)
    }

    /// The value of a message annotation.
    pub fn message_annotation<'a>(
        &self,
        message: &'a [u8],
        key: &str,
    ) -> Result<Option<Value<'a>>, DecodeError> {
        self.message_annotations.map(message)?.find(key)
    }

    /// The value of a delivery annotation.
    pub fn delivery_annotation<'a>(
        &self,
        message: &'a [u8],
        key: &str,
    ) -> Result<Option<Value<'a>>, DecodeError> {
        self.delivery_annotations.map(message)?.find(key)
    }

    /// The values of the body's sections in order.
    pub fn body_values<'a>(&self, message: &'a [u8]) -> BodyValues<'a> {
        BodyValues { reader: Reader::new(self.body.bytes(message)) }
    }
}

/// The values of the body's sections in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct BodyValues<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for BodyValues<'a> {
    type Item = Result<Value<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let value = section_code(&mut self.reader).and_then(|_| Value::read(&mut self.reader));
        if value.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(value)
    }
}

#[inline]
fn section_code(reader: &mut Reader<'_>) -> Result<u8, DecodeError> {
    const EXPECTED: &str = "a message section";
    match descriptor::read_code(reader, EXPECTED)? {
        Some(code @ 0x70..=0x78) => Ok(code as u8),
        code => Err(DecodeError::UnexpectedDescriptor { expected: EXPECTED, code }),
    }
}

/// Passes a section's value, which must have the section's type.
#[inline]
fn pass_value(code: u8, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let constructor = reader.peek().ok_or(DecodeError::Truncated)?;
    let (fits, field) = match code {
        HEADER => (matches!(constructor, 0x45 | 0xc0 | 0xd0), "header"),
        PROPERTIES => (matches!(constructor, 0x45 | 0xc0 | 0xd0), "properties"),
        AMQP_SEQUENCE => (matches!(constructor, 0x45 | 0xc0 | 0xd0), "amqp-sequence"),
        DATA => (matches!(constructor, 0xa0 | 0xb0), "data"),
        DELIVERY_ANNOTATIONS => (matches!(constructor, 0xc1 | 0xd1), "delivery-annotations"),
        MESSAGE_ANNOTATIONS => (matches!(constructor, 0xc1 | 0xd1), "message-annotations"),
        APPLICATION_PROPERTIES => (matches!(constructor, 0xc1 | 0xd1), "application-properties"),
        FOOTER => (matches!(constructor, 0xc1 | 0xd1), "footer"),
        _ => (true, "amqp-value"),
    };
    if !fits {
        return Err(DecodeError::WrongType { field, code: constructor });
    }
    reader.skip_value()?;
    Ok(())
}
