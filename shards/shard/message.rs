//! What is a message, to a queue? Its encoded bytes as they came, and where in them the parts are that a broker reads.
//!
//! The bytes behind header and delivery annotations leave as they arrived (AMQP 1.0 §3.2: the bare message is immutable); only
//! the header is made anew for each delivery. Fields for selectors are read from the encoding when asked for; nothing is built.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use corelane_engine::selector::{self, Field, HeaderField};
use corelane_engine::{self as engine, DeadLetterReason};
use corelane_journal::{Origin, Position};
use corelane_wire::amqp10::{
    DecodeError, Encode, Header, Map, MapSection, MapWriter, Property, PropertyFields, Raw, Sections, Value,
};

use crate::amqp091::{self, Change};
use crate::body::Body;
use crate::buffers::Buffers;
use crate::dead_letter_paths::Stop;
use crate::dead_letters::Deaths;
use crate::death_records::Death;
use crate::limits::{ANNOTATION_PAIRS_MAX, ANNOTATIONS_BYTES_MAX};
use crate::mail::DeliveryCounts;
use crate::vhost;

/// The message annotations that say when a message is to be delivered: at a time, or after a while.
const DELIVERY_ANNOTATIONS: [&str; 2] = ["x-opt-delivery-time", "x-opt-delivery-delay"];

/// Memory of an entry and its message beside the message's bytes, rounded up.
const ENTRY_BYTES: usize = 128;

/// An encoded AMQP 1.0 message. It lies where it lies: what moves is its address.
#[derive(Debug)]
pub struct Message(Box<Content>);

/// What is known of a message.
#[derive(Debug)]
pub struct Content {
    body: Body,
    format: u32,
    /// Where the part that is passed on unchanged begins.
    onward: u32,
    /// Where the value of the properties section begins; 0 if there is none.
    properties: u32,
    /// Where the map of the application properties begins; 0 if there is none.
    application_properties: u32,
    /// When it was put into its queue; 0 before.
    pub(crate) enqueued_at: u64,
    /// Milliseconds; 0 if the header has none.
    ttl_ms: u32,
    /// Bytes of memory that it takes.
    counted: u32,
    priority: u8,
    durable: bool,
    /// Some of the properties are read by the broker itself (group, expiry).
    has_group: bool,
    has_expiry: bool,
    /// It says when it is to be delivered.
    is_scheduled: bool,
    /// It was published in 0-9-1: the part that is not passed on says how.
    pub(crate) is_basic: bool,
    /// It is an answer of management, for which there is memory of its own.
    pub(crate) is_answer: bool,
    /// When it is available, in microseconds; 0 before that is known, and for what is available at once.
    deliver_at: u64,
    /// It outlives the broker, in the queue that it is in.
    pub(crate) is_kept: bool,
    /// Outcomes have added to its annotations.
    pub(crate) is_annotated: bool,
    /// It was read from the journal, and may leave memory again.
    pub(crate) was_read: bool,
    /// It may have been delivered already from where it goes, before the broker was started.
    pub(crate) may_be_known: bool,
    /// Where what was written of it lies.
    pub(crate) position: Option<Position>,
    /// Where it was before it came from another shard.
    pub(crate) origin: Option<Box<Origin>>,
    /// Where it has died, if it is a dead letter.
    deaths: Option<Box<Deaths>>,
}

/// What is noted of an encoding.
struct Parts {
    onward: u32,
    properties: u32,
    application_properties: u32,
    header: Header,
    has_group: bool,
    has_expiry: bool,
    is_scheduled: bool,
    is_basic: bool,
}

impl Parts {
    fn of(bytes: &[u8]) -> Result<Self, DecodeError> {
        let sections = Sections::scan(bytes)?;
        let mut parts = Parts {
            onward: sections.onward().start as u32,
            properties: sections.properties.value_start(),
            application_properties: sections.application_properties.value_start(),
            header: sections.header(bytes)?,
            has_group: false,
            has_expiry: false,
            is_scheduled: false,
            is_basic: false,
        };
        if sections.delivery_annotations.is_present() {
            parts.is_basic = amqp091::is_basic(&bytes[..parts.onward as usize]);
        }
        if sections.properties.is_present() {
            let properties = sections.properties(bytes)?;
            // What was published in 0-9-1 has the name of its application there, by which nothing is grouped.
            parts.has_group = !parts.is_basic && properties.field(Property::GroupId)?.is_some();
            parts.has_expiry = properties.field(Property::AbsoluteExpiryTime)?.is_some();
        }
        if sections.application_properties.is_present() {
            sections.application_properties.map(bytes)?;
        }
        if sections.message_annotations.is_present() {
            let annotations = sections.message_annotations.map(bytes)?;
            let has = |name: &&str| annotations.find(name).is_ok_and(|value| value.is_some());
            parts.is_scheduled = DELIVERY_ANNOTATIONS.iter().any(has);
        }
        Ok(parts)
    }
}

impl Message {
    /// Finds the parts of a complete message; gives the bytes back if they are not one.
    pub(crate) fn new(bytes: Vec<u8>, format: u32) -> Result<Self, Vec<u8>> {
        Self::fill(None, bytes, format)
    }

    /// The same, where another one was.
    pub(crate) fn new_in(buffers: &mut Buffers, bytes: Vec<u8>, format: u32) -> Result<Self, Vec<u8>> {
        Self::fill(buffers.take_shell(), bytes, format)
    }

    /// What a peer has sent in 1.0. It cannot say that it was published in 0-9-1.
    #[inline(always)]
    pub(crate) fn received(buffers: &mut Buffers, bytes: Vec<u8>, format: u32) -> Result<Self, Vec<u8>> {
        let message = Self::new_in(buffers, bytes, format)?;
        if !message.is_basic {
            return Ok(message);
        }
        let claims = Sections::scan(message.bytes()).map(|sections| sections.delivery_annotations.range());
        let mut bytes = message.into_bytes();
        if let Ok(claims) = claims {
            bytes.drain(claims);
        }
        Self::new_in(buffers, bytes, format)
    }

    #[inline]
    fn fill(shell: Option<Box<Content>>, bytes: Vec<u8>, format: u32) -> Result<Self, Vec<u8>> {
        let Ok(parts) = Parts::of(&bytes) else { return Err(bytes) };
        let mut shell = shell.unwrap_or_else(|| Box::new(Content::empty()));
        shell.become_new(&parts, bytes, format);
        Ok(Message(shell))
    }

    /// The same with this body.
    fn with_body(mut self, change: impl FnOnce(Body) -> Body) -> Self {
        self.body = change(std::mem::take(&mut self.body));
        self
    }

    /// The vector of a message that is no entry of a queue; an empty one if others share it.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        debug_assert!(!self.body.is_shared(), "entries are dissolved, so that their body is accounted for");
        { self.0 }.body.into_bytes().unwrap_or_default()
    }

    /// The same message for another shard, or for someone here whose memory is not the queues'. Without what it has been through, which
    /// is in its annotations.
    pub(crate) fn copied(&self, buffers: &mut Buffers) -> Self {
        let body = self.body.copied(buffers);
        Message(Box::new(Content { body, origin: None, deaths: None, ..*self.0 }))
    }

    /// The same message for another queue. Somebody has seen to it: it may go again where its dead letters have been.
    pub(crate) fn moved(&self, buffers: &mut Buffers) -> Self {
        let mut copy = self.copied(buffers);
        copy.deaths = self.deaths.as_deref().map(|deaths| Box::new(deaths.attended()));
        copy
    }

    /// One that several shards can have.
    pub(crate) fn passed(self) -> Self {
        self.with_body(Body::passed)
    }

    /// One that several entries of this shard can have, which accounts for its body once.
    pub(crate) fn shared(self) -> Self {
        let counted = self.body_memory();
        self.with_body(|body| body.shared(counted))
    }

    /// Another handle to a message that is passed or shared.
    pub(crate) fn another(&self) -> Option<Self> {
        let body = self.body.another()?;
        Some(Message(Box::new(Content { body, origin: None, deaths: self.deaths.clone(), ..*self.0 })))
    }

    /// As it can travel, and the bytes that this shard has to count no more.
    pub(crate) fn taken_out(mut self) -> (Self, u64) {
        let (body, freed) = std::mem::take(&mut self.body).taken_out();
        self.body = body;
        (self, freed)
    }

    /// Gives it up: the bytes that this shard has to count no more, and the vector if nobody else has it.
    pub(crate) fn dissolved(mut self, buffers: &mut Buffers) -> (u64, Option<Vec<u8>>) {
        let parts = std::mem::take(&mut self.body).dissolved();
        // Whoever takes the shell gets nothing of it, and nothing is kept for that.
        (self.origin, self.deaths) = (None, None);
        buffers.give_shell(self.0);
        parts
    }

    /// AMQP 1.0 §3.4.5: adds annotations; those of the same name are replaced. Nothing is added if the message's annotations would take
    /// more than [`ANNOTATIONS_BYTES_MAX`], or the message so much more memory than there is left. The message as it was, if it has
    /// changed.
    #[must_use = "what it was has to be accounted for where it was counted"]
    pub(crate) fn annotate(&mut self, added: Map<'_>, memory_left: u64) -> Option<Message> {
        let sections = Sections::scan(self.bytes()).ok()?;
        let old = sections.message_annotations.map(self.bytes()).ok()?;
        if old.len().saturating_mul(added.len()) > ANNOTATION_PAIRS_MAX {
            return None;
        }
        let annotated = self.with_annotations(added, |key| !has_key(added, key))?;
        let annotations = Sections::scan(annotated.bytes()).ok()?.message_annotations.range().len();
        let more = annotated.memory().saturating_sub(self.memory());
        let fits = annotations <= ANNOTATIONS_BYTES_MAX && more <= memory_left;
        fits.then(|| {
            let before = self.become_annotated(annotated);
            self.is_annotated = true;
            before
        })
    }

    /// Notes who has sent it, in the message annotation `x-opt-sender`; of who has not said who it is, it says nothing.
    pub(crate) fn stamp_sender(&mut self, user: Option<&str>) {
        const SENDER: &str = "x-opt-sender";
        let mut bytes = Vec::new();
        let mut map = MapWriter::new(&mut bytes);
        if let Some(user) = user {
            map.symbol(SENDER, &Value::String(user));
        }
        map.finish();
        let claims = |message: &Message| {
            let annotations =
                Sections::scan(message.bytes()).and_then(|it| it.message_annotations.map(message.bytes()));
            annotations.is_ok_and(|map| map.iter().flatten().any(|(key, _)| key.as_str() == Some(SENDER)))
        };
        if let Ok(map) = Map::decode(&bytes)
            && (user.is_some() || claims(self))
        {
            // It is not counted yet; who shares its bytes holds on to them until it is stored everywhere.
            let annotated = self.with_annotations(map, |key| key.as_str() != Some(SENDER));
            drop(annotated.map(|annotated| self.become_annotated(annotated)));
        }
    }

    /// A message of the same parts with other annotations.
    fn with_annotations(&self, added: Map<'_>, is_kept: impl Fn(&Value<'_>) -> bool) -> Option<Message> {
        self.changed(&Change { is_kept, added, is_readdressed: false })
    }

    fn changed(&self, change: &Change<'_, impl Fn(&Value<'_>) -> bool>) -> Option<Message> {
        let sections = Sections::scan(self.bytes()).ok()?;
        let old = sections.message_annotations.map(self.bytes()).ok()?;
        let mut bytes = Vec::with_capacity(self.bytes().len() + change.added.elements().len() + 16);
        self.changed_head(change, &mut bytes);
        let mut section = MapWriter::section(&mut bytes, MapSection::MessageAnnotations);
        let kept = old.iter().flatten().filter(|(key, _)| (change.is_kept)(key));
        for (key, value) in kept.chain(change.added.iter().flatten()) {
            section.pair(&key, &value);
        }
        section.finish();
        let after = self.onward as usize + sections.message_annotations.range().len();
        bytes.extend_from_slice(&self.bytes()[after..]);
        Message::new(bytes, self.format).ok()
    }

    /// Takes over other annotations; what it was.
    #[must_use = "what it was has to be accounted for where it was counted"]
    fn become_annotated(&mut self, mut annotated: Message) -> Message {
        annotated.deliver_at = self.deliver_at;
        annotated.deaths = self.deaths.take();
        annotated.origin = self.origin.take();
        annotated.enqueued_at = self.enqueued_at;
        annotated.is_answer = self.is_answer;
        annotated.is_kept = self.is_kept;
        annotated.is_annotated = self.is_annotated;
        annotated.was_read = self.was_read;
        annotated.may_be_known = self.may_be_known;
        annotated.position = self.position;
        std::mem::replace(self, annotated)
    }

    /// Notes that it died in a queue, for itself and in its annotations: it may be counted with more than before. False: it goes round
    /// in a circle, as no consumer has rejected it since it was last on its way to `to`.
    pub(crate) fn die(&mut self, now: u64, queue: &str, reason: DeadLetterReason, to: Stop) -> bool {
        let (is_again, ttl) = (self.deaths.is_some(), if self.deaths.is_some() { 0 } else { self.ttl_ms });
        let mut deaths = self.deaths.take().unwrap_or_default();
        let goes_on = deaths.add(queue, reason, to);
        let mut bytes = Vec::new();
        let mut map = MapWriter::new(&mut bytes);
        deaths.encode(queue, reason, &mut map);
        Death { queue: vhost::plain(queue), reason, at: now, ttl, is_again }
            .encode(self.annotations(), &mut map);
        map.finish();
        self.deaths = Some(deaths);
        if let Ok(map) = Map::decode(&bytes) {
            // A dead letter has its bytes alone.
            let annotated = self.with_annotations(map, |key| !has_key(map, key));
            drop(annotated.map(|annotated| self.become_annotated(annotated)));
        }
        goes_on
    }

    /// It goes through an exchange, under another key if there is one. It is no longer routed by the keys of its headers then.
    pub(crate) fn readdress(&mut self, exchange: &str, routing_key: Option<&str>) {
        let mut bytes = Vec::new();
        let mut map = MapWriter::new(&mut bytes);
        map.symbol(amqp091::EXCHANGE, &exchange);
        if let Some(key) = routing_key {
            map.symbol(amqp091::ROUTING_KEY, &key);
        }
        map.finish();
        let Ok(added) = Map::decode(&bytes) else { return };
        let is_readdressed = routing_key.is_some();
        let goes =
            |key: &Value<'_>| is_readdressed && key.as_str() == Some(amqp091::CC) || has_key(added, key);
        let is_kept = |key: &Value<'_>| !goes(key);
        let changed = self.changed(&Change { is_kept, added, is_readdressed });
        drop(changed.map(|changed| self.become_annotated(changed)));
    }

    /// Its annotations are these.
    pub(crate) fn restore_annotations(&mut self, annotations: Map<'_>) {
        if let Some(annotated) = self.with_annotations(annotations, |_| false) {
            drop(self.become_annotated(annotated));
            self.is_annotated = true;
        }
    }
}

impl Deref for Message {
    type Target = Content;

    #[inline]
    fn deref(&self) -> &Content {
        &self.0
    }
}

impl DerefMut for Message {
    #[inline]
    fn deref_mut(&mut self) -> &mut Content {
        &mut self.0
    }
}

impl Content {
    /// A message without anything.
    fn empty() -> Self {
        Content {
            format: 0,
            onward: 0,
            properties: 0,
            application_properties: 0,
            enqueued_at: 0,
            ttl_ms: 0,
            counted: 0,
            priority: 0,
            durable: false,
            has_group: false,
            has_expiry: false,
            is_scheduled: false,
            is_basic: false,
            is_answer: false,
            deliver_at: 0,
            is_kept: false,
            is_annotated: false,
            was_read: false,
            may_be_known: false,
            position: None,
            origin: None,
            deaths: None,
            body: Body::default(),
        }
    }

    /// Becomes another message, in place.
    #[inline]
    fn become_new(&mut self, parts: &Parts, bytes: Vec<u8>, format: u32) {
        self.format = format;
        self.onward = parts.onward;
        self.properties = parts.properties;
        self.application_properties = parts.application_properties;
        self.enqueued_at = 0;
        self.ttl_ms = parts.header.ttl.unwrap_or(0);
        self.counted = u32::try_from(bytes.capacity() + ENTRY_BYTES).unwrap_or(u32::MAX);
        self.priority = parts.header.priority;
        self.durable = parts.header.durable;
        self.has_group = parts.has_group;
        self.has_expiry = parts.has_expiry;
        self.is_scheduled = parts.is_scheduled;
        self.is_basic = parts.is_basic;
        self.is_answer = false;
        self.deliver_at = 0;
        self.is_kept = false;
        self.is_annotated = false;
        self.was_read = false;
        self.may_be_known = false;
        self.position = None;
        debug_assert!(self.origin.is_none() && self.deaths.is_none(), "a shell is empty");
        self.body = Body::Own(bytes);
    }

    /// The whole encoding, as it was received.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.body.bytes()
    }

    /// Bytes it is counted with while it is in a queue, but for a body that is counted once for several entries.
    pub(crate) fn memory(&self) -> u64 {
        if self.body.is_shared() { ENTRY_BYTES as u64 } else { u64::from(self.counted) }
    }

    /// What its body is counted with, where it is shared.
    pub(crate) fn body_memory(&self) -> u64 {
        u64::from(self.counted).saturating_sub(ENTRY_BYTES as u64)
    }

    pub(crate) fn format(&self) -> u32 {
        self.format
    }

    pub(crate) fn priority(&self) -> u8 {
        self.priority
    }

    /// When the producer wants it gone: by its time to live from `now`, or at its expiry time, whichever is first. A dead letter has
    /// had that time.
    pub(crate) fn expires_at(&self, now: u64) -> Option<u64> {
        if self.deaths.is_some() {
            return None;
        }
        let by_ttl = (self.ttl_ms > 0).then(|| now + u64::from(self.ttl_ms) * 1000);
        let at_expiry = match self.has_expiry.then(|| self.property(Property::AbsoluteExpiryTime)) {
            // AMQP 1.0 §3.2.4; JMS clients send 0 for never.
            Some(Value::Timestamp(at)) if at > 0 => Some((at as u64).saturating_mul(1000)),
            Some(_) | None => None,
        };
        by_ttl.into_iter().chain(at_expiry).min()
    }

    /// When it is to be available, if that is later than `now`: by the annotations `x-opt-delivery-time` (milliseconds since the
    /// epoch), else `x-opt-delivery-delay` (milliseconds). A dead letter has had that time.
    pub(crate) fn schedule(&mut self, now: u64) -> Option<u64> {
        if !self.is_scheduled || self.deaths.is_some() {
            return None;
        }
        let sections = Sections::scan(self.bytes()).ok()?;
        let annotations = sections.message_annotations.map(self.bytes()).ok()?;
        let [time, delay] = DELIVERY_ANNOTATIONS.map(|name| {
            let milliseconds = annotations.find(name).ok().flatten().and_then(milliseconds);
            milliseconds.map(|milliseconds| milliseconds.saturating_mul(1000))
        });
        self.deliver_at = time.or_else(|| delay.map(|delay| now.saturating_add(delay)))?;
        Some(self.deliver_at).filter(|at| *at > now)
    }

    /// The value of an application property, such that equal values have equal bytes; none where it has none.
    pub(crate) fn key(&self, property: &str) -> Option<Box<[u8]>> {
        let value = self.application_property(property);
        let mut key = Vec::new();
        match for_selector(value) {
            selector::Value::Null => return None,
            selector::Value::Bool(value) => key.extend([b'b', u8::from(value)]),
            selector::Value::Int(value) => integer_key(&mut key, i128::from(value)),
            selector::Value::Unsigned(value) => integer_key(&mut key, i128::from(value)),
            // Exact below 2^53, and above it every value is whole: the cast keeps what there is.
            selector::Value::Float(value) if value.fract() == 0.0 => integer_key(&mut key, value as i128),
            selector::Value::Float(value) => {
                key.push(b'f');
                key.extend(value.to_bits().to_be_bytes());
            }
            selector::Value::String(text) => {
                key.push(b's');
                key.extend(text.as_bytes());
            }
            selector::Value::Opaque => {
                key.push(b'o');
                value.encode(&mut key);
            }
        }
        Some(key.into())
    }

    /// What it has been through, to be written; nothing, if it is no dead letter.
    pub(crate) fn encoded_deaths(&self) -> Bytes {
        self.deaths.as_ref().map(|deaths| deaths.saved()).unwrap_or_default()
    }

    /// The same, read again.
    pub(crate) fn restore_deaths(&mut self, saved: &[u8]) {
        self.deaths = Deaths::read(saved).map(Box::new);
    }

    /// Its message annotations, encoded as a map; nothing, if it has none.
    pub(crate) fn annotations(&self) -> &[u8] {
        let sections = Sections::scan(self.bytes());
        sections.map(|sections| sections.message_annotations.value(self.bytes())).unwrap_or_default()
    }

    /// It comes to a queue, which keeps it or not. What it was in another one does not count.
    pub(crate) fn arrive(&mut self, now: u64, is_kept: bool) {
        self.enqueued_at = now;
        self.is_kept = is_kept;
        self.is_annotated = false;
        self.was_read = false;
        self.position = None;
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durable
    }

    /// Until when its sender wants it held, of what its queue knows: nobody has it before, but after a failure.
    pub(crate) fn delayed_until(&self, held_until: Option<u64>, now: u64) -> Option<u64> {
        held_until.filter(|_| self.deliver_at > now)
    }

    pub(crate) fn is_dead_letter(&self) -> bool {
        self.deaths.is_some()
    }

    /// The queues that it has died in, for people.
    pub(crate) fn death_path(&self) -> String {
        self.deaths.as_ref().map(|deaths| deaths.path()).unwrap_or_default()
    }

    /// The address in the message's properties.
    pub(crate) fn to(&self) -> Option<&str> {
        self.property(Property::To).as_str()
    }

    /// The header of a delivery; nothing if it would say nothing but defaults.
    #[inline]
    pub(crate) fn encode_head(&self, head: &mut Vec<u8>, now: u64, counts: DeliveryCounts) {
        let remaining_ms = |at: u64| u32::try_from(at.saturating_sub(now).div_ceil(1000)).unwrap_or(u32::MAX);
        let header = Header {
            durable: self.durable,
            priority: self.priority,
            ttl: counts.expires_at.map(remaining_ms),
            first_acquirer: counts.first_acquirer,
            delivery_count: counts.delivery_count,
        };
        if header != Header::default() {
            header.encode(head);
        }
    }

    /// The part that every delivery passes on unchanged.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes()[self.onward as usize..]
    }

    /// The part that is not passed on: header and delivery annotations.
    #[inline]
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes()[..self.onward as usize]
    }

    /// A property, or nothing where that cannot be read.
    pub(crate) fn application_properties(&self) -> Map<'_> {
        let at = self.application_properties as usize;
        match Value::read(&mut corelane_wire::amqp10::Reader::new(&self.bytes()[at..])) {
            Ok(Value::Map(map)) if at > 0 => map,
            Ok(_) | Err(_) => Map::default(),
        }
    }

    pub(crate) fn property(&self, property: Property) -> Value<'_> {
        self.read_property(property).ok().flatten().unwrap_or(Value::Null)
    }

    pub(crate) fn read_property(&self, property: Property) -> Result<Option<Value<'_>>, DecodeError> {
        if self.properties == 0 {
            return Ok(None);
        }
        PropertyFields::new(&self.bytes()[self.properties as usize..])?.field(property)
    }

    fn application_property(&self, name: &str) -> Value<'_> {
        if self.application_properties == 0 {
            return Value::Null;
        }
        let mut reader =
            corelane_wire::amqp10::Reader::new(&self.bytes()[self.application_properties as usize..]);
        let map = match Raw::read(&mut reader).and_then(|raw| Map::decode(raw.bytes())) {
            Ok(map) => map,
            Err(_) => return Value::Null,
        };
        map.find(name).ok().flatten().unwrap_or(Value::Null)
    }
}

fn integer_key(key: &mut Vec<u8>, value: i128) {
    key.push(b'i');
    key.extend(value.to_be_bytes());
}

/// A time or a time span as an annotation has it; a negative one is long over.
fn milliseconds(value: Value<'_>) -> Option<u64> {
    match for_selector(value) {
        selector::Value::Int(value) => Some(u64::try_from(value).unwrap_or(0)),
        selector::Value::Unsigned(value) => Some(value),
        selector::Value::Null
        | selector::Value::Bool(_)
        | selector::Value::Float(_)
        | selector::Value::String(_)
        | selector::Value::Opaque => None,
    }
}

fn has_key(map: Map<'_>, key: &Value<'_>) -> bool {
    map.iter().flatten().any(|(other, _)| other == *key)
}

impl engine::Message for Message {
    fn enqueued_at(&self) -> u64 {
        self.enqueued_at
    }

    fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn size(&self) -> usize {
        self.bytes().len()
    }

    fn group(&self) -> Option<&str> {
        if !self.has_group {
            return None;
        }
        self.property(Property::GroupId).as_str().filter(|group| !group.is_empty())
    }

    fn field(&self, field: &Field) -> selector::Value<'_> {
        match field {
            Field::Property(name) => for_selector(self.application_property(name)),
            Field::Header(field) => self.header_field(*field),
        }
    }
}

impl Content {
    /// The JMS headers, as the AMQP JMS mapping has them (version 1.0, §3.2).
    fn header_field(&self, field: HeaderField) -> selector::Value<'_> {
        match field {
            HeaderField::Destination => for_selector(self.property(Property::To)),
            HeaderField::DeliveryMode => {
                selector::Value::String(if self.durable { "PERSISTENT" } else { "NON_PERSISTENT" })
            }
            HeaderField::Priority => selector::Value::Int(i64::from(self.priority)),
            HeaderField::MessageId => for_selector(self.property(Property::MessageId)),
            HeaderField::Timestamp => for_selector(self.property(Property::CreationTime)),
            HeaderField::CorrelationId => for_selector(self.property(Property::CorrelationId)),
            HeaderField::Type => for_selector(self.property(Property::Subject)),
            HeaderField::ReplyTo => for_selector(self.property(Property::ReplyTo)),
            HeaderField::Expiration => match self.property(Property::AbsoluteExpiryTime) {
                Value::Timestamp(at) => selector::Value::Int(at),
                _ => selector::Value::Int(0),
            },
            // What is not scheduled is delivered when it was sent.
            HeaderField::DeliveryTime if self.deliver_at > 0 => {
                selector::Value::Int(i64::try_from(self.deliver_at / 1000).unwrap_or(i64::MAX))
            }
            HeaderField::DeliveryTime => for_selector(self.property(Property::CreationTime)),
            // The engine answers for these two: they change when a message comes back.
            HeaderField::Redelivered | HeaderField::DeliveryCount => selector::Value::Null,
            HeaderField::GroupId => for_selector(self.property(Property::GroupId)),
            HeaderField::GroupSequence => for_selector(self.property(Property::GroupSequence)),
            HeaderField::UserId => match self.property(Property::UserId) {
                Value::Binary(user) => match std::str::from_utf8(user) {
                    Ok(user) => selector::Value::String(user),
                    Err(_) => selector::Value::Opaque,
                },
                _ => selector::Value::Null,
            },
        }
    }
}

/// An AMQP value as a selector sees it.
fn for_selector(value: Value<'_>) -> selector::Value<'_> {
    match value {
        Value::Null => selector::Value::Null,
        Value::Boolean(value) => selector::Value::Bool(value),
        Value::Ubyte(value) => selector::Value::Int(i64::from(value)),
        Value::Ushort(value) => selector::Value::Int(i64::from(value)),
        Value::Uint(value) => selector::Value::Int(i64::from(value)),
        Value::Ulong(value) => selector::Value::Unsigned(value),
        Value::Byte(value) => selector::Value::Int(i64::from(value)),
        Value::Short(value) => selector::Value::Int(i64::from(value)),
        Value::Int(value) => selector::Value::Int(i64::from(value)),
        Value::Long(value) | Value::Timestamp(value) => selector::Value::Int(value),
        Value::Float(value) => selector::Value::Float(f64::from(value)),
        Value::Double(value) => selector::Value::Float(value),
        Value::String(value) | Value::Symbol(value) => selector::Value::String(value),
        Value::Decimal32(_)
        | Value::Decimal64(_)
        | Value::Decimal128(_)
        | Value::Char(_)
        | Value::Uuid(_)
        | Value::Binary(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Array(_)
        | Value::Described(_) => selector::Value::Opaque,
    }
}
