//! What are the shards told? The settings in the shards' own terms.
//!
//! Left out: everything that concerns one shard alone (its number, its core), which `boot` knows.

use corelane_protocol::amqp10;
use corelane_shard::{Access, DestinationRule as ShardRule, Destinations, Entry, PrefetchRule};
use corelane_wire::amqp10::{MapWriter, Value};

use super::{DestinationRule, PrefetchSetting, ServeSettings};
use crate::authenticate::AccessRules;

impl ServeSettings {
    /// Which ways in are open.
    pub fn access_rules(&self) -> AccessRules {
        AccessRules { has_users: self.access.users.is_some(), allow_anonymous: self.access.allow_anonymous }
    }

    /// Which ways in a shard offers.
    pub fn shard_access(&self) -> Access {
        let rules = self.access_rules();
        let entry = |loopback| Entry {
            mechanisms: rules.mechanisms(loopback).to_vec(),
            without_sasl: rules.anonymous(loopback),
        };
        Access { loopback: entry(true), elsewhere: entry(false) }
    }

    /// What AMQP 1.0 connections announce and are held to.
    pub fn shard_protocol(&self) -> amqp10::Config {
        amqp10::Config {
            container_id: container_id().into(),
            max_frame_size: self.limits.frame_size_max,
            idle_timeout_us: self.limits.idle_timeout_us,
            max_message_size: self.limits.message_size_max,
            // Clients that answer requests ask for it: a link without an address, each message with its own.
            offered_capabilities: vec!["ANONYMOUS-RELAY".into()],
            properties: product(),
            ..amqp10::Config::default()
        }
    }

    /// The properties of destinations.
    pub fn shard_destinations(&self) -> Destinations {
        let rules = self.destinations.rules.iter().map(shard_rule).collect();
        Destinations::new(rules, self.destinations.auto_create)
    }
}

fn shard_rule(rule: &DestinationRule) -> ShardRule {
    ShardRule {
        pattern: rule.pattern.clone(),
        exclusive: rule.exclusive,
        consumers_max: rule.consumers_max,
        prefetch: rule.prefetch.map(|prefetch| match prefetch {
            PrefetchSetting::None => PrefetchRule::None,
            PrefetchSetting::Inherit => PrefetchRule::Inherit,
            PrefetchSetting::Limit(limit) => PrefetchRule::Limit(limit),
        }),
        expiration_us: rule.expiration_us,
        priorities: rule.priorities,
        sticky_groups: rule.sticky_groups,
        auto_create: rule.auto_create,
    }
}

/// One for the host: a client that connects to two brokers sees two containers (AMQP 1.0 §2.7.1).
fn container_id() -> String {
    let host = rustix::system::uname();
    format!("corelane@{}", host.nodename().to_string_lossy())
}

/// The properties of our open, as an encoded map.
fn product() -> Vec<u8> {
    let mut properties = Vec::new();
    let mut map = MapWriter::new(&mut properties);
    map.symbol("product", &Value::String("Corelane"));
    map.symbol("version", &Value::String(env!("CARGO_PKG_VERSION")));
    map.finish();
    properties
}
