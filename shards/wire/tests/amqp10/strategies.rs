//! How do random values, performatives and messages come about?
//!
//! The codec's types borrow; what they borrow from is leaked here, which a test may.

use corelane_wire::amqp10::{
    Attach, Begin, Close, Coordinator, DeliveryState, Detach, Disposition, DistributionMode, Encode, End,
    Error, ExpiryPolicy, Flow, Header, ListWriter, Map, MapWriter, MessageId, Modified, Open, Outcome,
    Performative, Properties, Received, ReceiverSettleMode, Role, SaslChallenge, SaslCode, SaslInit,
    SaslMechanisms, SaslOutcome, SaslPerformative, SaslResponse, SenderSettleMode, Source, Symbols, Target,
    TargetArchetype, TerminusDurability, Transfer, Value,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

pub(crate) fn text() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => "\\PC{0,12}", 1 => "[a-z]{256,260}"].prop_map(|text| &*text.leak())
}

pub(crate) fn symbol() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => "[ -~]{0,12}", 1 => "[a-z]{256,260}"].prop_map(|text| &*text.leak())
}

pub(crate) fn binary() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![8 => vec(any::<u8>(), 0..12), 1 => vec(any::<u8>(), 256..260)]
        .prop_map(|bytes| &*bytes.leak())
}

pub(crate) fn symbols() -> impl Strategy<Value = Symbols<'static>> {
    vec(symbol(), 0..4).prop_map(|symbols| Symbols::new(symbols.leak()))
}

/// Small numbers, whose encodings differ, as often as large ones.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 1..=0xff_u32, any::<u32>()]
}

/// Values that are not compound, with the encodings of all of them.
pub(crate) fn simple_value() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<u8>().prop_map(Value::Ubyte),
        any::<u16>().prop_map(Value::Ushort),
        number().prop_map(Value::Uint),
        prop_oneof![number().prop_map(u64::from), any::<u64>()].prop_map(Value::Ulong),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        prop_oneof![-130..130, any::<i32>()].prop_map(Value::Int),
        prop_oneof![-130..130_i64, any::<i64>()].prop_map(Value::Long),
        any::<i32>().prop_map(|number| Value::Float(number as f32)),
        any::<i64>().prop_map(|number| Value::Double(number as f64)),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<[u8; 8]>().prop_map(Value::Decimal64),
        any::<[u8; 16]>().prop_map(Value::Decimal128),
        any::<char>().prop_map(Value::Char),
        any::<i64>().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        binary().prop_map(Value::Binary),
        text().prop_map(Value::String),
        symbol().prop_map(Value::Symbol),
    ]
}

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Value<'static> {
    let mut out = Vec::new();
    write(&mut out);
    Value::decode(out.leak()).expect("what was just written")
}

fn list(values: &[Value<'_>]) -> Value<'static> {
    encoded(|out| {
        let mut list = ListWriter::new(out);
        values.iter().for_each(|value| list.field(value));
        list.finish();
    })
}

/// Values of any type, nested some levels deep. Keys of a map differ.
pub(crate) fn value() -> BoxedStrategy<Value<'static>> {
    value_with_arrays_from(0)
}

/// The same with a minimum for the elements of arrays.
pub(crate) fn value_with_arrays_from(least: usize) -> BoxedStrategy<Value<'static>> {
    let nested = simple_value().prop_recursive(4, 24, 5, move |inner| {
        let descriptor = prop_oneof![any::<u64>().prop_map(Value::Ulong), symbol().prop_map(Value::Symbol)];
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(|values| list(&values)),
            vec((simple_value(), inner.clone()), 0..4).prop_map(|pairs| map_of(&pairs)),
            (descriptor, inner).prop_map(|(descriptor, value)| described(&descriptor, &value)),
            vec(binary(), least..4).prop_map(|elements| wide_array(&elements)),
        ]
    });
    nested.boxed()
}

fn map_of(pairs: &[(Value<'_>, Value<'_>)]) -> Value<'static> {
    let mut keys = Vec::new();
    encoded(|out| {
        let mut map = MapWriter::new(out);
        for (key, value) in pairs {
            if !keys.contains(key) {
                keys.push(*key);
                map.pair(key, value);
            }
        }
        map.finish();
    })
}

fn described(descriptor: &Value<'_>, value: &Value<'_>) -> Value<'static> {
    encoded(|out| {
        out.push(0);
        descriptor.encode(out);
        value.encode(out);
    })
}

/// An array of binary, wide in all respects (§1.6.24).
fn wide_array(elements: &[&[u8]]) -> Value<'static> {
    let wide = |size: usize| u32::try_from(size).expect("small").to_be_bytes();
    encoded(|out| {
        let size: usize = elements.iter().map(|element| element.len() + 4).sum();
        out.push(0xf0);
        out.extend_from_slice(&wide(size + 5));
        out.extend_from_slice(&wide(elements.len()));
        out.push(0xb0);
        for element in elements {
            out.extend_from_slice(&wide(element.len()));
            out.extend_from_slice(element);
        }
    })
}

/// Maps with symbols as keys: fields, annotations. The keys differ.
pub(crate) fn map() -> BoxedStrategy<Map<'static>> {
    vec((symbol(), simple_value()), 0..4)
        .prop_map(|pairs| {
            let mut out = Vec::new();
            let mut map = MapWriter::new(&mut out);
            for (index, (key, value)) in pairs.iter().enumerate() {
                map.symbol(&format!("{index}{key}"), value);
            }
            map.finish();
            Map::decode(out.leak()).expect("what was just written")
        })
        .boxed()
}

pub(crate) fn error() -> impl Strategy<Value = Error<'static>> {
    let condition = prop_oneof![Just("amqp:not-found"), Just("amqp:link:stolen"), Just("x:own-condition")];
    (condition, of(text()), of(map())).prop_map(|(condition, description, info)| Error {
        condition,
        description,
        info,
    })
}

pub(crate) fn outcome() -> BoxedStrategy<Outcome<'static>> {
    prop_oneof![
        Just(Outcome::Accepted),
        of(error()).prop_map(|error| Outcome::Rejected { error }),
        Just(Outcome::Released),
        (any::<bool>(), any::<bool>(), of(map())).prop_map(
            |(delivery_failed, undeliverable_here, message_annotations)| {
                Outcome::Modified(Modified { delivery_failed, undeliverable_here, message_annotations })
            }
        ),
        binary().prop_map(|transaction| Outcome::Declared { transaction }),
    ]
    .boxed()
}

pub(crate) fn state() -> BoxedStrategy<DeliveryState<'static>> {
    prop_oneof![
        outcome().prop_map(DeliveryState::from),
        (number(), any::<u64>()).prop_map(|(section_number, section_offset)| {
            DeliveryState::Received(Received { section_number, section_offset })
        }),
        (binary(), of(outcome()))
            .prop_map(|(transaction, outcome)| DeliveryState::Transactional { transaction, outcome }),
    ]
    .boxed()
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Sender), Just(Role::Receiver)]
}

fn rcv_settle_mode() -> impl Strategy<Value = ReceiverSettleMode> {
    prop_oneof![Just(ReceiverSettleMode::First), Just(ReceiverSettleMode::Second)]
}

fn snd_settle_mode() -> impl Strategy<Value = SenderSettleMode> {
    prop_oneof![
        Just(SenderSettleMode::Unsettled),
        Just(SenderSettleMode::Settled),
        Just(SenderSettleMode::Mixed)
    ]
}

fn open() -> BoxedStrategy<Open<'static>> {
    let limits = (text(), of(text()), any::<u32>(), any::<u16>(), of(number()));
    (limits, symbols(), symbols(), symbols(), symbols(), of(map()))
        .prop_map(|(limits, out, inc, off, des, map)| Open {
            container_id: limits.0,
            hostname: limits.1,
            max_frame_size: limits.2,
            channel_max: limits.3,
            idle_time_out: limits.4,
            outgoing_locales: out,
            incoming_locales: inc,
            offered_capabilities: off,
            desired_capabilities: des,
            properties: map,
        })
        .boxed()
}

fn begin() -> BoxedStrategy<Begin<'static>> {
    let windows = (of(any::<u16>()), number(), number(), number(), number());
    (windows, symbols(), symbols(), of(map()))
        .prop_map(|(windows, offered, desired, properties)| Begin {
            remote_channel: windows.0,
            next_outgoing_id: windows.1,
            incoming_window: windows.2,
            outgoing_window: windows.3,
            handle_max: windows.4,
            offered_capabilities: offered,
            desired_capabilities: desired,
            properties,
        })
        .boxed()
}

fn durability() -> impl Strategy<Value = TerminusDurability> {
    prop_oneof![
        Just(TerminusDurability::None),
        Just(TerminusDurability::Configuration),
        Just(TerminusDurability::UnsettledState)
    ]
}

fn expiry_policy() -> impl Strategy<Value = ExpiryPolicy> {
    prop_oneof![
        Just(ExpiryPolicy::LinkDetach),
        Just(ExpiryPolicy::SessionEnd),
        Just(ExpiryPolicy::ConnectionClose),
        Just(ExpiryPolicy::Never)
    ]
}

pub(crate) fn source() -> BoxedStrategy<Source<'static>> {
    let mode = prop_oneof![Just(DistributionMode::Move), Just(DistributionMode::Copy)];
    let life = (durability(), expiry_policy(), number(), any::<bool>(), of(map()));
    // A declared transaction is no outcome a source has.
    let outcome =
        outcome().prop_filter("of messages", |outcome| !matches!(outcome, Outcome::Declared { .. }));
    (of(text()), life, of(mode), of(map()), of(outcome), symbols(), symbols())
        .prop_map(|(address, life, distribution_mode, filter, default_outcome, outcomes, capabilities)| {
            Source {
                address,
                durable: life.0,
                expiry_policy: life.1,
                timeout: life.2,
                dynamic: life.3,
                dynamic_node_properties: life.4,
                distribution_mode,
                filter,
                default_outcome,
                outcomes,
                capabilities,
            }
        })
        .boxed()
}

pub(crate) fn target() -> BoxedStrategy<TargetArchetype<'static>> {
    let life = (durability(), expiry_policy(), number(), any::<bool>(), of(map()));
    let target = (of(text()), life, symbols()).prop_map(|(address, life, capabilities)| {
        TargetArchetype::Target(Target {
            address,
            durable: life.0,
            expiry_policy: life.1,
            timeout: life.2,
            dynamic: life.3,
            dynamic_node_properties: life.4,
            capabilities,
        })
    });
    let capability = prop_oneof![Just("amqp:local-transactions"), Just("amqp:multi-txns-per-ssn")];
    let coordinator = vec(capability, 0..3).prop_map(|capabilities| {
        TargetArchetype::Coordinator(Coordinator { capabilities: Symbols::new(capabilities.leak()) })
    });
    prop_oneof![3 => target, 1 => coordinator].boxed()
}

fn attach() -> BoxedStrategy<Attach<'static>> {
    let link = (text(), number(), role(), snd_settle_mode(), rcv_settle_mode());
    let unsettled = (vec((binary(), of(state())), 0..3), any::<bool>()).prop_map(|(states, incomplete)| {
        let mut out = Vec::new();
        let mut map = MapWriter::new(&mut out);
        for (index, (tag, state)) in states.iter().enumerate() {
            let tag = [&[index as u8], *tag].concat();
            match state {
                Some(state) => map.pair(&tag.as_slice(), state),
                None => map.pair(&tag.as_slice(), &Value::Null),
            }
        }
        map.finish();
        (Map::decode(out.leak()).expect("what was just written"), incomplete)
    });
    let rest = (of(number()), of(any::<u64>()), symbols(), symbols(), of(map()));
    (link, of(source()), of(target()), of(unsettled), rest)
        .prop_map(|(link, source, target, unsettled, rest)| Attach {
            name: link.0,
            handle: link.1,
            role: link.2,
            snd_settle_mode: link.3,
            rcv_settle_mode: link.4,
            source,
            target,
            unsettled: unsettled.map(|unsettled| unsettled.0),
            incomplete_unsettled: unsettled.is_some_and(|unsettled| unsettled.1),
            initial_delivery_count: rest.0,
            max_message_size: rest.1,
            offered_capabilities: rest.2,
            desired_capabilities: rest.3,
            properties: rest.4,
        })
        .boxed()
}

fn flow() -> BoxedStrategy<Flow<'static>> {
    let session = (of(number()), number(), number(), number());
    let link = (of(number()), of(number()), of(number()), of(number()));
    (session, link, any::<bool>(), any::<bool>(), of(map()))
        .prop_map(|(session, link, drain, echo, properties)| Flow {
            next_incoming_id: session.0,
            incoming_window: session.1,
            next_outgoing_id: session.2,
            outgoing_window: session.3,
            handle: link.0,
            delivery_count: link.1,
            link_credit: link.2,
            available: link.3,
            drain,
            echo,
            properties,
        })
        .boxed()
}

pub(crate) fn transfer() -> BoxedStrategy<Transfer<'static>> {
    let tag = vec(any::<u8>(), 0..=32).prop_map(|tag| &*tag.leak());
    let head = (number(), of(number()), of(tag), of(number()), of(any::<bool>()));
    (head, of(rcv_settle_mode()), of(state()), any::<[bool; 4]>())
        .prop_map(|(head, rcv_settle_mode, state, [more, resume, aborted, batchable])| Transfer {
            handle: head.0,
            delivery_id: head.1,
            delivery_tag: head.2,
            message_format: head.3,
            settled: head.4,
            more,
            rcv_settle_mode,
            state,
            resume,
            aborted,
            batchable,
        })
        .boxed()
}

fn disposition() -> BoxedStrategy<Disposition<'static>> {
    (role(), number(), of(number()), any::<bool>(), of(state()), any::<bool>())
        .prop_map(|(role, first, last, settled, state, batchable)| Disposition {
            role,
            first,
            last,
            settled,
            state,
            batchable,
        })
        .boxed()
}

pub(crate) fn performative() -> impl Strategy<Value = Performative<'static>> {
    prop_oneof![
        open().prop_map(Performative::Open),
        begin().prop_map(Performative::Begin),
        attach().prop_map(Performative::Attach),
        flow().prop_map(Performative::Flow),
        transfer().prop_map(Performative::Transfer),
        disposition().prop_map(Performative::Disposition),
        (number(), any::<bool>(), of(error()))
            .prop_map(|(handle, closed, error)| Performative::Detach(Detach { handle, closed, error })),
        of(error()).prop_map(|error| Performative::End(End { error })),
        of(error()).prop_map(|error| Performative::Close(Close { error })),
    ]
}

pub(crate) fn sasl() -> impl Strategy<Value = SaslPerformative<'static>> {
    let code = prop_oneof![
        Just(SaslCode::Ok),
        Just(SaslCode::Auth),
        Just(SaslCode::Sys),
        Just(SaslCode::SysPerm),
        Just(SaslCode::SysTemp)
    ];
    prop_oneof![
        vec(symbol(), 1..4).prop_map(|mechanisms| {
            SaslPerformative::Mechanisms(SaslMechanisms { mechanisms: Symbols::new(mechanisms.leak()) })
        }),
        (symbol(), of(binary()), of(text())).prop_map(|(mechanism, initial_response, hostname)| {
            SaslPerformative::Init(SaslInit { mechanism, initial_response, hostname })
        }),
        binary().prop_map(|challenge| SaslPerformative::Challenge(SaslChallenge { challenge })),
        binary().prop_map(|response| SaslPerformative::Response(SaslResponse { response })),
        (code, of(binary())).prop_map(|(code, additional_data)| {
            SaslPerformative::Outcome(SaslOutcome { code, additional_data })
        }),
    ]
}

pub(crate) fn header() -> impl Strategy<Value = Header> {
    (any::<bool>(), any::<u8>(), of(number()), any::<bool>(), number()).prop_map(
        |(durable, priority, ttl, first_acquirer, delivery_count)| Header {
            durable,
            priority,
            ttl,
            first_acquirer,
            delivery_count,
        },
    )
}

fn message_id() -> impl Strategy<Value = MessageId<'static>> {
    prop_oneof![
        any::<u64>().prop_map(MessageId::Ulong),
        any::<[u8; 16]>().prop_map(MessageId::Uuid),
        binary().prop_map(MessageId::Binary),
        text().prop_map(MessageId::String),
    ]
}

pub(crate) fn properties() -> BoxedStrategy<Properties<'static>> {
    let identity = (of(message_id()), of(binary()), of(text()), of(text()), of(text()));
    let content = (of(message_id()), of(symbol()), of(symbol()), of(any::<i64>()), of(any::<i64>()));
    (identity, content, of(text()), of(number()), of(text()))
        .prop_map(|(identity, content, group_id, group_sequence, reply_to_group_id)| Properties {
            message_id: identity.0,
            user_id: identity.1,
            to: identity.2,
            subject: identity.3,
            reply_to: identity.4,
            correlation_id: content.0,
            content_type: content.1,
            content_encoding: content.2,
            absolute_expiry_time: content.3,
            creation_time: content.4,
            group_id,
            group_sequence,
            reply_to_group_id,
        })
        .boxed()
}
