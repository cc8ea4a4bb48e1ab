//! One rule at a time.

use super::*;

/// One with exchanges (`kind name`, and `auto` for one that is deleted with its last binding) and bindings (`source > destination key`).
fn built(exchanges: &[&str], bindings: &[&str]) -> Exchanges<u32> {
    let mut built = Exchanges::started();
    for exchange in exchanges {
        let mut parts = exchange.split(' ');
        let (kind, name) = (parts.next().expect("a kind"), parts.next().expect("a name"));
        let is_auto_delete = parts.next() == Some("auto");
        built.change(Change::Declare(Declaration { is_auto_delete, ..declaration(kind, name) }));
    }
    for binding in bindings {
        assert!(built.change(Change::Bind(parsed(binding))).is_changed, "{binding}");
    }
    built
}

fn parsed(text: &str) -> Binding<u32> {
    let (source, rest) = text.split_once(" > ").expect("a source");
    let (destination, key) = rest.split_once(' ').unwrap_or((rest, ""));
    binding(source, destination, key, &[])
}

fn check(exchanges: &mut Exchanges<u32>, published: &str, expected: &str) {
    let (exchange, key) = published.split_once(' ').unwrap_or((published, ""));
    assert_eq!(exchanges.routed(exchange, key, &Told::default()).join(" "), expected, "{published}");
}

fn declare(name: &str, kind: &str, values: &[(&str, Value)]) -> Change<u32> {
    Change::Declare(Declaration { arguments: arguments(values), ..declaration(kind, name) })
}

fn delete(name: &str, if_unused: bool) -> Change<u32> {
    Change::Delete { vhost: VhostId(0), exchange: name.into(), if_unused }
}

/// What is gone, as `exchanges; bindings`.
fn gone(applied: &Applied<u32>) -> String {
    let mut exchanges: Vec<&str> = applied.exchanges.iter().map(|exchange| &*exchange.name).collect();
    exchanges.sort_unstable();
    let show = |(binding, _): &(Binding<u32>, bool)| {
        format!("{} > {} {}", binding.source, end_name(&binding.destination), binding.key.escape_ascii())
            .trim_end()
            .to_owned()
    };
    let mut bindings: Vec<String> = applied.bindings.iter().map(show).collect();
    bindings.sort_unstable();
    format!("{}; {}", exchanges.join(" "), bindings.join(", "))
}

#[test]
fn each_kind_chooses_by_its_rule() {
    let mut direct =
        built(&["direct x"], &["x > queue:1 a", "x > queue:2 b", "x > queue:3 a", "x > queue:4"]);
    check(&mut direct, "x a", "1 3");
    check(&mut direct, "x b", "2");
    check(&mut direct, "x", "4");
    check(&mut direct, "x c", "");
    let mut fanout = built(&["fanout x"], &["x > queue:1 a", "x > queue:1 b", "x > queue:2"]);
    check(&mut fanout, "x c", "1 2");
    let mut topic = built(
        &["topic x"],
        &["x > queue:1 a.*", "x > queue:2 a.#", "x > queue:3 #.b", "x > queue:4 a.>", "x > queue:5 a."],
    );
    check(&mut topic, "x a", "2");
    check(&mut topic, "x a.b", "1 2 3");
    check(&mut topic, "x a.c.b", "2 3");
    check(&mut topic, "x a.>", "1 2 4");
    check(&mut topic, "x a.", "1 2 5");
    check(&mut topic, "x", "");
    // Several keys.
    check(&mut direct, "x a|b|c|a", "1 2 3");
    check(&mut topic, "x a|a.c.b", "2 3");
    check(&mut fanout, "x a|b", "1 2");
    // Any bytes.
    for mut exchanges in [direct, topic] {
        let key: Arc<[u8]> = [b'a', 0xff][..].into();
        exchanges.change(Change::Bind(Binding { key: key.clone(), ..binding("x", "queue:9", "", &[]) }));
        let mut count = 0;
        exchanges.route(VhostId(0), "x", &[&key], &(), |found| {
            assert_eq!(found, Found::Queue(9));
            count += 1;
        });
        assert_eq!(count, 1);
    }
}

#[test]
fn headers_are_compared_as_values() {
    let check = |values: &[(&str, Value)], told: &[(&'static str, Value)], expected: bool| {
        let mut exchanges = built(&["headers x"], &[]);
        exchanges.change(Change::Bind(binding("x", "queue:1", "", values)));
        let told = Told { headers: told.to_vec(), ..Told::default() };
        assert_eq!(!exchanges.routed("x", "", &told).is_empty(), expected, "{values:?} for {told:?}");
        exchanges.change(Change::Unbind(binding("x", "queue:1", "", values)));
    };
    use HeaderValue::{Boolean, Bytes, Decimal, Float, Integer, Void};
    let any = ("x-match", text("any"));
    let one = Integer(1);
    // All is what is meant when nothing is said, and all of none is true.
    check(&[], &[], true);
    check(&[any], &[("a", one)], false);
    check(&[("a", one), ("b", one)], &[("a", one), ("b", one), ("c", one)], true);
    check(&[("a", one), ("b", one)], &[("a", one)], false);
    check(&[any, ("a", one), ("b", one)], &[("b", one)], true);
    check(&[any, ("a", one), ("b", one)], &[("b", Integer(2))], false);
    // Void stands for any value, void among them.
    check(&[("a", Void)], &[("a", one)], true);
    check(&[("a", Void)], &[("a", Void)], true);
    check(&[("a", Void)], &[("b", one)], false);
    check(&[("a", one)], &[("a", Void)], false);
    // Names that begin with `x-` count where it is said.
    check(&[("x-a", one)], &[], true);
    check(&[("x-match", text("all-with-x")), ("x-a", one)], &[], false);
    check(&[("x-match", text("all-with-x")), ("x-a", one)], &[("x-a", one)], true);
    check(&[("x-match", text("any")), ("x-a", one)], &[("x-a", one)], false);
    check(&[("x-match", text("any-with-x")), ("x-a", one)], &[("x-a", one)], true);
    // Numbers by what they stand for, all else by kind.
    check(&[("a", one)], &[("a", Float(1.0))], true);
    check(&[("a", Float(1.5))], &[("a", Float(1.5))], true);
    check(&[("a", Integer(0))], &[("a", Float(-0.0))], true);
    check(&[("a", Integer(i128::from(i64::MAX)))], &[("a", Float(i64::MAX as f64))], false);
    check(&[("a", one)], &[("a", text("1"))], false);
    check(&[("a", one)], &[("a", Boolean(true))], false);
    check(&[("a", Decimal { scale: 1, value: 15 })], &[("a", Decimal { scale: 1, value: 15 })], true);
    check(&[("a", Decimal { scale: 1, value: 15 })], &[("a", Float(1.5))], false);
    check(&[("a", Bytes(b"v"))], &[("a", HeaderValue::Array(b"v"))], false);
    check(&[("a", HeaderValue::Table(b"v"))], &[("a", HeaderValue::Table(b"v"))], true);
}

#[test]
fn bindings_that_say_something_wrong_are_refused() {
    let mut exchanges = built(&["headers h", "x-consistent-hash c"], &[]);
    let mut check = |asked: Binding<u32>, argument: &str| {
        let refusal = exchanges.apply(&Change::Bind(asked)).expect_err("it is wrong");
        assert!(matches!(refusal, Refusal::InvalidArgument { argument: named, .. } if named == argument));
        exchanges.verify();
    };
    check(binding("h", "queue:1", "", &[("x-match", text("some"))]), "x-match");
    check(binding("h", "queue:1", "", &[("x-match", HeaderValue::Integer(1))]), "x-match");
    for weight in ["", "0", "-1", "a", "1.5", "4294967296"] {
        check(binding("c", "queue:1", weight, &[]), "routing_key");
    }
}

#[test]
fn a_message_goes_from_exchange_to_exchange_and_to_each_queue_once() {
    let mut exchanges = built(
        &["fanout a", "direct b", "topic c"],
        &["a > b", "a > c", "b > queue:1 k", "c > queue:1 #", "c > queue:2 k", "c > a #", "a > a"],
    );
    check(&mut exchanges, "a k", "1 2");
    check(&mut exchanges, "c other", "1");
    check(&mut exchanges, "b k", "1");
    assert_eq!(exchanges.route(VhostId(0), "d", &[b"k"], &(), |_| panic!("none")), None);
    assert_eq!(exchanges.route(VhostId(1), "a", &[b"k"], &(), |_| panic!("none")), None);
}

#[test]
fn what_an_exchange_has_no_way_for_goes_to_its_alternate() {
    let mut exchanges = built(&["fanout spare"], &["spare > queue:9"]);
    for (name, alternate) in [("x", "spare"), ("y", "x"), ("own", "own"), ("lost", "nowhere")] {
        exchanges.change(declare(name, "direct", &[("alternate-exchange", text(alternate))]));
    }
    exchanges.change(Change::Bind(parsed("x > queue:1 k")));
    check(&mut exchanges, "x k", "1");
    check(&mut exchanges, "x other", "9");
    check(&mut exchanges, "y k", "1");
    check(&mut exchanges, "y other", "9");
    check(&mut exchanges, "own k", "");
    check(&mut exchanges, "lost k", "");
    // A way to an exchange is a way, whatever that does with it; and each exchange has its own alternate.
    exchanges.change(Change::Bind(parsed("x > lost far")));
    check(&mut exchanges, "x far", "");
    exchanges.change(Change::Bind(parsed("lost > y far")));
    check(&mut exchanges, "lost far", "");
    exchanges.change(Change::Bind(parsed("lost > y near")));
    check(&mut exchanges, "lost near", "9");
}

#[test]
fn what_an_exchange_holds_back_is_routed_from_it_later() {
    let mut exchanges = built(&["fanout a"], &["a > queue:1"]);
    exchanges.change(declare("later", "x-delayed-message", &[("x-delayed-type", text("topic"))]));
    for bound in ["a > later", "later > queue:2 k.*", "later > queue:3 j"] {
        exchanges.change(Change::Bind(parsed(bound)));
    }
    let told = Told { is_delayed: true, ..Told::default() };
    assert_eq!(exchanges.routed("a", "k.1", &told), ["1", "later"]);
    assert_eq!(exchanges.routed("later", "k.1", &told), ["later"]);
    check(&mut exchanges, "later k.1", "2");
    check(&mut exchanges, "a j", "1 3");
    for values in
        [&[][..], &[("x-delayed-type", text("x-delayed-message"))], &[("x-delayed-type", text("x"))]]
    {
        let refusal = exchanges.apply(&declare("other", "x-delayed-message", values));
        assert!(matches!(refusal, Err(Refusal::InvalidArgument { argument: "x-delayed-type", .. })));
    }
}

#[test]
fn a_route_says_what_it_depends_on() {
    let mut exchanges = built(
        &["topic t", "headers h", "x-consistent-hash c", "fanout f"],
        &["t > queue:1 #", "c > queue:1 1", "f > h other"],
    );
    exchanges.change(declare("m", "x-consistent-hash", &[("hash-property", text("message_id"))]));
    let mut by = |name: &str| exchanges.route(VhostId(0), name, &[b"k"], &(), |_| ());
    assert_eq!(by("t"), Some(RoutedBy::Keys));
    assert_eq!(by("c"), Some(RoutedBy::Keys));
    assert_eq!(by("m"), Some(RoutedBy::Message));
    assert_eq!(by("h"), Some(RoutedBy::Message));
    assert_eq!(by("f"), Some(RoutedBy::Message), "by what it leads to");
}

#[test]
fn bindings_are_what_they_name() {
    let mut exchanges = built(&["headers x"], &["x > queue:1 k", "x > queue:1 j", "x > queue:2 k"]);
    let values = [("a", HeaderValue::Integer(1)), ("b", text("v"))];
    let with = |values: &[(&str, Value)]| binding("x", "queue:1", "k", values);
    assert!(exchanges.change(Change::Bind(with(&values))).is_changed);
    // The same again, in another order.
    assert!(!exchanges.change(Change::Bind(with(&[values[1], values[0]]))).is_changed);
    assert!(!exchanges.change(Change::Bind(parsed("x > queue:1 k"))).is_changed);
    assert_eq!(exchanges.binding_count(), 4);
    let missing = ["x > queue:1 l", "x > queue:3 k", "x > y k", "y > queue:1 k", "y > z"];
    for unbound in missing {
        assert!(!exchanges.change(Change::Unbind(parsed(unbound))).is_changed, "{unbound}");
    }
    assert!(!exchanges.change(Change::Unbind(with(&values[..1]))).is_changed);
    let applied = exchanges.change(Change::Unbind(with(&[values[1], values[0]])));
    assert_eq!(gone(&applied), "; x > queue:1 k");
    assert_eq!(exchanges.binding_count(), 3);
    assert_eq!(exchanges.bindings_from(VhostId(0), "x").count(), 3);
    assert_eq!(exchanges.bindings_to_queue(1).count(), 2);
    assert_eq!(exchanges.bindings_to(VhostId(0), "x").count(), 0);
    for number in 0..1_000 {
        let bound = with(&[("number", HeaderValue::Integer(number))]);
        assert!(exchanges.apply(&Change::Bind(bound)).expect("a new one").is_changed, "{number}");
    }
    exchanges.verify();
}

#[test]
fn an_auto_delete_exchange_goes_with_the_last_binding_from_it() {
    let exchanges = ["fanout a auto", "fanout b auto", "fanout c auto", "fanout d"];
    let bindings = ["a > b", "b > c", "c > queue:1", "d > c", "c > queue:2"];
    let mut cascade = built(&exchanges, &bindings);
    assert_eq!(gone(&cascade.change(Change::RemoveQueue(1))), "; c > queue:1");
    let applied = cascade.change(Change::Unbind(parsed("c > queue:2")));
    assert_eq!(gone(&applied), "a b c; a > b, b > c, c > queue:2, d > c");
    assert_eq!((cascade.binding_count(), cascade.exchange_count()), (0, 6));

    // One that was never bound stays, and what it is bound to does not count.
    let mut unbound = built(&exchanges, &["d > a"]);
    assert_eq!(gone(&unbound.change(Change::Unbind(parsed("d > a")))), "; d > a");
    assert_eq!(unbound.exchange_count(), 9);

    // In a cycle each is deleted once.
    let mut cycle = built(&exchanges, &["a > b", "b > a", "a > a", "b > queue:1"]);
    assert_eq!(gone(&cycle.change(Change::RemoveQueue(1))), "; b > queue:1");
    assert_eq!(gone(&cycle.change(delete("b", false))), "b; a > b, b > a");
    assert_eq!(gone(&cycle.change(Change::Unbind(parsed("a > a")))), "a; a > a");

    let mut queue = built(&exchanges, &["a > queue:1", "b > queue:1", "b > queue:1 k"]);
    let applied = queue.change(Change::RemoveQueue(1));
    assert_eq!(gone(&applied), "a b; a > queue:1, b > queue:1, b > queue:1 k");
    assert!(!queue.change(Change::RemoveQueue(1)).is_changed);
}

#[test]
fn a_deleted_exchange_takes_its_bindings_along() {
    let mut exchanges = built(&["fanout a auto", "fanout b", "fanout c"], &["a > b", "b > queue:1", "c > b"]);
    assert!(matches!(exchanges.apply(&delete("b", true)), Err(Refusal::InUse(_))));
    assert_eq!(gone(&exchanges.change(delete("b", false))), "a b; a > b, b > queue:1, c > b");
    // Others lead to one that is unused.
    assert_eq!(gone(&exchanges.change(delete("c", true))), "c; ");
    assert!(!exchanges.change(delete("c", true)).is_changed);
}

#[test]
fn a_binding_is_durable_if_both_its_ends_are() {
    let mut exchanges = built(&["fanout a"], &["a > queue:1", "a > queue:2"]);
    exchanges.change(Change::Declare(Declaration { is_durable: false, ..declaration("fanout", "b") }));
    for bound in ["a > b", "b > a", "b > queue:1", "amq.topic > a #"] {
        exchanges.change(Change::Bind(parsed(bound)));
    }
    let mut durable: Vec<String> = exchanges
        .durable_bindings()
        .map(|binding| format!("{} > {}", binding.source, end_name(&binding.destination)))
        .collect();
    durable.sort();
    assert_eq!(durable, ["a > queue:1", "amq.topic > a"]);
    assert_eq!(exchanges.durable_exchanges().count(), 6);
}

#[test]
fn what_is_refused_is_said_in_the_usual_words() {
    let mut exchanges = built(&["direct x"], &["x > queue:1"]);
    exchanges.change(Change::Declare(Declaration { is_internal: true, ..declaration("fanout", "in") }));
    exchanges.change(declare("spare", "fanout", &[("alternate-exchange", text("x"))]));
    let mut check = |change: Change<u32>, expected: &str| {
        let before = (exchanges.exchange_count(), exchanges.binding_count());
        assert_eq!(exchanges.apply(&change).expect_err("it is refused").to_string(), expected);
        assert_eq!((exchanges.exchange_count(), exchanges.binding_count()), before);
    };
    let inequivalent = |change: fn(&mut Declaration)| {
        let mut asked = declaration("direct", "x");
        change(&mut asked);
        Change::Declare(asked)
    };
    check(
        inequivalent(|asked| asked.is_durable = false),
        "inequivalent arg 'durable' for exchange 'x' in vhost '/': received 'false' but current is 'true'",
    );
    check(
        inequivalent(|asked| asked.is_auto_delete = true),
        "inequivalent arg 'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
    );
    check(
        inequivalent(|asked| asked.is_internal = true),
        "inequivalent arg 'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
    );
    check(
        declare("x", "topic", &[]),
        "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is 'direct'",
    );
    check(
        declare("x", "direct", &[("alternate-exchange", text("y"))]),
        "inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/': \
         received the value 'y' of type 'longstr' but current is none",
    );
    check(
        declare("spare", "fanout", &[]),
        "inequivalent arg 'alternate-exchange' for exchange 'spare' in vhost '/': \
         received none but current is the value 'x' of type 'longstr'",
    );
    check(declare("amq.foo", "direct", &[]), "exchange name 'amq.foo' contains reserved prefix 'amq.*'");
    check(declare("", "direct", &[]), "operation not permitted on the default exchange");
    check(declare("new", "strange", &[]), "unknown exchange type 'strange'");
    check(delete("amq.direct", true), "deletion of system exchange 'amq.direct' in vhost '/' not allowed");
    check(delete("", false), "operation not permitted on the default exchange");
    check(delete("x", true), "exchange 'x' in vhost '/' in use");
    check(Change::Bind(parsed("nopex > queue:1")), "no exchange 'nopex' in vhost '/'");
    check(Change::Bind(parsed("x > nopex")), "no exchange 'nopex' in vhost '/'");
    check(Change::Bind(binding("", "queue:1", "", &[])), "operation not permitted on the default exchange");
    check(Change::Bind(binding("x", "", "", &[])), "operation not permitted on the default exchange");
    check(Change::Unbind(binding("x", "", "", &[])), "operation not permitted on the default exchange");
    let refusal = exchanges.check_publish(VhostId(0), "in").expect_err("internal");
    assert_eq!(refusal.to_string(), "cannot publish to internal exchange 'in' in vhost '/'");
    let refusal = exchanges.check_exists(VhostId(0), "nopex").expect_err("missing");
    assert_eq!(refusal.to_string(), "no exchange 'nopex' in vhost '/'");
}

#[test]
fn an_equal_declaration_is_nothing_new() {
    let mut exchanges = built(&["direct x"], &[]);
    for (name, kind) in [("x", "direct"), ("amq.topic", "topic"), ("amq.match", "headers")] {
        assert!(!exchanges.change(Change::Declare(declaration(kind, name))).is_changed);
        assert!(exchanges.check_publish(VhostId(0), name).is_ok());
    }
    // What nothing is done with does not count.
    assert!(!exchanges.change(declare("x", "direct", &[("x-note", text("n"))])).is_changed);
}

#[test]
fn virtual_hosts_know_nothing_of_each_other() {
    let mut exchanges = built(&["fanout x"], &["x > queue:1", "amq.fanout > x"]);
    exchanges.change(Change::AddVhost("other".into()));
    assert!(!exchanges.change(Change::AddVhost("other".into())).is_changed);
    let other = exchanges.vhost("other").expect("it was added");
    assert!(
        exchanges.check_exists(other, "x").is_err() && exchanges.check_exists(other, "amq.topic").is_ok()
    );
    exchanges.change(Change::Declare(Declaration { vhost: other, ..declaration("fanout", "x") }));
    exchanges.change(Change::Bind(Binding { vhost: other, ..parsed("x > queue:2") }));
    check(&mut exchanges, "x", "1");
    let applied = exchanges.change(Change::RemoveVhost(other));
    assert_eq!((applied.exchanges.len(), applied.bindings.len()), (6, 1));
    assert!(!exchanges.change(Change::RemoveVhost(other)).is_changed);
    assert_eq!(exchanges.vhost("other"), None);
    let late = Change::Declare(Declaration { vhost: other, ..declaration("fanout", "y") });
    assert!(matches!(exchanges.apply(&late), Err(Refusal::NoVhost)));
    exchanges.change(Change::AddVhost("other".into()));
    assert_ne!(exchanges.vhost("other"), Some(other), "what is late for the old one is not for the new one");
    check(&mut exchanges, "amq.fanout", "1");
}

#[test]
fn a_consistent_hash_shares_by_weight_and_moves_no_more_than_it_must() {
    let mut exchanges = built(&["x-consistent-hash x"], &[]);
    for (queue, weight) in [(0, "1"), (1, "1"), (2, "2"), (3, "4")] {
        exchanges.change(Change::Bind(binding("x", &format!("queue:{queue}"), weight, &[])));
    }
    let routed = |exchanges: &mut Exchanges<u32>| -> Vec<String> {
        let one = |key: u32| exchanges.routed("x", &format!("customer-{key}"), &Told::default()).join(" ");
        (0..8_000).map(one).collect()
    };
    let before = routed(&mut exchanges);
    for (queue, share) in [("0", 1_000), ("1", 1_000), ("2", 2_000), ("3", 4_000)] {
        let count = before.iter().filter(|to| *to == queue).count();
        assert!(count.abs_diff(share) < share / 8, "{count} of about {share} for {queue}");
    }
    exchanges.change(Change::RemoveQueue(1));
    let after = routed(&mut exchanges);
    for (before, after) in before.iter().zip(&after) {
        assert!(before == "1" || before == after, "only what went to the one that is gone moves");
        assert_ne!(after, "1");
    }
    exchanges.change(Change::Bind(binding("x", "queue:1", "1", &[])));
    assert_eq!(routed(&mut exchanges), before, "it has again what it had");
}

#[test]
fn a_consistent_hash_goes_the_same_way_in_each_version() {
    let mut exchanges = Exchanges::started();
    exchanges.change(declare("header", "x-consistent-hash", &[("hash-header", text("id"))]));
    exchanges.change(declare("property", "x-consistent-hash", &[("hash-property", text("message_id"))]));
    let both = [("hash-header", text("id")), ("hash-property", text("message_id"))];
    assert!(exchanges.apply(&declare("both", "x-consistent-hash", &both)).is_err());
    assert!(
        exchanges.apply(&declare("none", "x-consistent-hash", &[("hash-property", text("type"))])).is_err()
    );
    for queue in 0..10 {
        for name in ["header", "property"] {
            exchanges.change(Change::Bind(binding(name, &format!("queue:{queue}"), "1", &[])));
        }
    }
    let mut routed = |name: &str, id: &'static str| {
        let told = Told { headers: vec![("id", text(id))], message_id: Some(id), ..Told::default() };
        exchanges.routed(name, "key", &told).join(" ")
    };
    let ids = ["a", "b", "c", "d", "e", "f"];
    assert_eq!(ids.map(|id| routed("header", id)), ids.map(|id| routed("property", id)));
    assert_eq!(ids.map(|id| routed("header", id)).join(" "), "6 0 7 2 2 9");
    // Those without a value go together.
    assert_eq!(
        exchanges.routed("header", "a", &Told::default()),
        exchanges.routed("header", "b", &Told::default())
    );
    assert_eq!(exchanges.routed("property", "a", &Told::default()).len(), 1);
}

/// What routing a message costs.
fn work(exchanges: &mut Exchanges<u32>, name: &str, key: &str, told: &Told, expected: &str) -> u64 {
    exchanges.take_work();
    assert_eq!(exchanges.routed(name, key, told).join(" "), expected);
    exchanges.take_work()
}

#[test]
fn the_work_for_a_message_does_not_grow_with_bindings_that_are_elsewhere() {
    let mut exchanges = Exchanges::started();
    for queue in 0..10_000 {
        for (name, key) in [
            ("amq.topic", format!("orders.{queue}.*.#")),
            ("amq.topic", format!("*.{queue}.new")),
            ("amq.direct", format!("{queue}")),
        ] {
            let bound = binding(name, &format!("queue:{queue}"), &key, &[]);
            exchanges.apply(&Change::Bind(bound)).expect("a binding");
        }
        let values = [("kind", text("order")), ("number", HeaderValue::Integer(queue))];
        let bound = binding("amq.headers", &format!("queue:{queue}"), "", &values);
        exchanges.apply(&Change::Bind(bound)).expect("a binding");
    }
    exchanges.verify();
    let headers = vec![("kind", text("order")), ("number", HeaderValue::Integer(77))];
    let told = Told { headers, ..Told::default() };
    assert!(work(&mut exchanges, "amq.topic", "orders.77.new", &told, "77") <= 12);
    assert!(work(&mut exchanges, "amq.topic", "orders.none.new", &told, "") <= 8);
    assert!(work(&mut exchanges, "amq.direct", "77", &told, "77") <= 4);
    assert!(work(&mut exchanges, "amq.headers", "", &told, "77") <= 12);
    // What it has is counted all the same.
    exchanges.apply(&Change::Bind(parsed("amq.fanout > queue:1"))).expect("a binding");
    for key in 0..100 {
        exchanges.apply(&Change::Bind(parsed(&format!("amq.fanout > queue:1 {key}")))).expect("a binding");
    }
    assert!(work(&mut exchanges, "amq.fanout", "", &told, "1") >= 101);
}

#[test]
fn the_work_to_delete_an_exchange_grows_with_its_bindings_and_no_faster() {
    const COUNT: u32 = 1_000;
    for (kind, key) in
        [("direct", "k"), ("fanout", ""), ("topic", "#"), ("headers", ""), ("x-consistent-hash", "1")]
    {
        let mut exchanges = Exchanges::new(7);
        exchanges.apply(&Change::AddVhost("/".into())).expect("a new one");
        exchanges.apply(&Change::Declare(declaration(kind, "a"))).expect("a new one");
        for queue in 0..COUNT {
            let binding = binding("a", &format!("queue:{queue}"), key, &[("k", text("v"))]);
            exchanges.apply(&Change::Bind(binding)).expect("a new one");
        }
        exchanges.take_work();
        let applied = exchanges.apply(&delete("a", false)).expect("it is there");
        assert_eq!((applied.bindings.len(), exchanges.binding_count()), (COUNT as usize, 0));
        assert!(exchanges.take_work() <= 2 * u64::from(COUNT), "{kind}");
    }
}
