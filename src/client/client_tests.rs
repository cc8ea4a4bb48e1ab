//! The client against a broker of one connection, and against what is no broker.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::JoinHandle;

use corelane_protocol::amqp10::{AttachAnswer, ErrorSpec, Outgoing, Progress, SendReadiness, Token};
use corelane_shard::{ConnectionId, Peer, SaslReply, SaslStep};
use corelane_wire::amqp10::{Role, TargetArchetype};

use super::*;
use crate::authenticate::{AccessRules, Authenticator, UsersSource};

/// A broker of one connection, with these addresses: `accept`, `reject` and `release` take messages and say so,
/// `missing` does not exist, `slam` ends the connection in the middle of a message, and a number is a queue of so many
/// messages.
struct Broker {
    stream: TcpStream,
    connection: Connection,
    authenticator: Authenticator,
    started: Instant,
    /// Links that we send on, and the messages left for each.
    queues: Vec<(LinkId, u64)>,
    taken: Vec<Vec<u8>>,
    slams: bool,
}

/// What the broker saw.
struct Seen {
    taken: Vec<Vec<u8>>,
    accepted: u64,
}

fn serve(users: Option<UsersSource>, size_max: u64) -> (Url, JoinHandle<Seen>) {
    // Small, so that windows and frames play a part.
    let config =
        Config { max_message_size: size_max, max_frame_size: 4096, incoming_window: 8, ..Config::default() };
    serve_with(users, config)
}

fn serve_with(users: Option<UsersSource>, config: Config) -> (Url, JoinHandle<Seen>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let rules = AccessRules { has_users: users.is_some(), has_hashes: false, allow_anonymous: false };
    let mechanisms = rules.mechanisms(true).iter().map(|name| Box::from(*name)).collect();
    let config = Config { sasl: Sasl::Server { mechanisms, required: true }, ..config };
    let thread = std::thread::spawn(move || {
        let broker = Broker {
            stream: listener.accept().unwrap().0,
            connection: Connection::server(Arc::new(config), 0),
            authenticator: Authenticator::new(false, users, Default::default(), [1; 32]),
            started: Instant::now(),
            queues: Vec::new(),
            taken: Vec::new(),
            slams: false,
        };
        broker.run()
    });
    (url(address), thread)
}

fn url(address: SocketAddr) -> Url {
    format!("amqp://{address}").parse().unwrap()
}

impl Broker {
    fn run(mut self) -> Seen {
        let mut input = Vec::new();
        let mut accepted = 0;
        loop {
            let now = self.started.elapsed().as_micros() as u64;
            let pending = std::mem::take(&mut input);
            let mut rest = pending.as_slice();
            let mut closed = false;
            while let Some(event) = self.connection.receive(now, &mut rest) {
                closed |= matches!(event, Event::Closed { .. });
                self.handle(event, &mut accepted);
            }
            input = rest.to_vec();
            self.deliver();
            let slams = self.slams && !input.is_empty();
            if slams {
                let error = ErrorSpec { condition: "test:enough", description: "we had enough" };
                self.connection.close(Some(error));
            }
            self.connection.finish_turn(now);
            let output = std::mem::take(self.connection.output());
            let sent = self.stream.write_all(&output);
            let filled = input.len();
            input.resize(filled + 4096, 0);
            let count = if closed || slams || sent.is_err() {
                0
            } else {
                self.stream.read(&mut input[filled..]).unwrap_or(0)
            };
            input.truncate(filled + count);
            if count == 0 {
                return Seen { taken: self.taken, accepted };
            }
        }
    }

    fn handle(&mut self, event: Event<'_>, accepted: &mut u64) {
        match event {
            Event::SaslInit { mechanism, initial_response, .. } => self.sasl(SaslStep::Start {
                mechanism: mechanism.to_owned(),
                initial_response: initial_response.map(<[u8]>::to_vec),
                peer: Peer { loopback: true, address: None },
            }),
            Event::SaslResponse(response) => self.sasl(SaslStep::Response(response.to_vec())),
            Event::Opened(_) => self.connection.accept_open(),
            Event::Attached { link, attach, .. } => {
                let receives = attach.role == Role::Sender;
                let target = match attach.target {
                    Some(TargetArchetype::Target(target)) if receives => target.address,
                    _ => attach.source.and_then(|source| source.address),
                };
                let address = target.unwrap_or_default().to_owned();
                self.attached(link, receives, &address);
            }
            Event::Message(message) => {
                let bytes = message.payload.bytes().to_vec();
                let outcome = match self.taken.len() % 4 {
                    0 | 1 => DeliveryState::Accepted,
                    2 => DeliveryState::Rejected { error: Some(Error::new("test:no", "we do not like it")) },
                    _ => DeliveryState::Released,
                };
                self.taken.push(bytes);
                self.connection.settle(message.link, message.delivery_id, &outcome);
                self.connection.grant_credit(message.link, 2, false);
            }
            Event::Disposition { .. } => {
                while self.connection.poll_outcome().is_some() {
                    *accepted += 1;
                }
            }
            _ => {}
        }
    }

    fn sasl(&mut self, step: SaslStep) {
        let connection = ConnectionId(1);
        self.authenticator.handle_step(0, 0, connection, step);
        self.authenticator.handle_timeout(crate::authenticate::REFUSAL_DELAY_US);
        match self.authenticator.poll_reply().unwrap().reply {
            SaslReply::Challenge(challenge) => self.connection.sasl_challenge(&challenge),
            SaslReply::Accepted { additional, .. } => {
                self.connection.sasl_outcome(
                    SaslCode::Ok,
                    Some(&additional).filter(|data| !data.is_empty()).map(Vec::as_slice),
                );
            }
            SaslReply::Refused => self.connection.sasl_outcome(SaslCode::Auth, None),
        }
    }

    fn attached(&mut self, link: LinkId, receives: bool, address: &str) {
        if address == "missing" {
            let error = ErrorSpec { condition: "amqp:not-found", description: "no such queue" };
            return self.connection.refuse_attach(link, error);
        }
        self.connection.accept_attach(link, &AttachAnswer::default());
        self.slams |= address == "slam";
        if receives {
            self.connection.grant_credit(link, 2, false);
        } else {
            self.queues.push((link, address.parse().unwrap()));
        }
    }

    fn deliver(&mut self) {
        for (link, left) in &mut self.queues {
            while *left > 0 && self.connection.can_send(*link) == SendReadiness::Ready {
                let body = format!("message {left}");
                let mut bytes = Vec::new();
                corelane_wire::amqp10::write_amqp_value(&mut bytes, &body.as_str());
                let outgoing = Outgoing {
                    token: Token(0, 0),
                    settled: false,
                    message_format: 0,
                    head: &bytes,
                    rest: &[],
                };
                assert!(matches!(self.connection.send(*link, &outgoing), Progress::Complete { .. }));
                *left -= 1;
            }
            if *left == 0 {
                self.connection.drained(*link);
            }
        }
    }
}

fn with_credentials(url: &Url, user: &str, password: &str) -> Url {
    let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
    Url { credentials: Some(credentials), ..url.clone() }
}

fn alice() -> Option<UsersSource> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let verifier = crate::users::Verifier::new("open sesame", b"a salt of ours", 4096);
    crate::users::update(&file, |users| {
        users.insert("alice".to_owned(), verifier);
        true
    })
    .unwrap();
    Some(UsersSource::open(&file).unwrap())
}

#[test]
fn every_message_that_is_sent_is_accounted_for() {
    let (url, broker) = serve(None, 0);
    let mut client = Client::connect(&url).unwrap();
    let report = client.send("queue", TextMessage::Text("hello"), 10, &SendOptions::default()).unwrap();
    client.close().unwrap();
    assert_eq!((report.accepted, report.rejected, report.released), (6, 2, 2));
    assert_eq!(report.reason.unwrap().to_string(), "we do not like it (test:no)");
    let seen = broker.join().unwrap();
    assert_eq!(seen.taken.len(), 10);
    assert_eq!(show_body(&seen.taken[0]), "hello");
}

#[test]
fn large_messages_go_in_many_frames_through_a_small_window() {
    let (url, broker) = serve(None, 0);
    let mut client = Client::connect(&url).unwrap();
    let body: Vec<u8> = (b'a'..=b'z').cycle().take(1 << 20).collect();
    let report = client.send("queue", TextMessage::Data(&body), 2, &SendOptions::default()).unwrap();
    assert_eq!(report.accepted, 2);
    client.close().unwrap();
    let seen = broker.join().unwrap();
    assert!(seen.taken.iter().all(|message| show_body(message).as_bytes() == body));
}

#[test]
fn a_message_above_the_brokers_limit_is_not_sent() {
    let (url, _broker) = serve(None, 1000);
    let mut client = Client::connect(&url).unwrap();
    let error = client.send("queue", TextMessage::Data(&[0; 2000]), 1, &SendOptions::default()).unwrap_err();
    assert!(error.to_string().contains("at most 1000 bytes"), "{error}");
}

#[test]
fn a_message_above_the_brokers_limit_is_not_even_made() {
    let (url, _broker) = serve(None, 1000);
    let mut client = Client::connect(&url).unwrap();
    let endless = TextMessage::Pattern(u64::MAX / 2);
    let error = client.send("queue", endless, 1, &SendOptions::default()).unwrap_err();
    assert!(error.to_string().contains("at most 1000 bytes"), "{error}");
}

/// The broker's reason is read although it does not take what is being sent any more.
#[test]
fn the_reason_of_a_close_is_told_whatever_the_socket_says() {
    let (url, broker) = serve_with(None, Config::default());
    let mut client = Client::connect(&url).unwrap();
    let error = client.send("slam", TextMessage::Pattern(64 << 20), 1, &SendOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "the broker closed the connection: we had enough (test:enough)");
    broker.join().unwrap();
}

#[test]
fn messages_are_received_and_accepted_up_to_the_count() {
    let check = |queue: &str, count: Option<u64>, expected: (Ended, usize)| {
        let (url, broker) = serve(None, 0);
        let mut client = Client::connect(&url).unwrap();
        let selection = Selection { count, selector: Some("colour = 'red'".to_owned()) };
        let mut receiver = client.receive(queue, &selection).unwrap();
        let mut bodies = Vec::new();
        let ended = receiver.run(Some(200_000), |message| {
            bodies.push(show_body(message));
            Ok::<(), ClientError>(())
        });
        receiver.close().unwrap();
        client.close().unwrap();
        assert_eq!((ended.unwrap(), bodies.len()), expected, "{queue} {count:?}");
        assert_eq!(broker.join().unwrap().accepted, expected.1 as u64);
        assert!(bodies.first().is_none_or(|body| *body == format!("message {queue}")));
    };
    check("10", Some(3), (Ended::Complete, 3));
    check("500", Some(500), (Ended::Complete, 500));
    check("2", Some(3), (Ended::TimedOut, 2));
    check("250", None, (Ended::TimedOut, 250));
    check("0", None, (Ended::TimedOut, 0));
}

#[test]
fn browsing_ends_at_the_queues_end() {
    let check = |queue: &str, count: Option<u64>, expected: (Ended, u64)| {
        let (url, broker) = serve(None, 0);
        let mut client = Client::connect(&url).unwrap();
        let mut receiver = client.browse(queue, &Selection { count, selector: None }).unwrap();
        let mut seen = 0;
        let ended = receiver.run(None, |_| {
            seen += 1;
            Ok::<(), ClientError>(())
        });
        receiver.close().unwrap();
        client.close().unwrap();
        assert_eq!((ended.unwrap(), seen), expected, "{queue} {count:?}");
        assert_eq!(broker.join().unwrap().accepted, 0);
    };
    check("0", None, (Ended::QueueEnd, 0));
    check("3", None, (Ended::QueueEnd, 3));
    check("100", None, (Ended::QueueEnd, 100));
    check("250", None, (Ended::QueueEnd, 250));
    check("250", Some(120), (Ended::Complete, 120));
}

#[test]
fn an_address_that_does_not_exist_is_told_with_what_to_do() {
    for action in 0..3 {
        let (url, _broker) = serve(None, 0);
        let mut client = Client::connect(&url).unwrap();
        let error = match action {
            0 => client.send("missing", TextMessage::Text(""), 1, &SendOptions::default()).map(|_| ()),
            1 => client.receive("missing", &Selection::default()).map(|_| ()),
            _ => client.browse("missing", &Selection::default()).map(|_| ()),
        };
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("\"missing\" does not exist") && error.contains("corelane queue create"),
            "{error}"
        );
    }
}

#[test]
fn users_log_in_and_others_are_told_what_to_do() {
    let check = |credentials: Option<(&str, &str)>, expected: &str| {
        let (url, _broker) = serve(alice(), 0);
        let url = match credentials {
            Some((user, password)) => with_credentials(&url, user, password),
            None => url,
        };
        match Client::connect(&url) {
            Ok(client) => {
                client.close().unwrap();
                assert_eq!(expected, "");
            }
            Err(error) => assert!(!expected.is_empty() && error.to_string().contains(expected), "{error}"),
        }
    };
    check(Some(("alice", "open sesame")), "");
    check(Some(("alice", "wrong")), "refused user \"alice\": unknown, or the password is wrong");
    check(Some(("bob", "open sesame")), "refused user \"bob\"");
    check(None, "--url amqp://USER:PASSWORD@HOST:PORT");
    let (url, _broker) = serve(None, 0);
    Client::connect(&with_credentials(&url, "guest", "guest")).unwrap().close().unwrap();
}

/// What listens there need not be a broker.
#[test]
fn strangers_are_recognised() {
    let check = |answer: &'static [u8], expected: &str| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = url(listener.local_addr().unwrap());
        let stranger = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let error = Client::connect(&url).err().unwrap().to_string();
        assert!(error.contains(expected), "{answer:?}: {error}");
        stranger.join().unwrap();
    };
    check(b"", "Does an AMQP 1.0 broker listen there?");
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n", "");
    check(b"AMQP\0\0\x09\x01", "");
    check(b"AMQP\x03\x01\0\0\xff\xff\xff\xff\x02\x01\0\0", "");
    check(b"AMQP\x03\x01\0\0\0\0\0\x08\x02\x01\0\0", "");
}
