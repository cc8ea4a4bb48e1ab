//! Many seeds of a client and a server.

use corelane_wire::amqp10::{
    DeliveryState, ReceiverSettleMode, SenderSettleMode, Source, Symbols, Target, TargetArchetype,
};

use super::pair::Pair;
use crate::amqp10::{
    AttachAnswer, AttachRequest, Config, Connection, Event, Outgoing, Payload, Progress, Token,
};

#[test]
fn every_message_and_every_outcome_arrives_once() {
    let (mut arrived, mut outcomes) = (0, 0);
    for seed in 0..seeds() {
        let result = std::panic::catch_unwind(|| Pair::new(seed).run(3000));
        let summary = result.unwrap_or_else(|_| panic!("seed {seed}"));
        arrived += summary.arrived;
        outcomes += summary.outcomes;
    }
    println!("{arrived} messages, {outcomes} outcomes");
    assert!(arrived > 100 * seeds() && outcomes > 30 * seeds(), "{arrived} messages, {outcomes} outcomes");
}

#[test]
fn a_long_stream_through_a_small_window_never_stalls() {
    // 30,000 messages of three frames each pass 2^16 transfers; the receiver's credit is large, its window is not.
    let config = |sending: bool| Config {
        max_frame_size: 512,
        incoming_window: if sending { 2048 } else { 100 },
        idle_timeout_us: None,
        ..Config::default()
    };
    let mut client = Connection::client(config(false), 0);
    let mut server = Connection::server(config(true), 0);
    let session = client.begin().unwrap();
    let request = AttachRequest {
        name: "stream",
        source: Some(Source::default()),
        target: Some(TargetArchetype::Target(Target::default())),
        sender_settle_mode: SenderSettleMode::Mixed,
        receiver_settle_mode: ReceiverSettleMode::First,
        max_message_size: None,
        desired_capabilities: Symbols::default(),
        properties: None,
    };
    let link = client.attach_sender(session, &request).unwrap();
    let message = vec![b'm'; 1200];
    let (mut sent, mut arrived, mut settled, mut rest, mut turns) = (0_u32, 0_u32, 0_u32, 0_usize, 0_u32);
    while settled < 30_000 {
        turns += 1;
        assert!(turns < 10_000, "{sent} sent, {arrived} arrived, {settled} settled");
        for _ in 0..100 {
            let progress = match rest {
                0 if sent < 30_000 => {
                    let token = Token(u64::from(sent), 0);
                    let (head, rest) = message.split_at(40);
                    client.send(link, &Outgoing { token, settled: false, message_format: 0, head, rest })
                }
                0 => break,
                size => client.send_more(link, &message[1200 - size..]),
            };
            match progress {
                Progress::Complete { .. } => (sent, rest) = (sent + 1, 0),
                Progress::Partial { written, .. } => {
                    rest = if rest == 0 { 1200 - written } else { rest - written }
                }
                Progress::NotReady(_) | Progress::TooLarge => break,
            }
        }
        let bytes = std::mem::take(client.output());
        let mut input = &bytes[..];
        while let Some(event) = server.receive(0, &mut input) {
            match event {
                Event::Opened(_) => server.accept_open(),
                Event::Attached { link, .. } => {
                    server.accept_attach(link, &AttachAnswer::default());
                    server.grant_credit(link, 100_000, false);
                }
                Event::Message(message) => {
                    assert_eq!(message.payload.bytes().len(), 1200);
                    arrived += 1;
                    server.settle(message.link, message.delivery_id, &DeliveryState::Accepted);
                    if let Payload::Assembled(buffer) = message.payload {
                        server.recycle(buffer);
                    }
                }
                Event::SessionBegun { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        server.finish_turn(0);
        let bytes = std::mem::take(server.output());
        let mut input = &bytes[..];
        while let Some(event) = client.receive(0, &mut input) {
            if let Event::Disposition { .. } = event {
                while let Some(disposed) = client.poll_outcome() {
                    assert_eq!(disposed.token, Token(u64::from(settled), 0), "outcomes come in order");
                    settled += 1;
                }
            }
        }
        client.finish_turn(0);
    }
    client.verify();
    server.verify();
}

fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60)
}
