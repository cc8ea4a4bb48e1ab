//! Is a user kept from what it has no permission for, by both protocols, wherever the queue lives?

use std::sync::Arc;

use corelane_protocol::SessionId;
use corelane_shard::{Permission, Rights};
use corelane_sim::{
    ChannelClient, ExchangeKind, Operator, ReceiverOptions, SenderOptions, Setup, World, names_homed_at,
    request,
};
use corelane_wire::amqp10::{self, Value};
use corelane_wire::amqp091::{FieldValue, Properties, ShortStr, TableWriter};

const PLAIN: ExchangeKind<'static> =
    ExchangeKind { durable: false, auto_delete: false, internal: false, passive: false, arguments: &[] };
const REFUSED: &str = "channel closed: 403";

fn rights(patterns: [&str; 3]) -> Rights {
    let permission = Permission::new(patterns).expect("patterns");
    let permissions = [("/".into(), Arc::new(permission))].into_iter().collect();
    Rights { permissions, ..Rights::default() }
}

fn world(shards: usize, rights: Rights) -> World {
    let vhosts = vec!["blue".into()];
    World::new(&Setup { login: true, rights: Some(Arc::new(rights)), vhosts, ..Setup::new(shards) })
}

fn connect(world: &mut World) -> (usize, SessionId) {
    let number = world.connect_channels(0);
    let channel = world.channel_client(number).open_channel();
    world.run();
    world.channel_client(number).take_seen();
    (number, channel)
}

/// What a channel of its own sees of it.
fn seen(world: &mut World, act: impl FnOnce(&mut ChannelClient, SessionId)) -> Vec<String> {
    let (number, channel) = connect(world);
    act(world.channel_client(number), channel);
    world.run();
    world.channel_client(number).take_seen()
}

#[test]
fn a_virtual_host_without_permission_is_refused() {
    let mut world = world(1, rights(["", "", ""]));
    let number = world.connect_channels_in(0, "blue");
    assert_eq!(world.channel_client(number).take_seen(), ["closed: 530"]);
    let client = world.connect_in(0, "blue");
    assert_eq!(world.clients[client].closed, Some(Some("amqp:unauthorized-access".to_owned())));
    connect(&mut world);
}

#[test]
fn channels_need_the_right_that_each_request_is_about() {
    for shards in [1, 3] {
        for home in 0..shards {
            let queue = &names_homed_at(home, shards).next().expect("one of many");
            let check =
                |granted: [&str; 3], act: &dyn Fn(&mut ChannelClient, SessionId), is_allowed: bool| {
                    let seen = seen(&mut world(shards, rights(granted)), act);
                    let is_refused = seen.iter().any(|line| line == REFUSED);
                    assert_eq!(is_refused, !is_allowed, "{granted:?}: {seen:?}");
                };
            let all = ".*";
            let each = |act: &dyn Fn(&mut ChannelClient, SessionId), needed: [&str; 3]| {
                check(needed, act, true);
                for missing in (0..3).filter(|at| !needed[*at].is_empty()) {
                    let mut granted = [all; 3];
                    granted[missing] = "^other$";
                    check(granted, act, false);
                }
            };
            let queue_only = &*format!("^{queue}$");
            each(&|it, on| it.declare(on, queue, false), [queue_only, "", ""]);
            each(&|it, on| it.declare(on, "", false), ["^amq\\.gen-", "", ""]);
            each(&|it, on| it.delete(on, queue, false), [queue_only, "", ""]);
            each(&|it, on| it.purge(on, queue), ["", "", queue_only]);
            each(&|it, on| it.get(on, queue), ["", "", queue_only]);
            each(&|it, on| it.consume(on, queue, "tag", false), ["", "", queue_only]);
            each(&|it, on| it.bind(on, queue, ("amq.topic", ""), &[]), ["", queue_only, "^amq.topic$"]);
            each(&|it, on| it.unbind(on, queue, ("amq.topic", "")), ["", queue_only, "^amq.topic$"]);
            each(
                &|it, on| it.bind_exchange(on, "amq.topic", "amq.direct", ""),
                ["", "^amq.direct$", "topic"],
            );
            each(&|it, on| it.declare_exchange(on, "e", "topic", PLAIN), ["^e$", "", ""]);
            each(&|it, on| it.delete_exchange(on, "e", false), ["^e$", "", ""]);
            each(&|it, on| it.publish(on, queue, "m", false), ["", "^amq\\.default$", ""]);
            let to = ("amq.topic", "");
            let none = Properties::default();
            each(&|it, on| it.publish_to(on, to, &none, "m", false), ["", "^amq\\.topic$", ""]);
            let mut arguments = Vec::new();
            let mut writer = TableWriter::new(&mut arguments);
            writer.pair(ShortStr::literal("x-dead-letter-exchange"), FieldValue::LongString(b"dlx"));
            each(&|it, on| it.declare_durable(on, queue, &arguments), [queue_only, "^dlx$", queue_only]);
            let mut arguments = Vec::new();
            let mut writer = TableWriter::new(&mut arguments);
            writer.pair(ShortStr::literal("alternate-exchange"), FieldValue::LongString(b"amq.fanout"));
            let with = ExchangeKind { arguments: &arguments, ..PLAIN };
            each(&|it, on| it.declare_exchange(on, "e", "topic", with), ["^e$", "^amq.fanout$", "^e$"]);
            // Whoever may do nothing may look whether something is there.
            check([""; 3], &|it, on| it.look(on, queue), true);
        }
    }
}

#[test]
fn an_exchange_that_may_be_published_to_does_not_stand_for_another_one() {
    let mut world = world(1, rights(["", "^amq.topic$", ""]));
    let (number, channel) = connect(&mut world);
    for (exchange, expect) in [("amq.topic", &[][..]), ("amq.direct", &[REFUSED.to_owned()][..])] {
        let client = world.channel_client(number);
        client.publish_to(channel, (exchange, ""), &Properties::default(), "m", false);
        world.run();
        assert_eq!(world.channel_client(number).take_seen(), expect, "{exchange}");
    }
}

#[test]
fn who_has_logged_in_is_who_sends_unless_it_may_speak_for_others() {
    for is_impersonator in [false, true] {
        let rights = Rights { is_impersonator, ..rights([".*"; 3]) };
        let mut world = world(1, rights);
        let properties = Properties { user_id: Some(ShortStr::literal("other")), ..Properties::default() };
        let seen = seen(&mut world, |it, on| it.publish_to(on, ("", "q"), &properties, "m", false));
        let expect: &[&str] = if is_impersonator { &[] } else { &["channel closed: 406"] };
        assert_eq!(seen, expect);
    }
}

#[test]
fn links_need_the_right_to_their_node() {
    for shards in [1, 3] {
        for home in 0..shards {
            let queue = &names_homed_at(home, shards).next().expect("one of many");
            let only = &*format!("^{queue}$");
            let unauthorized = Some("amqp:unauthorized-access");
            let missing = Some("amqp:not-found");
            for (granted, address, receives, expect) in [
                ([only, only, ""], &**queue, false, None),
                ([only, "", only], queue, true, None),
                ([".*", "x", ".*"], queue, false, unauthorized),
                ([".*", ".*", "x"], queue, true, unauthorized),
                // It is not there, and may not be made.
                (["x", only, ""], queue, false, missing),
                (["x", "", only], queue, true, missing),
                (["", "^news$", ""], "topic://news", false, None),
                (["", "^news$", ""], "topic://news", true, unauthorized),
                (["", "", "^news$"], "topic://news", true, None),
                (["", "^amq.topic$", ""], "/exchanges/amq.topic/k", false, None),
                ([".*", "x", ".*"], "/exchanges/amq.topic/k", false, unauthorized),
            ] {
                let mut world = world(shards, rights(granted));
                let client = world.connect(0);
                let it = &mut world.clients[client];
                let link = if receives {
                    it.attach_receiver("link", address, &ReceiverOptions::default())
                } else {
                    it.attach_sender("link", address, &SenderOptions::default())
                };
                world.run();
                let detached = world.clients[client].detached.iter().find(|(ended, _)| *ended == link);
                let error = detached.map(|(_, error)| error.as_deref().unwrap_or_default());
                assert_eq!(error, expect, "{granted:?} {address} {receives}");
            }
        }
    }
}

#[test]
fn what_is_sent_to_any_address_needs_the_right_to_that() {
    for shards in [1, 3] {
        for home in 0..shards {
            let queue = &names_homed_at(home, shards).next().expect("one of many");
            let only = &*format!("^{queue}$");
            for (granted, expect) in [
                ([only, only, only], ""),
                ([only, "x", only], "the user has no permission to write where the message's `to` leads"),
                (["x", only, only], "there is no such queue"),
            ] {
                let mut world = world(shards, rights(granted));
                let client = world.connect(0);
                let options = SenderOptions { anonymous: true, ..SenderOptions::default() };
                let it = &mut world.clients[client];
                let link = it.attach_sender("link", "", &options);
                world.run();
                let to = amqp10::Properties { to: Some(queue), ..amqp10::Properties::default() };
                world.clients[client].send_with(link, "m", &to, &[], &amqp10::Header::default());
                world.run();
                let refusals = &world.clients[client].refusals;
                let said: Vec<&str> = refusals.iter().map(|(_, said)| &**said).collect();
                assert_eq!(said.join(" "), expect, "{granted:?}");
            }
        }
    }
}

#[test]
fn who_is_no_administrator_looks_and_changes_nothing() {
    let all = [".*"; 3];
    for (is_administrator, changed) in [(false, 403), (true, 204)] {
        let rights = Rights { is_administrator, ..rights(all) };
        let mut world = world(3, rights);
        let mut operator = Operator::new(&mut world, 0);
        for home in 0..3 {
            let queue = &names_homed_at(home, 3).next().expect("one of many");
            seen(&mut world, |it, on| it.declare(on, queue, false));
            let entity = ("queue", &**queue);
            let mut ask = |operation: &str| operator.ask(&mut world, operation, entity, &[], &[]);
            assert_eq!(ask("READ").status, 200);
            let create = ask("CREATE");
            assert_eq!(create.status, if is_administrator { 409 } else { 403 }, "{create:?}");
            for operation in ["UPDATE", "PURGE", "DELETE-MESSAGES", "MOVE", "COPY", "PEEK"] {
                let answer = ask(operation);
                assert_eq!(answer.status == 403, !is_administrator, "{operation}: {answer:?}");
            }
            let gone = ask("DELETE");
            assert_eq!(gone.status, changed, "{gone:?}");
            assert_eq!(ask("READ").status, if is_administrator { 404 } else { 200 });
        }
        let connection = operator.ask(&mut world, "DELETE", ("connection", "0-0"), &[], &[]);
        assert_eq!(connection.status == 403, !is_administrator, "{connection:?}");
    }
}

#[test]
fn an_answer_goes_only_where_who_asks_may_write() {
    for (write, expect) in [("^answers$", ""), ("^other$", "reply-to")] {
        let mut world = world(2, rights([".*", write, ".*"]));
        seen(&mut world, |it, on| it.declare(on, "answers", false));
        let client = world.connect(0);
        let link = world.clients[client].attach_sender("s", "$management", &SenderOptions::default());
        world.run();
        let query = [("operation", Value::String("QUERY")), ("type", Value::String("org.amqp.management"))];
        world.clients[client].send_bytes(link, &request("answers", 1, &query, &[]));
        world.run();
        let said: Vec<&str> = world.clients[client].refusals.iter().map(|(_, said)| &**said).collect();
        assert_eq!(said.is_empty(), expect.is_empty(), "{said:?}");
        assert!(said.concat().contains(expect), "{said:?}");
        let looked = seen(&mut world, |it, on| it.look(on, "answers"));
        let answers = usize::from(expect.is_empty());
        assert_eq!(looked, [format!("declared answers {answers} 0")]);
    }
}
