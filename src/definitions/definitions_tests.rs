//! Is an export of RabbitMQ understood, and is what is wrong with one told by its entry?

use corelane_wire::amqp091::{FieldValue, Table};

use super::*;

/// As RabbitMQ 3.10 writes it.
const EXPORT: &str = r#"{
  "rabbit_version": "3.10.8", "rabbitmq_version": "3.10.8",
  "product_name": "RabbitMQ", "product_version": "3.10.8",
  "users": [
    {"name": "guest", "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
     "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ["administrator"], "limits": {}},
    {"name": "app", "password_hash": "", "tags": "monitoring,impersonator"}
  ],
  "vhosts": [{"name": "/"}, {"name": "blue", "description": "", "tags": [], "metadata": {}}],
  "permissions": [
    {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "app", "vhost": "blue", "configure": "", "write": "^orders$", "read": ".*"}
  ],
  "topic_permissions": [{"user": "guest", "vhost": "/", "exchange": "amq.topic", "write": ".*", "read": ".*"}],
  "parameters": [],
  "global_parameters": [{"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-x"}],
  "policies": [
    {"vhost": "/", "name": "dead", "pattern": "^orders", "apply-to": "queues", "priority": 1,
     "definition": {"dead-letter-exchange": "dlx", "message-ttl": 60000, "ha-mode": "all"}},
    {"vhost": "/", "name": "ae", "pattern": ".*", "apply-to": "exchanges", "priority": 0,
     "definition": {"alternate-exchange": "amq.fanout"}}
  ],
  "queues": [
    {"name": "orders", "vhost": "blue", "durable": true, "auto_delete": false,
     "arguments": {"x-queue-type": "classic", "x-max-length": 10}}
  ],
  "exchanges": [
    {"name": "events", "vhost": "blue", "type": "topic", "durable": true, "auto_delete": false,
     "internal": false, "arguments": {}}
  ],
  "bindings": [
    {"source": "events", "vhost": "blue", "destination": "orders", "destination_type": "queue",
     "routing_key": "order.#", "arguments": {}}
  ]
}"#;

fn read(text: &str) -> Result<DefinitionsFile, DefinitionsError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("definitions.json");
    std::fs::write(&file, text).unwrap();
    DefinitionsFile::read(&file)
}

#[test]
fn an_export_of_rabbitmq_is_understood() {
    let read = read(EXPORT).unwrap();
    assert_eq!(read.vhosts.iter().map(String::as_str).collect::<Vec<_>>(), ["/", "blue"]);
    let guest = &read.users["guest"];
    assert!(guest.hash.as_ref().unwrap().accepts(b"test12"));
    assert!(guest.grants.rights().is_administrator);
    let app = &read.users["app"];
    assert_eq!(app.hash, None);
    assert!(app.grants.rights().is_impersonator);
    let permissions: Vec<_> = app.grants.permissions().collect();
    assert_eq!(permissions, [("blue", &["", "^orders$", ".*"].map(str::to_owned))]);
    let Definitions { exchanges, queues, bindings } = &read.shards;
    assert_eq!((&*exchanges[0].name, &*exchanges[0].kind, &*exchanges[0].vhost), ("events", "topic", "blue"));
    assert!(exchanges[0].durable && queues[0].durable && !queues[0].auto_delete);
    let maximum = Table::new(&queues[0].arguments).find("x-max-length").unwrap();
    assert_eq!(maximum, Some(FieldValue::Int64(10)));
    assert_eq!((&*bindings[0].destination, &*bindings[0].key), ("orders", &b"order.#"[..]));
    assert!(bindings[0].to_queue);
    assert_eq!(read.policies.len(), 1);
    let warnings = read.warnings.join("\n");
    for part in ["1 topic permissions", "\"ha-mode\" means nothing", "policy \"ae\" in vhost \"/\""] {
        assert!(warnings.contains(part), "lacks {part:?}: {warnings}");
    }
    assert_eq!(read.warnings.len(), 3, "{warnings}");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let check = |text: &str, parts: &[&str]| {
        let error = read(text).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: lacks {part:?}: {error}");
        }
    };
    check("{\n  \"queues\": [{]", &["definitions.json", "line 2 column 15"]);
    check("{\"queues\": [{\"name\": 1}]}", &["line 1 column", "expected a string"]);
    check("7", &["line 1"]);
    let queue = |rest: &str| format!("{{\"queues\": [{{\"name\": \"q\", \"vhost\": \"/\"{rest}}}]}}");
    assert!(read(&queue("")).is_ok());
    check(&queue(", \"arguments\": {\"x\": []}"), &["queue \"q\" in vhost \"/\"", "argument \"x\""]);
    check("{\"queues\": [{\"name\": \"q\", \"vhost\": \"v\"}]}", &["queue \"q\"", "no vhost \"v\""]);
    check("{\"queues\": [{\"name\": \"a\\u001fb\", \"vhost\": \"/\"}]}", &["no queue can have this name"]);
    check("{\"vhosts\": [{\"name\": \"a\\u001fb\"}]}", &["vhost", "control characters"]);
    let user = "{\"users\": [{\"name\": \"u\", \"password_hash\": \"AAAA\"}]}";
    check(user, &["user \"u\"", "password_hash"]);
    let permission = "{\"users\": [{\"name\": \"u\"}], \"permissions\": [{\"user\": \"u\", \"vhost\": \"/\", \
                      \"configure\": \"(\", \"write\": \"\", \"read\": \"\"}]}";
    check(permission, &["permission of user \"u\" in vhost \"/\"", "not a regular expression"]);
    check(&permission.replace("\"user\": \"u\"", "\"user\": \"x\""), &["there is no such user"]);
    let policy = "{\"policies\": [{\"vhost\": \"/\", \"name\": \"p\", \"pattern\": \"a\", \
                  \"definition\": {\"message-ttl\": -1}}]}";
    check(policy, &["policy \"p\" in vhost \"/\"", "x-message-ttl"]);
    let binding = "{\"bindings\": [{\"source\": \"e\", \"vhost\": \"/\", \"destination\": \"d\", \
                   \"destination_type\": \"x\"}]}";
    check(binding, &["binding of \"d\" to exchange \"e\"", "destination_type"]);
}
