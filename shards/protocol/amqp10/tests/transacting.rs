//! Transactions between a client and a server: what names them, on frames of both directions.

use corelane_wire::amqp10::{
    DeliveryState, Encode, Flow, FrameKind, Map, MapWriter, Outcome, ReceiverSettleMode, SenderSettleMode,
    Source, Symbols, Target, TargetArchetype, Transfer, begin_frame, finish_frame,
};

use crate::amqp10::{
    AttachAnswer, AttachRequest, Config, Connection, Disposed, Event, LinkId, Outgoing, Payload, Progress,
    Token, TransactionId,
};

/// A client and a server with one link in each direction, and what they have seen.
struct Both {
    client: Connection,
    server: Connection,
    /// The client's ends: it sends on one, receives on the other.
    out: LinkId,
    back: LinkId,
    /// The server's ends of the same.
    served: Vec<LinkId>,
    /// Size and transaction of messages, and delivery numbers.
    messages: Vec<(usize, Option<TransactionId>, u32)>,
    outcomes: Vec<(Disposed, Option<String>)>,
}

impl Both {
    fn new() -> Self {
        let config = || Config { max_frame_size: 512, idle_timeout_us: None, ..Config::default() };
        let mut client = Connection::client(config(), 0);
        let server = Connection::server(config(), 0);
        let session = client.begin().unwrap();
        let request = |name| AttachRequest {
            name,
            source: Some(Source::default()),
            target: Some(TargetArchetype::Target(Target::default())),
            sender_settle_mode: SenderSettleMode::Mixed,
            receiver_settle_mode: ReceiverSettleMode::Second,
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        let out = client.attach_sender(session, &request("out")).unwrap();
        let back = client.attach_receiver(session, &request("back")).unwrap();
        let (served, messages, outcomes) = (Vec::new(), Vec::new(), Vec::new());
        let mut both = Self { client, server, out, back, served, messages, outcomes };
        both.run();
        both
    }

    fn run(&mut self) {
        for _ in 0..6 {
            self.client.finish_turn(0);
            let bytes = std::mem::take(self.client.output());
            let (messages, outcomes, served) = (&mut self.messages, &mut self.outcomes, &mut self.served);
            read(&mut self.server, &bytes, messages, outcomes, served);
            self.server.finish_turn(0);
            let bytes = std::mem::take(self.server.output());
            read(&mut self.client, &bytes, messages, outcomes, &mut Vec::new());
        }
    }
}

fn read(
    connection: &mut Connection,
    bytes: &[u8],
    messages: &mut Vec<(usize, Option<TransactionId>, u32)>,
    outcomes: &mut Vec<(Disposed, Option<String>)>,
    served: &mut Vec<LinkId>,
) {
    let mut input = bytes;
    while let Some(event) = connection.receive(0, &mut input) {
        match event {
            Event::Opened(_) => connection.accept_open(),
            Event::Attached { link, .. } => {
                connection.accept_attach(link, &AttachAnswer::default());
                connection.grant_credit(link, 100, false);
                served.push(link);
            }
            Event::Message(message) => {
                messages.push((message.payload.bytes().len(), message.transaction, message.delivery_id));
                if let Payload::Assembled(buffer) = message.payload {
                    connection.recycle(buffer);
                }
            }
            Event::Disposition { state, .. } => {
                let named = state.map(|state| match state {
                    DeliveryState::Transactional { transaction, outcome: Some(Outcome::Accepted) } => {
                        format!("accepted in {}", transaction.escape_ascii())
                    }
                    other => format!("{other:?}"),
                });
                while let Some(disposed) = connection.poll_outcome() {
                    outcomes.push((disposed, named.clone()));
                }
            }
            _ => {}
        }
    }
    assert!(input.is_empty());
}

fn id(name: &[u8]) -> TransactionId {
    TransactionId::new(name).unwrap()
}

fn send(connection: &mut Connection, link: LinkId, size: usize) {
    let rest = &vec![b'm'; size][..];
    let outgoing =
        Outgoing { token: Token(size as u64, 0), settled: false, message_format: 0, head: b"", rest };
    assert!(matches!(connection.send(link, &outgoing), Progress::Complete { .. }));
}

#[test]
fn posting_and_its_outcome_name_the_transaction() {
    let mut both = Both::new();
    // The longest id there is, and a message of many of the smallest frames.
    let long = id(&[7; 32]);
    both.client.set_transaction(both.out, Some(long));
    send(&mut both.client, both.out, 5000);
    both.client.set_transaction(both.out, Some(id(b"t2")));
    send(&mut both.client, both.out, 10);
    send(&mut both.client, both.out, 11);
    both.client.set_transaction(both.out, None);
    send(&mut both.client, both.out, 12);
    both.run();
    let seen: Vec<_> = both.messages.iter().map(|(size, transaction, _)| (*size, *transaction)).collect();
    assert_eq!(seen, [(5000, Some(long)), (10, Some(id(b"t2"))), (11, Some(id(b"t2"))), (12, None)]);
    let accepted = DeliveryState::Transactional { transaction: b"t2", outcome: Some(Outcome::Accepted) };
    for (_, _, delivery_id) in &both.messages[1..3] {
        both.server.settle(both.served[0], *delivery_id, &accepted);
    }
    both.run();
    let named: Vec<_> =
        both.outcomes.iter().map(|(disposed, name)| (disposed.token.0, name.as_deref())).collect();
    assert_eq!(named, [(10, Some("accepted in t2")), (11, Some("accepted in t2"))]);
}

#[test]
fn a_delivery_in_parts_is_known_to_be_posted() {
    let mut both = Both::new();
    both.client.set_transaction(both.out, Some(id(b"t")));
    send(&mut both.client, both.out, 2000);
    // All but the last frame.
    let mut bytes = std::mem::take(both.client.output());
    let last = bytes.split_off(bytes.len() - 100);
    let mut seen = &bytes[..];
    assert!(both.server.receive(0, &mut seen).is_none());
    assert!(both.server.is_posting(&id(b"t")) && !both.server.is_posting(&id(b"u")));
    bytes = [seen, &last].concat();
    let mut seen = &bytes[..];
    while both.server.receive(0, &mut seen).is_some() {}
    assert!(!both.server.is_posting(&id(b"t")));
}

#[test]
fn a_flow_puts_what_is_sent_under_a_transaction() {
    let mut both = Both::new();
    let (_, sends) = (both.served[0], both.served[1]);
    both.client.set_transaction(both.back, Some(id(b"t")));
    both.client.grant_credit(both.back, 10, false);
    both.run();
    assert_eq!(both.server.transaction(sends), Some(id(b"t")));
    send(&mut both.server, sends, 900);
    // A flow that says nothing about it leaves it as it is.
    both.client.set_transaction(both.back, None);
    both.client.grant_credit(both.back, 9, false);
    both.run();
    send(&mut both.server, sends, 2);
    both.server.set_transaction(sends, None);
    send(&mut both.server, sends, 3);
    both.run();
    let seen: Vec<_> = both.messages.iter().map(|(size, transaction, _)| (*size, *transaction)).collect();
    assert_eq!(seen, [(900, Some(id(b"t"))), (2, Some(id(b"t"))), (3, None)]);
}

#[test]
fn retiring_is_provisional_until_it_is_settled() {
    let mut both = Both::new();
    let sends = both.served[1];
    both.client.grant_credit(both.back, 10, false);
    both.run();
    send(&mut both.server, sends, 1);
    both.run();
    let delivery_id = both.messages[0].2;
    let accepted = DeliveryState::Transactional { transaction: b"t", outcome: Some(Outcome::Accepted) };
    // The receiver settles second, so it says its outcome without settling.
    both.client.settle(both.back, delivery_id, &accepted);
    both.run();
    let (disposed, name) = &both.outcomes[0];
    assert_eq!((disposed.settled, name.as_deref()), (false, Some("accepted in t")));
    assert!(both.client.delivery_tag(both.back, delivery_id).is_some());
    // Rolled back, it may have another one.
    let again = DeliveryState::Transactional { transaction: b"u", outcome: Some(Outcome::Accepted) };
    both.client.settle(both.back, delivery_id, &again);
    both.run();
    assert_eq!(both.outcomes[1].1.as_deref(), Some("accepted in u"));
    both.server.settle_sent(sends, delivery_id, Some(&DeliveryState::Accepted));
    both.run();
    assert!(both.client.delivery_tag(both.back, delivery_id).is_none());
}

/// A discharge does not overtake what was said before it.
#[test]
fn outcomes_inside_a_transaction_stay_before_what_is_sent_behind_them() {
    let mut both = Both::new();
    both.client.grant_credit(both.back, 10, false);
    both.run();
    send(&mut both.server, both.served[1], 1);
    both.run();
    let accepted = DeliveryState::Transactional { transaction: b"t", outcome: Some(Outcome::Accepted) };
    both.client.settle(both.back, both.messages[0].2, &accepted);
    send(&mut both.client, both.out, 7);
    let bytes = std::mem::take(both.client.output());
    let mut input = &bytes[..];
    let first = both.server.receive(0, &mut input);
    assert!(matches!(first, Some(Event::Disposition { .. })), "{first:?}");
}

/// The peer says what became of a delivery before it knows that the link has ended: whoever runs the transaction hears of it.
#[test]
fn an_outcome_crosses_the_detach_of_its_link() {
    let mut both = Both::new();
    both.client.grant_credit(both.back, 10, false);
    both.run();
    send(&mut both.server, both.served[1], 1);
    both.run();
    // On a link that receives nothing is sent, so it ends.
    let transfer =
        Transfer { handle: 1, delivery_id: Some(0), delivery_tag: Some(b"t"), ..Transfer::default() };
    let out = both.client.output();
    let start = begin_frame(out, FrameKind::Amqp, 0);
    transfer.encode(out);
    finish_frame(out, start);
    let accepted = DeliveryState::Transactional { transaction: b"t", outcome: Some(Outcome::Accepted) };
    both.client.settle(both.back, both.messages[0].2, &accepted);
    both.run();
    let told: Vec<_> =
        both.outcomes.iter().map(|(disposed, named)| (disposed.link, named.as_deref())).collect();
    assert_eq!(told, [(both.served[1], Some("accepted in t"))]);
}

/// An id that none can be is not mistaken for no transaction.
#[test]
fn work_of_an_impossible_transaction_is_not_work_of_none() {
    let mut both = Both::new();
    let sends = both.served[1];
    let flow = |value: &dyn Fn(&mut MapWriter<'_>)| {
        let mut named = Vec::new();
        let mut map = MapWriter::new(&mut named);
        value(&mut map);
        map.finish();
        let properties = Map::decode(&named).ok();
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window: 100,
            handle: Some(1),
            link_credit: Some(1),
            properties,
            ..Flow::default()
        };
        let mut bytes = Vec::new();
        let start = begin_frame(&mut bytes, FrameKind::Amqp, 0);
        flow.encode(&mut bytes);
        finish_frame(&mut bytes, start);
        bytes
    };
    let mut take = |bytes: Vec<u8>| {
        let mut input = &bytes[..];
        while both.server.receive(0, &mut input).is_some() {}
        both.server.transaction(sends)
    };
    assert_eq!(take(flow(&|map| map.symbol("txn-id", &&[1_u8; 33][..]))), Some(TransactionId::EMPTY));
    assert_eq!(take(flow(&|map| map.symbol("txn-id", &&b"t"[..]))), Some(id(b"t")));
    assert_eq!(take(flow(&|map| map.symbol("txn-id", &corelane_wire::amqp10::Value::Null))), None);
    assert_eq!(take(flow(&|map| map.symbol("txn-id", &7_u32))), Some(TransactionId::EMPTY));
}
