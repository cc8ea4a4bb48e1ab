//! Tables of performatives, delivery states, termini and SASL frames and their encodings.

use corelane_wire::amqp10::{
    Attach, Begin, Close, Coordinator, Declare, DecodeError, DeliveryState, Detach, Discharge, Disposition,
    DistributionMode, Encode, End, Error, ExpiryPolicy, Flow, LifetimePolicy, Map, Modified, Open, Outcome,
    Performative, Raw, Reader, Received, ReceiverSettleMode, Role, SaslChallenge, SaslCode, SaslInit,
    SaslMechanisms, SaslOutcome, SaslPerformative, SaslResponse, SenderSettleMode, Source, Symbols, Target,
    TargetArchetype, TerminusDurability, TransactionRequest, Transfer, Value,
};

use crate::bytes;

/// The encoding reads as the performative, and is what it is written as.
fn check(encoding: &str, performative: Performative<'_>) {
    check_read(encoding, performative);
    let mut out = Vec::new();
    performative.encode(&mut out);
    assert_eq!(out, bytes(encoding), "{performative:?} encodes as {encoding}");
}

/// The encoding reads as the performative. Every prefix of it is an error.
fn check_read(encoding: &str, performative: Performative<'_>) {
    let mut input = bytes(encoding);
    for end in 0..input.len() {
        assert_eq!(
            Performative::decode(&input[..end]),
            Err(DecodeError::Truncated),
            "{encoding} cut at {end}"
        );
    }
    input.extend_from_slice(b"payload");
    let expected = (performative, b"payload".as_slice());
    assert_eq!(Performative::decode(&input), Ok(expected), "{encoding}");
}

fn check_error(encoding: &str, error: DecodeError) {
    assert_eq!(Performative::decode(&bytes(encoding)), Err(error), "{encoding}");
    assert!(!error.to_string().is_empty());
}

#[test]
fn open() {
    // §2.7.1: all but the container id may be left out.
    let least = Open { container_id: "c", ..Open::default() };
    check("00 53 10 c0 04 01 a1 01 'c'", Performative::Open(least));
    // §1.5, §1.3: other encodings of descriptor and list.
    check_read("00 80 00 00 00 00 00 00 00 10 c0 04 01 a1 01 'c'", Performative::Open(least));
    check_read("00 a3 0e 'amqp:open:list' d0 00 00 00 07 00 00 00 01 a1 01 'c'", Performative::Open(least));
    // Nulls at the end take their defaults like fields left out.
    check_read("00 53 10 c0 0d 0a a1 01 'c' 40 40 40 40 40 40 40 40 40", Performative::Open(least));
    let full = Open {
        container_id: "c",
        hostname: Some("h"),
        max_frame_size: 65_536,
        channel_max: 255,
        idle_time_out: Some(0),
        outgoing_locales: Symbols::new(&["en-US"]),
        incoming_locales: Symbols::default(),
        offered_capabilities: Symbols::new(&["a", "b"]),
        desired_capabilities: Symbols::default(),
        properties: Some(Map::default()),
    };
    check(
        "00 53 10 c0 [0a a1 01 'c' a1 01 'h' 70 00 01 00 00 60 00 ff 43 a3 05 'en-US' 40
         e0 [02 a3 01 'a' 01 'b'] 40 c1 01 00]",
        Performative::Open(full),
    );
    check_error("00 53 10 45", DecodeError::MissingField { field: "open.container-id" });
    check_error("00 53 10 c0 02 01 40", DecodeError::MissingField { field: "open.container-id" });
    check_error("00 53 10 c0 03 01 a0 00", DecodeError::WrongType { field: "open.container-id", code: 0xa0 });
    check_error("00 53 10 c1 01 00", DecodeError::WrongType { field: "open", code: 0xc1 });
    check_error("00 53 10 c0 03 02 a1 00", DecodeError::Truncated);
    check_error("00 53 10 c0 04 01 a1 00 40", DecodeError::CountMismatch);
    check_error("00 53 10 c0 0d 0b a1 00 40 40 40 40 40 40 40 40 40 40", {
        DecodeError::TooManyFields { composite: "open" }
    });
}

#[test]
fn begin() {
    // §2.7.2
    let begin = Begin { incoming_window: 2048, outgoing_window: 2048, ..Begin::default() };
    check("00 53 11 c0 0d 04 40 43 70 00 00 08 00 70 00 00 08 00", Performative::Begin(begin));
    let answer = Begin { remote_channel: Some(7), next_outgoing_id: 1, handle_max: 15, ..Begin::default() };
    check("00 53 11 c0 0a 05 60 00 07 52 01 43 43 52 0f", Performative::Begin(answer));
    check_error("00 53 11 c0 03 02 40 43", DecodeError::MissingField { field: "begin.incoming-window" });
    check_error(
        "00 53 11 c0 03 01 52 01",
        DecodeError::WrongType { field: "begin.remote-channel", code: 0x52 },
    );
}

#[test]
fn attach() {
    // §2.7.3
    check("00 53 12 c0 06 03 a1 01 'l' 43 41", Performative::Attach(Attach::new("l", 0, Role::Receiver)));
    let source = Source { address: Some("q"), ..Source::default() };
    let target = TargetArchetype::Target(Target { address: Some("t"), ..Target::default() });
    let attach = Attach {
        snd_settle_mode: SenderSettleMode::Settled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(source),
        target: Some(target),
        unsettled: Some(Map::default()),
        incomplete_unsettled: true,
        initial_delivery_count: Some(0),
        max_message_size: Some(1 << 20),
        ..Attach::new("l", 1, Role::Sender)
    };
    check(
        "00 53 12 c0 [0b a1 01 'l' 52 01 42 50 01 50 01 00 53 28 c0 [01 a1 01 'q']
         00 53 29 c0 [01 a1 01 't'] c1 01 00 41 43 80 00 00 00 00 00 10 00 00]",
        Performative::Attach(attach),
    );
    check_error(
        "00 53 12 c0 [04 a1 00 43 41 50 03]",
        DecodeError::InvalidField { field: "attach.snd-settle-mode" },
    );
    check_error(
        "00 53 12 c0 [05 a1 00 43 41 40 50 02]",
        DecodeError::InvalidField { field: "attach.rcv-settle-mode" },
    );
    check_error(
        "00 53 12 c0 [06 a1 00 43 41 40 40 53 28 45]",
        DecodeError::NotDescribed { expected: "source" },
    );
    check_error("00 53 12 c0 [06 a1 00 43 41 40 40 00 53 29 45]", {
        DecodeError::UnexpectedDescriptor { expected: "source", code: Some(0x29) }
    });
}

#[test]
fn flow() {
    // §2.7.4
    let session = Flow { next_incoming_id: Some(1), incoming_window: 5, ..Flow::default() };
    check("00 53 13 c0 07 04 52 01 52 05 43 43", Performative::Flow(session));
    let link = Flow {
        handle: Some(0),
        delivery_count: Some(3),
        link_credit: Some(100),
        available: Some(0),
        drain: true,
        echo: true,
        ..session
    };
    check("00 53 13 c0 0f 0a 52 01 52 05 43 43 43 52 03 52 64 43 41 41", Performative::Flow(link));
    check_error("00 53 13 45", DecodeError::MissingField { field: "flow.incoming-window" });
    check_error("00 53 13 c0 05 04 40 40 43 43", DecodeError::MissingField { field: "flow.incoming-window" });
}

#[test]
fn transfer() {
    // §2.7.5
    let first = Transfer {
        handle: 2,
        delivery_id: Some(9),
        delivery_tag: Some(b"tag"),
        message_format: Some(0),
        settled: Some(false),
        more: true,
        ..Transfer::default()
    };
    check("00 53 14 c0 [06 52 02 52 09 a0 ['tag'] 43 42 41]", Performative::Transfer(first));
    check("00 53 14 c0 02 01 43", Performative::Transfer(Transfer::default()));
    let state = DeliveryState::Transactional { transaction: b"tx", outcome: None };
    let last = Transfer {
        handle: 0,
        rcv_settle_mode: Some(ReceiverSettleMode::First),
        state: Some(state),
        resume: true,
        aborted: true,
        batchable: true,
        ..Transfer::default()
    };
    check(
        "00 53 14 c0 [0b 43 40 40 40 40 40 50 00 00 53 34 c0 [01 a0 ['tx']] 41 41 41]",
        Performative::Transfer(last),
    );
    check_error("00 53 14 45", DecodeError::MissingField { field: "transfer.handle" });
    // §2.8.7: a tag has up to 32 octets.
    let tag = |size: u8| {
        format!("00 53 14 c0 {:02x} 03 43 40 a0 {size:02x} {}", size + 5, "aa ".repeat(size.into()))
    };
    assert!(Performative::decode(&bytes(&tag(32))).is_ok());
    check_error(&tag(33), DecodeError::InvalidField { field: "transfer.delivery-tag" });
}

#[test]
fn disposition() {
    // §2.7.6
    let accepted = Disposition {
        role: Role::Receiver,
        first: 1,
        last: Some(3),
        settled: true,
        state: Some(DeliveryState::Accepted),
        batchable: false,
    };
    check("00 53 15 c0 [05 41 52 01 52 03 41 00 53 24 45]", Performative::Disposition(accepted));
    // Wide forms of the accepted state.
    check_read(
        "00 53 15 c0 [05 41 52 01 52 03 41 00 80 00 00 00 00 00 00 00 24 d0 00 00 00 04 00 00 00 00]",
        Performative::Disposition(accepted),
    );
    let forget = Disposition { role: Role::Sender, last: None, state: None, settled: true, ..accepted };
    check("00 53 15 c0 06 04 42 52 01 40 41", Performative::Disposition(forget));
    check_error("00 53 15 c0 02 01 41", DecodeError::MissingField { field: "disposition.first" });
    check_error("00 53 15 c0 [05 41 43 40 42 00 53 10 45]", {
        DecodeError::UnexpectedDescriptor { expected: "a delivery state", code: Some(0x10) }
    });
    check_error(
        "00 53 15 c0 [05 41 43 40 42 41]",
        DecodeError::NotDescribed { expected: "a delivery state" },
    );
}

#[test]
fn endings() {
    // §2.7.7 to §2.7.9
    check("00 53 16 c0 02 01 43", Performative::Detach(Detach::default()));
    let error = Error::new("amqp:not-found", "no");
    let detach = Detach { handle: 1, closed: true, error: Some(error) };
    check(
        "00 53 16 c0 [03 52 01 41 00 53 1d c0 [02 a3 ['amqp:not-found'] a1 ['no']]]",
        Performative::Detach(detach),
    );
    check("00 53 17 45", Performative::End(End::default()));
    check("00 53 18 45", Performative::Close(Close::default()));
    check_read("00 53 18 c0 01 00", Performative::Close(Close::default()));
    let info = bytes("c1 05 02 a3 01 'x' 41");
    let info = Map::decode(&info).expect("a map");
    let error = Error { condition: "x:y", description: None, info: Some(info) };
    check(
        "00 53 18 c0 [01 00 53 1d c0 [03 a3 ['x:y'] 40 c1 [02 a3 01 'x' 41]]]",
        Performative::Close(Close { error: Some(error) }),
    );
    check_error("00 53 18 c0 05 01 00 53 1d 45", DecodeError::MissingField { field: "error.condition" });
}

#[test]
fn unknown_performatives_are_errors() {
    const EXPECTED: &str = "a performative";
    check_error("00 53 19 45", DecodeError::UnexpectedDescriptor { expected: EXPECTED, code: Some(0x19) });
    check_error("00 80 00 00 01 00 00 00 00 10 45", {
        DecodeError::UnexpectedDescriptor { expected: EXPECTED, code: Some(0x0000_0100_0000_0010) }
    });
    check_error("00 a3 01 'x' 45", DecodeError::UnexpectedDescriptor { expected: EXPECTED, code: None });
    check_error("00 a1 01 'x' 45", DecodeError::UnexpectedDescriptor { expected: EXPECTED, code: None });
    check_error("45", DecodeError::NotDescribed { expected: EXPECTED });
    check_error("", DecodeError::Truncated);
}

/// A delivery state, alone in a disposition.
fn check_state(encoding: &str, state: DeliveryState<'_>) {
    let input = bytes(encoding);
    assert_eq!(DeliveryState::read(&mut Reader::new(&input)), Ok(state), "{encoding}");
    let mut out = Vec::new();
    state.encode(&mut out);
    assert_eq!(out, input, "{state:?}");
}

#[test]
fn delivery_states() {
    // §3.4
    let received = Received { section_number: 5, section_offset: 1000 };
    check_state("00 53 23 c0 [02 52 05 80 00 00 00 00 00 00 03 e8]", DeliveryState::Received(received));
    check_state("00 53 24 45", DeliveryState::Accepted);
    check_state("00 53 25 45", DeliveryState::Rejected { error: None });
    let error = Some(Error::new("a:b", ""));
    check_state("00 53 25 c0 [01 00 53 1d c0 [01 a3 ['a:b']]]", DeliveryState::Rejected { error });
    check_state("00 53 26 45", DeliveryState::Released);
    check_state("00 53 27 45", DeliveryState::Modified(Modified::default()));
    let annotations = bytes("c1 05 02 a3 01 'x' 41");
    let modified = Modified {
        delivery_failed: true,
        undeliverable_here: true,
        message_annotations: Some(Map::decode(&annotations).expect("a map")),
    };
    check_state("00 53 27 c0 [03 41 41 c1 [02 a3 01 'x' 41]]", DeliveryState::Modified(modified));
    // §4.5.5, §4.5.6
    check_state("00 53 33 c0 04 01 a0 01 01", DeliveryState::Declared { transaction: &[1] });
    let outcome = Some(Outcome::Modified(Modified { delivery_failed: true, ..Modified::default() }));
    check_state("00 53 34 c0 [02 a0 01 01 00 53 27 c0 [01 41]]", {
        DeliveryState::Transactional { transaction: &[1], outcome }
    });
    // Outcomes are final; a state in a transaction is no outcome inside another.
    assert_eq!(DeliveryState::Received(received).outcome(), None);
    assert_eq!(DeliveryState::Accepted.outcome(), Some(Outcome::Accepted));
    let nested = bytes("00 53 34 c0 [02 a0 01 01 00 53 34 c0 [01 a0 01 02]]");
    assert_eq!(
        DeliveryState::read(&mut Reader::new(&nested)),
        Err(DecodeError::UnexpectedDescriptor { expected: "an outcome", code: Some(0x34) })
    );
    let symbolic = bytes("00 a3 12 'amqp:released:list' 45");
    assert_eq!(DeliveryState::read(&mut Reader::new(&symbolic)), Ok(DeliveryState::Released));
}

fn check_source(encoding: &str, source: Source<'_>) {
    let attach = Attach { source: Some(source), ..Attach::new("", 0, Role::Sender) };
    let mut out = Vec::new();
    attach.encode(&mut out);
    let expected = (Performative::Attach(attach), &[][..]);
    assert_eq!(Performative::decode(&out), Ok(expected));
    out.clear();
    source.encode(&mut out);
    assert_eq!(out, bytes(encoding), "{source:?}");
}

#[test]
fn sources() {
    // §3.5.3
    check_source("00 53 28 45", Source::default());
    let filter_text = "c1 [02 a3 01 's' 00 a3 ['apache.org:selector-filter:string'] a1 ['a > 1']]";
    let filter = bytes(filter_text);
    let filter = Map::decode(&filter).expect("a map");
    let node = bytes("c1 [02 a3 ['lifetime-policy'] 00 53 2b 45]");
    let node = Map::decode(&node).expect("a map");
    let source = Source {
        address: None,
        durable: TerminusDurability::UnsettledState,
        expiry_policy: ExpiryPolicy::Never,
        timeout: 30,
        dynamic: true,
        dynamic_node_properties: Some(node),
        distribution_mode: Some(DistributionMode::Copy),
        filter: Some(filter),
        default_outcome: Some(Outcome::Released),
        outcomes: Symbols::new(&["amqp:accepted:list"]),
        capabilities: Symbols::new(&["shared", "global"]),
    };
    check_source(
        &format!(
            "00 53 28 c0 [0b 40 52 02 a3 ['never'] 52 1e 41 c1 [02 a3 ['lifetime-policy'] 00 53 2b 45]
             a3 ['copy'] {filter_text} 00 53 26 45 a3 ['amqp:accepted:list'] e0 [02 a3 ['shared'] ['global']]]"
        ),
        source,
    );
    assert_eq!(node.find("lifetime-policy").unwrap().map(|policy| LifetimePolicy::decode(&policy)), {
        Some(Ok(LifetimePolicy::DeleteOnClose))
    });
    let Ok(Some(Value::Described(selector))) = filter.find("s") else { panic!("a described filter") };
    assert_eq!(selector.value(), Ok(Value::String("a > 1")));
}

#[test]
fn termini_are_refused_with_wrong_choices() {
    let source = |fields: &str| bytes(&format!("00 53 12 c0 [06 a1 00 43 41 40 40 00 53 28 c0 [{fields}]]"));
    let check = |fields: &str, error: DecodeError| {
        assert_eq!(Performative::decode(&source(fields)), Err(error), "{fields}");
    };
    // §3.5.5, §3.5.6
    check("02 40 52 03", DecodeError::InvalidField { field: "source.durable" });
    check("03 40 40 a3 ['now']", DecodeError::InvalidField { field: "source.expiry-policy" });
    // §3.2.15: addresses are strings.
    check("01 a3 01 'q'", DecodeError::WrongType { field: "source.address", code: 0xa3 });
    // §3.5.7: other modes may be defined elsewhere.
    let input = source("07 40 40 40 40 40 40 a3 ['x:all']");
    let Ok((Performative::Attach(attach), _)) = Performative::decode(&input) else { panic!("an attach") };
    let mode = attach.source.and_then(|source| source.distribution_mode);
    assert_eq!(mode, Some(DistributionMode::Other("x:all")));
}

#[test]
fn targets_and_coordinators() {
    // §3.5.4, §4.5.1
    let check = |encoding: &str, target: TargetArchetype<'_>| {
        let attach = Attach { target: Some(target), ..Attach::new("", 0, Role::Receiver) };
        let mut out = Vec::new();
        attach.encode(&mut out);
        assert_eq!(Performative::decode(&out), Ok((Performative::Attach(attach), &[][..])));
        out.clear();
        target.encode(&mut out);
        assert_eq!(out, bytes(encoding), "{target:?}");
    };
    check("00 53 29 45", TargetArchetype::Target(Target::default()));
    let target = Target {
        address: Some("t"),
        durable: TerminusDurability::Configuration,
        expiry_policy: ExpiryPolicy::LinkDetach,
        timeout: 1,
        dynamic: true,
        dynamic_node_properties: Some(Map::default()),
        capabilities: Symbols::new(&["queue"]),
    };
    check(
        "00 53 29 c0 [07 a1 01 't' 52 01 a3 ['link-detach'] 52 01 41 c1 01 00 a3 ['queue']]",
        TargetArchetype::Target(target),
    );
    let capabilities = Symbols::new(&["amqp:local-transactions"]);
    check(
        "00 53 30 c0 [01 a3 ['amqp:local-transactions']]",
        TargetArchetype::Coordinator(Coordinator { capabilities }),
    );
}

#[test]
fn multiple_fields_take_array_list_or_single_value() {
    // §1.4: one value or an array; some peers send lists.
    let open =
        |capabilities: &str| bytes(&format!("00 53 10 c0 [08 a1 00 40 40 40 40 40 40 {capabilities}]"));
    let check = |capabilities: &str, expected: &[&str]| {
        let input = open(capabilities);
        let Ok((Performative::Open(open), _)) = Performative::decode(&input) else {
            panic!("{capabilities}")
        };
        assert_eq!(open.offered_capabilities.iter().collect::<Vec<_>>(), expected, "{capabilities}");
        assert_eq!(open.offered_capabilities, Symbols::new(expected));
        assert_eq!(open.offered_capabilities.is_empty(), expected.is_empty());
        assert!(expected.iter().all(|symbol| open.offered_capabilities.contains(symbol)));
        assert!(!open.offered_capabilities.contains("c"));
    };
    check("40", &[]);
    check("a3 01 'a'", &["a"]);
    check("b3 00 00 00 01 'a'", &["a"]);
    check("e0 06 02 a3 01 'a' 01 'b'", &["a", "b"]);
    check("f0 00 00 00 0f 00 00 00 02 b3 00 00 00 01 'a' 00 00 00 01 'b'", &["a", "b"]);
    check("e0 02 00 a3", &[]);
    check("45", &[]);
    check("c0 07 02 a3 01 'a' a3 01 'b'", &["a", "b"]);
    // What python-proton made of a list of plain strings.
    check("c0 07 02 a1 01 'a' a1 01 'b'", &["a", "b"]);
    check("a1 01 'a'", &["a"]);
    for (wrong, error) in [
        ("a0 01 'a'", DecodeError::WrongType { field: "open.offered-capabilities", code: 0xa0 }),
        ("c0 04 01 a0 01 'a'", DecodeError::WrongType { field: "open.offered-capabilities", code: 0xc0 }),
        ("e0 04 01 a0 01 'a'", DecodeError::WrongType { field: "open.offered-capabilities", code: 0xe0 }),
        ("c0 04 01 a3 01 ff", DecodeError::InvalidSymbol),
        ("c0 05 01 a1 02 c3 bc", DecodeError::InvalidSymbol),
        ("a1 02 c3 bc", DecodeError::InvalidSymbol),
    ] {
        assert_eq!(Performative::decode(&open(wrong)), Err(error), "{wrong}");
    }
}

#[test]
fn long_symbols_make_a_wide_array() {
    let long = "x".repeat(300);
    let symbols = [long.as_str(), "y"];
    let open = Open { offered_capabilities: Symbols::new(&symbols), ..Open::default() };
    let mut out = Vec::new();
    open.encode(&mut out);
    assert_eq!(Performative::decode(&out), Ok((Performative::Open(open), &[][..])));
}

fn check_sasl(encoding: &str, performative: SaslPerformative<'_>) {
    let mut input = bytes(encoding);
    assert_eq!(SaslPerformative::decode(&input), Ok(performative), "{encoding}");
    let mut out = Vec::new();
    performative.encode(&mut out);
    assert_eq!(out, input, "{performative:?}");
    for end in 0..input.len() {
        assert_eq!(
            SaslPerformative::decode(&input[..end]),
            Err(DecodeError::Truncated),
            "{encoding} cut at {end}"
        );
    }
    // §5.3.1: a SASL frame holds one performative and nothing else.
    input.push(0x40);
    assert_eq!(SaslPerformative::decode(&input), Err(DecodeError::TrailingBytes), "{encoding}");
}

#[test]
fn sasl_frames() {
    // §5.3.3
    let mechanisms = Symbols::new(&["PLAIN", "ANONYMOUS"]);
    check_sasl(
        "00 53 40 c0 15 01 e0 12 02 a3 05 'PLAIN' 09 'ANONYMOUS'",
        SaslPerformative::Mechanisms(SaslMechanisms { mechanisms }),
    );
    // Found by fuzzing: mandatory, so an empty array and not a null.
    let none = SaslMechanisms { mechanisms: Symbols::default() };
    check_sasl("00 53 40 c0 [01 e0 02 00 a3]", SaslPerformative::Mechanisms(none));
    let init = SaslInit { mechanism: "PLAIN", initial_response: Some(b"\0u\0p"), hostname: Some("h") };
    check_sasl("00 53 41 c0 11 03 a3 05 'PLAIN' a0 04 00 'u' 00 'p' a1 01 'h'", SaslPerformative::Init(init));
    check_sasl("00 53 42 c0 04 01 a0 01 07", SaslPerformative::Challenge(SaslChallenge { challenge: &[7] }));
    check_sasl("00 53 43 c0 03 01 a0 00", SaslPerformative::Response(SaslResponse { response: &[] }));
    let outcome = SaslOutcome { code: SaslCode::Ok, additional_data: None };
    check_sasl("00 53 44 c0 03 01 50 00", SaslPerformative::Outcome(outcome));
    let outcome = SaslOutcome { code: SaslCode::SysTemp, additional_data: Some(b"v=") };
    check_sasl("00 53 44 c0 07 02 50 04 a0 02 'v='", SaslPerformative::Outcome(outcome));
    for (wrong, error) in [
        ("00 53 41 45", DecodeError::MissingField { field: "sasl-init.mechanism" }),
        ("00 53 44 c0 03 01 50 05", DecodeError::InvalidField { field: "sasl-outcome.code" }),
        ("00 53 40 45", DecodeError::MissingField { field: "sasl-mechanisms.sasl-server-mechanisms" }),
        (
            "00 53 10 45",
            DecodeError::UnexpectedDescriptor { expected: "a SASL performative", code: Some(0x10) },
        ),
    ] {
        assert_eq!(SaslPerformative::decode(&bytes(wrong)), Err(error), "{wrong}");
    }
}

#[test]
fn transaction_requests() {
    // §4.5.2, §4.5.3
    let check = |encoding: &str, request: TransactionRequest<'_>| {
        let input = bytes(encoding);
        assert_eq!(TransactionRequest::decode(&input), Ok(request), "{encoding}");
        let mut out = Vec::new();
        request.encode(&mut out);
        assert_eq!(out, input, "{request:?}");
    };
    check("00 53 31 45", TransactionRequest::Declare(Declare::default()));
    let id = bytes("a0 01 09");
    let global_id = Some(Raw::read(&mut Reader::new(&id)).expect("a value"));
    check("00 53 31 c0 04 01 a0 01 09", TransactionRequest::Declare(Declare { global_id }));
    check(
        "00 53 32 c0 04 01 a0 01 09",
        TransactionRequest::Discharge(Discharge { transaction: &[9], fail: false }),
    );
    check(
        "00 53 32 c0 05 02 a0 01 09 41",
        TransactionRequest::Discharge(Discharge { transaction: &[9], fail: true }),
    );
    assert_eq!(
        TransactionRequest::decode(&bytes("00 53 32 45")),
        Err(DecodeError::MissingField { field: "discharge.txn-id" })
    );
}

#[test]
fn errors_name_what_the_peer_is_told() {
    assert_eq!(DecodeError::MissingField { field: "x" }.condition(), "amqp:invalid-field");
    assert_eq!(DecodeError::Truncated.condition(), "amqp:decode-error");
    assert_eq!(DecodeError::MessageTooLarge.condition(), "amqp:link:message-size-exceeded");
}

/// A transfer is read in place: what its sender left out would stay as it was.
#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "fields that are left out keep what they hold")]
fn a_transfer_is_read_into_nothing() {
    let mut transfer = Transfer { aborted: true, ..Transfer::default() };
    let _ = transfer.decode(&bytes("00 53 14 c0 03 01 52 01"));
}
