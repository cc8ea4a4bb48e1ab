//! Who gets in, how fast, and what does a hostile client achieve?

use std::path::{Path, PathBuf};

use corelane_shard::{Permission, Rights};
use rsasl::prelude::{Mechname, SASLClient, SASLConfig, State};

use super::*;
use crate::users::{self, Verifier};

const LOOPBACK: bool = true;
const ELSEWHERE: bool = false;
const SHARD: usize = 3;
const CONNECTION: ConnectionId = ConnectionId(77);

/// A broker's side with the user alice, whose password is `open sesame`.
struct World {
    authenticator: Authenticator,
    now: u64,
    folder: tempfile::TempDir,
}

/// What a client got in the end.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Accepted(String),
    Refused,
    /// Asked to go on.
    Challenged(Vec<u8>),
    Silence,
}

impl World {
    fn with_alice(allow_anonymous: bool) -> World {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users.txt");
        add_user(&file, "alice", "open sesame");
        let source = UsersSource::open(&file).unwrap();
        World {
            authenticator: Authenticator::new(allow_anonymous, Some(source), BTreeMap::new(), [9; 32]),
            now: 1_000_000,
            folder,
        }
    }

    fn without_users(allow_anonymous: bool) -> World {
        let folder = tempfile::tempdir().unwrap();
        World {
            authenticator: Authenticator::new(allow_anonymous, None, BTreeMap::new(), [9; 32]),
            now: 1_000_000,
            folder,
        }
    }

    fn users_file(&self) -> PathBuf {
        self.folder.path().join("users.txt")
    }

    fn start(&mut self, mechanism: &str, initial_response: Option<&[u8]>, loopback: bool) -> End {
        let step = SaslStep::Start {
            mechanism: mechanism.to_owned(),
            initial_response: initial_response.map(<[u8]>::to_vec),
            peer: peer(loopback),
        };
        self.step(step)
    }

    /// The answer to a step; time passes if it is held back.
    fn step(&mut self, step: SaslStep) -> End {
        self.authenticator.handle_step(self.now, SHARD, CONNECTION, step);
        if let Some(reply) = self.authenticator.poll_reply() {
            return end(reply);
        }
        let Some(deadline) = self.authenticator.next_deadline() else { return End::Silence };
        self.now = deadline;
        self.authenticator.handle_timeout(self.now);
        self.authenticator.poll_reply().map_or(End::Silence, end)
    }

    /// A whole exchange with the library's client.
    fn client(&mut self, mechanism: &str, user: &str, password: &str) -> End {
        let config = SASLConfig::with_credentials(None, user.to_owned(), password.to_owned()).unwrap();
        let name = Mechname::parse(mechanism.as_bytes()).unwrap();
        let mut session = SASLClient::new(config).start_suggested(&[name]).unwrap();
        let mut output = Vec::new();
        let mut state = session.step(None, &mut output).unwrap();
        let mut answer = self.start(mechanism, Some(&output), ELSEWHERE);
        while let End::Challenged(challenge) = answer {
            assert!(state.is_running());
            output.clear();
            state = session.step(Some(&challenge), &mut output).unwrap();
            answer = self.step(SaslStep::Response(output.clone()));
        }
        answer
    }
}

fn peer(loopback: bool) -> Peer {
    Peer { loopback, address: None }
}

fn end(reply: Reply) -> End {
    assert_eq!((reply.shard, reply.connection), (SHARD, CONNECTION));
    match reply.reply {
        SaslReply::Accepted { user, .. } => End::Accepted(user.unwrap_or_else(|| "anonymous".to_owned())),
        SaslReply::Refused => End::Refused,
        SaslReply::Challenge(challenge) => End::Challenged(challenge),
    }
}

fn add_user(file: &Path, name: &str, password: &str) {
    let verifier = Verifier::new(password, b"a salt of ours", 4096);
    users::update(file, |users| {
        users.insert(name.to_owned(), verifier);
        true
    })
    .unwrap();
}

fn accepted(user: &str) -> End {
    End::Accepted(user.to_owned())
}

#[test]
fn passwords_in_the_clear_are_checked_against_verifiers() {
    let mut world = World::with_alice(false);
    let mut check = |message: &[u8], expected: End| {
        for loopback in [LOOPBACK, ELSEWHERE] {
            assert_eq!(world.start(PLAIN, Some(message), loopback), expected, "{message:?}");
        }
    };
    check(b"\0alice\0open sesame", accepted("alice"));
    check(b"alice\0alice\0open sesame", accepted("alice"));
    check(b"\0alice\0open sesam", End::Refused);
    check(b"\0alice\0", End::Refused);
    check(b"\0bob\0open sesame", End::Refused);
    check(b"bob\0alice\0open sesame", End::Refused);
    check(b"\0\0open sesame", End::Refused);
    check(b"\0guest\0guest", End::Refused);
    check(b"alice", End::Refused);
    check(b"\0alice\0open sesame\0", End::Refused);
    check(b"", End::Refused);
    check(b"\0alice\0\xff\xfe", End::Refused);
    check(&[b'x'; 5000], End::Refused);
}

#[test]
fn a_right_password_is_right_again_and_a_changed_one_is_not() {
    let mut world = World::with_alice(false);
    for _ in 0..3 {
        assert_eq!(world.client(PLAIN, "alice", "open sesame"), accepted("alice"));
        assert_eq!(world.client(PLAIN, "alice", "close sesame"), End::Refused);
    }
    add_user(&world.users_file(), "alice", "another word");
    world.now += 2_000_000;
    assert_eq!(world.client(PLAIN, "alice", "open sesame"), End::Refused);
    assert_eq!(world.client(PLAIN, "alice", "another word"), accepted("alice"));
}

#[test]
fn a_users_file_that_changed_is_read_again_and_a_broken_one_is_not_taken() {
    let mut world = World::with_alice(false);
    assert_eq!(world.client(PLAIN, "bob", "two"), End::Refused);
    add_user(&world.users_file(), "bob", "two");
    world.now += 2_000_000;
    assert_eq!(world.client(SCRAM, "bob", "two"), accepted("bob"));
    std::fs::write(world.users_file(), "bob").unwrap();
    world.now += 2_000_000;
    assert_eq!(world.client(SCRAM, "bob", "two"), accepted("bob"));
}

#[test]
fn scram_proves_the_password() {
    let mut world = World::with_alice(false);
    assert_eq!(world.client(SCRAM, "alice", "open sesame"), accepted("alice"));
    assert_eq!(world.client(SCRAM, "alice", "open sesam"), End::Refused);
    assert_eq!(world.client(SCRAM, "bob", "open sesame"), End::Refused);
    assert_eq!(world.authenticator.accepted_count(), 1);
    assert_eq!(world.authenticator.refused_count(RefusalReason::Credentials), 2);
}

#[test]
fn names_are_escaped_in_scram_and_prepared_everywhere() {
    let mut world = World::with_alice(false);
    add_user(&world.users_file(), "IX,a=b", "one");
    world.now += 2_000_000;
    // RFC 4013: the Roman numeral nine is the same name as two letters.
    for name in ["IX,a=b", "\u{2168},a=b"] {
        assert_eq!(world.client(SCRAM, name, "one"), accepted("IX,a=b"), "{name}");
        assert_eq!(world.client(PLAIN, name, "one"), accepted("IX,a=b"), "{name}");
    }
}

/// RFC 5802 §3: the client sees that the server knows the verifier too.
#[test]
fn the_acceptance_carries_the_servers_signature() {
    let mut world = World::with_alice(false);
    let config = SASLConfig::with_credentials(None, "alice".to_owned(), "open sesame".to_owned()).unwrap();
    let name = Mechname::parse(SCRAM.as_bytes()).unwrap();
    let mut session = SASLClient::new(config).start_suggested(&[name]).unwrap();
    let mut output = Vec::new();
    session.step(None, &mut output).unwrap();
    let End::Challenged(challenge) = world.start(SCRAM, Some(&output), ELSEWHERE) else { panic!() };
    output.clear();
    session.step(Some(&challenge), &mut output).unwrap();
    world.authenticator.handle_step(world.now, SHARD, CONNECTION, SaslStep::Response(output));
    let reply = world.authenticator.poll_reply().unwrap().reply;
    let SaslReply::Accepted { additional, .. } = reply else { panic!("{reply:?}") };
    assert!(additional.starts_with(b"v="));
    let state = session.step(Some(&additional), &mut Vec::new()).unwrap();
    assert!(matches!(state, State::Finished(_)));
}

#[test]
fn unknown_users_look_like_wrong_passwords() {
    let mut world = World::with_alice(false);
    let first = |world: &mut World, user: &str| {
        let message = format!("n,,n={user},r=nonce");
        let End::Challenged(challenge) = world.start(SCRAM, Some(message.as_bytes()), ELSEWHERE) else {
            panic!()
        };
        let challenge = String::from_utf8(challenge).unwrap();
        let (_, salt_and_iterations) = challenge.split_once(",s=").unwrap();
        assert_eq!(world.step(SaslStep::Abandon), End::Silence);
        salt_and_iterations.to_owned()
    };
    let unknown = first(&mut world, "bob");
    assert_eq!(unknown, first(&mut world, "bob"), "the salt of an unknown user must not change");
    assert_ne!(unknown, first(&mut world, "carol"));
    let known = first(&mut world, "alice");
    let iterations = |text: &str| text.split_once(",i=").unwrap().1.to_owned();
    assert_eq!(iterations(&unknown), iterations(&known));
}

/// The library's parser indexes attributes without looking at their length: what would go wrong there is refused before.
#[test]
fn malformed_scram_messages_are_refused() {
    let firsts: &[&[u8]] = &[
        b"",
        b",",
        b",,",
        b",,,",
        b"n",
        b"n,",
        b"n,,",
        b"n,,n",
        b"n,,n=a",
        b"n,,n=a,",
        b"n,,n=a,r",
        b"n,a,n=a,r=x",
        b"n,,,",
        b"n,,n=a,x",
        b"n,,m=x,n=a,r=x",
        b"x,,n=a,r=x",
        b"p,,n=a,r=x",
        b"p=tls-unique,,n=a,r=x",
        b"n,,n=a,r=x,",
        b"n,,n=a,r=x,y",
        b"n,,n=\xff,r=x",
        b"n,,n=a,r=\x01",
        b"\0\0\0\0",
        b"n,,r=x,n=a",
    ];
    for first in firsts {
        let mut world = World::with_alice(false);
        assert_eq!(world.start(SCRAM, Some(first), ELSEWHERE), End::Refused, "{first:?}");
        assert_eq!(world.authenticator.refused_count(RefusalReason::Malformed), 1, "{first:?}");
    }
    let finals: &[&[u8]] = &[
        b"",
        b",",
        b"c",
        b"c=",
        b"c=biws",
        b"c=biws,",
        b"c=biws,r",
        b"c=biws,r=x",
        b"c=biws,r=x,",
        b"c=biws,r=x,p",
        b"c=biws,r=x,,p=",
        b"c=biws,r=x,p=AAAA,",
        b"c=biws,r=x,p=AAAA,p=",
        b"c=biws,r=x,p=!",
        b"c=!,r=x,p=AAAA",
        b"c=biws,r=nonce,p=AAAA",
        b"c=biws,r=x,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        b"c=biws,r=x,p=AAAA,x=y",
    ];
    for message in finals {
        let mut world = World::with_alice(false);
        let answer = world.start(SCRAM, Some(b"n,,n=alice,r=nonce"), ELSEWHERE);
        assert!(matches!(answer, End::Challenged(_)));
        assert_eq!(world.step(SaslStep::Response(message.to_vec())), End::Refused, "{message:?}");
    }
}

/// Any bytes at all, at either step: refused or challenged, never a panic.
#[test]
fn random_messages_are_survived() {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    const PIECES: &[&str] =
        &["n", "y", "p=", ",", ",", "=", "c=biws", "r=nonce", "p=AAAA", "n=alice", "m=", "a=", "é", "\0"];
    let mut world = World::with_alice(false);
    for _ in 0..5_000 {
        let mut message = || -> Vec<u8> {
            (0..random(9))
                .flat_map(|_| PIECES[random(PIECES.len() as u64) as usize].bytes().collect::<Vec<_>>())
                .collect()
        };
        let (first, second) = (message(), message());
        if let End::Challenged(_) = world.start(SCRAM, Some(&first), ELSEWHERE) {
            assert_eq!(world.step(SaslStep::Response(second)), End::Refused);
        }
        assert_eq!(world.start(PLAIN, Some(&first), ELSEWHERE), End::Refused);
    }
}

#[test]
fn without_users_loopback_alone_is_let_in() {
    let mut world = World::without_users(false);
    assert_eq!(world.start(ANONYMOUS, Some(b"anonymous"), LOOPBACK), accepted("anonymous"));
    assert_eq!(world.start(ANONYMOUS, None, LOOPBACK), accepted("anonymous"));
    assert_eq!(world.start(PLAIN, Some(b"\0guest\0guest"), LOOPBACK), accepted("guest"));
    assert_eq!(world.start(PLAIN, Some(b"\0guest\0gast"), LOOPBACK), End::Refused);
    assert_eq!(world.start(PLAIN, Some(b"\0admin\0guest"), LOOPBACK), End::Refused);
    assert_eq!(world.start(PLAIN, Some(b"\0guest\0guest"), ELSEWHERE), End::Refused);
    assert_eq!(world.start(ANONYMOUS, None, ELSEWHERE), End::Refused);
    assert_eq!(world.start(SCRAM, Some(b"n,,n=guest,r=nonce"), LOOPBACK), End::Refused);
    assert_eq!(world.start("EXTERNAL", None, LOOPBACK), End::Refused);
    assert_eq!(world.start("", None, LOOPBACK), End::Refused);
}

#[test]
fn users_switch_the_defaults_off_and_a_word_lets_everyone_in() {
    let mut world = World::with_alice(false);
    assert_eq!(world.start(ANONYMOUS, None, LOOPBACK), End::Refused);
    let mut world = World::with_alice(true);
    assert_eq!(world.start(ANONYMOUS, None, ELSEWHERE), accepted("anonymous"));
    assert_eq!(world.start(PLAIN, Some(b"\0guest\0guest"), LOOPBACK), End::Refused);
    let mut world = World::without_users(true);
    assert_eq!(world.start(ANONYMOUS, None, ELSEWHERE), accepted("anonymous"));
    assert_eq!(world.start(PLAIN, Some(b"\0guest\0guest"), ELSEWHERE), End::Refused);
}

/// AMQP 1.0 §5.3.3.3: without an initial response the mechanism's first message is asked for.
#[test]
fn a_missing_initial_response_is_asked_for() {
    let mut world = World::with_alice(false);
    assert_eq!(world.start(PLAIN, None, ELSEWHERE), End::Challenged(Vec::new()));
    assert_eq!(world.step(SaslStep::Response(b"\0alice\0open sesame".to_vec())), accepted("alice"));
}

#[test]
fn a_refusal_is_slow_and_an_acceptance_is_not() {
    let mut world = World::with_alice(false);
    let begun = world.now;
    assert_eq!(world.client(PLAIN, "alice", "open sesame"), accepted("alice"));
    assert_eq!(world.now, begun);
    assert_eq!(world.client(PLAIN, "alice", "wrong"), End::Refused);
    assert_eq!(world.now, begun + REFUSAL_DELAY_US);
}

#[test]
fn a_response_without_an_exchange_is_refused_once() {
    let mut world = World::with_alice(false);
    for _ in 0..3 {
        let step = SaslStep::Response(b"\0alice\0open sesame".to_vec());
        world.authenticator.handle_step(world.now, SHARD, CONNECTION, step);
    }
    world.authenticator.handle_timeout(world.now + REFUSAL_DELAY_US);
    assert_eq!(world.authenticator.poll_reply().map(end), Some(End::Refused));
    assert_eq!(world.authenticator.poll_reply(), None);
}

#[test]
fn what_is_open_and_held_back_is_bounded() {
    let mut world = World::with_alice(false);
    let start =
        || SaslStep::Start { mechanism: SCRAM.to_owned(), initial_response: None, peer: peer(ELSEWHERE) };
    for index in 0..EXCHANGES_MAX as u64 + 10 {
        world.authenticator.handle_step(index, SHARD, ConnectionId(index), start());
    }
    assert_eq!(world.authenticator.exchanges.len(), EXCHANGES_MAX);
    assert_eq!(world.authenticator.refused_count(RefusalReason::Crowded), 10);
    while world.authenticator.poll_reply().is_some() {}
    world.authenticator.handle_timeout(EXCHANGE_US_MAX + 5000);
    assert!(world.authenticator.exchanges.is_empty());
    assert_eq!(world.authenticator.refused_count(RefusalReason::Slow), EXCHANGES_MAX as u64);
    for index in 0..REFUSALS_MAX as u64 * 2 {
        let step =
            SaslStep::Start { mechanism: "NONE".to_owned(), initial_response: None, peer: peer(ELSEWHERE) };
        world.authenticator.handle_step(EXCHANGE_US_MAX * 2, SHARD, ConnectionId(index), step);
        assert!(world.authenticator.held_back.len() <= REFUSALS_MAX);
    }
}

#[test]
fn an_abandoned_exchange_leaves_nothing() {
    let mut world = World::with_alice(false);
    assert_eq!(world.start(PLAIN, None, ELSEWHERE), End::Challenged(Vec::new()));
    assert_eq!(world.step(SaslStep::Abandon), End::Silence);
    let wrong = SaslStep::Start {
        mechanism: PLAIN.to_owned(),
        initial_response: Some(b"\0alice\0wrong".to_vec()),
        peer: peer(ELSEWHERE),
    };
    world.authenticator.handle_step(world.now, SHARD, CONNECTION, wrong);
    assert_eq!(world.step(SaslStep::Abandon), End::Silence);
    assert_eq!(world.authenticator.next_deadline(), None);
}

#[test]
fn a_refused_client_is_known_by_the_name_it_gave() {
    let world = World::with_alice(false);
    let check = |mechanism: &str, message: &[u8], expected: Option<&str>| {
        let exchange = Exchange::new(mechanism, Arc::clone(&world.authenticator.verifiers)).unwrap();
        assert_eq!(exchange.user_named(message).as_deref(), expected, "{mechanism} {message:?}");
    };
    check(PLAIN, b"\0mallory\0guess", Some("mallory"));
    check(PLAIN, b"root\0mallory\0guess", Some("mallory"));
    check(PLAIN, b"nothing", None);
    check(SCRAM, b"n,,n=mallory,r=abc", Some("mallory"));
    check(SCRAM, b"n,", None);
    check(ANONYMOUS, b"mallory", None);
    check(PLAIN, &[[b'\0'; 1].as_slice(), &[b'm'; 1000]].concat(), Some(&"m".repeat(64)));
}

#[test]
fn what_a_user_may_do_comes_with_its_login() {
    let mut world = World::with_alice(true);
    let rights = |world: &mut World, mechanism: &str, message: &[u8]| {
        let step = SaslStep::Start {
            mechanism: mechanism.to_owned(),
            initial_response: Some(message.to_vec()),
            peer: peer(ELSEWHERE),
        };
        world.authenticator.handle_step(world.now, SHARD, CONNECTION, step);
        match world.authenticator.poll_reply().unwrap().reply {
            SaslReply::Accepted { rights, .. } => rights,
            other => panic!("{other:?}"),
        }
    };
    let login = b"\0alice\0open sesame";
    assert_eq!(rights(&mut world, PLAIN, login), None, "nobody was permitted anything");
    assert_eq!(rights(&mut world, ANONYMOUS, b""), None);
    let patterns = ["a", "b", "c"];
    users::update(&world.users_file(), |users| {
        users.change_grants("alice", |grants| grants.permit("/", patterns.map(str::to_owned))).is_ok()
    })
    .unwrap();
    world.now += 2_000_000;
    let granted = rights(&mut world, PLAIN, login).unwrap();
    let permission = Permission::new(patterns).unwrap();
    assert_eq!(*granted.permissions["/"], permission);
    assert!(!granted.is_administrator);
    let nobody = rights(&mut world, ANONYMOUS, b"").unwrap();
    assert_eq!(*nobody, Rights::default(), "who says no name has what `anonymous` was granted");
}
