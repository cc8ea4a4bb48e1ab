//! What are the shards told? The settings in the shards' own terms.
//!
//! Left out: everything that concerns one shard alone (its number, its core), which `boot` knows.

use std::sync::Arc;

use corelane_protocol::amqp10::{Config, Sasl};
use corelane_protocol::amqp091;
use corelane_shard::limits::TRANSACTION_KEPT_BYTES_MAX;
use corelane_shard::quantity::show_size;
use corelane_shard::{Offers, ShardConfig};
use corelane_wire::amqp10::{MapWriter, Value};

use super::ServeSettings;
use crate::authenticate::AccessRules;

/// Multi-frame messages that one connection may be sending at the same time, if they are as large as they may be.
const JOINED_MESSAGES: u64 = 2;

impl ServeSettings {
    /// Bytes of the largest message that is taken where there are so many shards: as many as are allowed, if a shard that has no message
    /// has room for them. The eighth that is left is for what comes with them, and for vectors that are larger than what is in them.
    pub fn message_size_max(&self, shards: usize) -> u64 {
        let (allowed, memory) = (self.limits.message_size_max, self.limits.memory / shards as u64);
        let room = memory - memory / 8;
        if allowed <= room { allowed } else { room & !1023 }
    }

    /// What to say to who allows larger messages than there is memory for.
    pub fn size_warning(&self, shards: usize) -> Option<String> {
        let (allowed, taken) = (self.limits.message_size_max, self.message_size_max(shards));
        let needed =
            (allowed.saturating_mul(8).div_ceil(7).saturating_mul(shards as u64)).next_multiple_of(1 << 20);
        (taken < allowed).then(|| {
            format!(
                "messages of more than {} are refused, although max-message-size is {}: a message is in one shard, and each of {shards} \
                 has {} of the memory for messages. Give more with `--memory {}`, or say what holds with `--max-message-size {}`",
                show_size(taken),
                show_size(allowed),
                show_size(self.limits.memory / shards as u64),
                show_size(needed),
                show_size(taken)
            )
        })
    }

    /// What one of the shards is told. `boot` tells this run of the process from others.
    pub fn shard_config(&self, index: usize, shards: usize, boot: u64) -> ShardConfig {
        ShardConfig {
            index,
            shards,
            boot,
            loopback: self.offers(true, shards),
            elsewhere: self.offers(false, shards),
            destinations: self.destinations.clone(),
            vhosts: self.vhosts.clone(),
            definitions: self.definitions.clone(),
            memory: self.limits.memory / shards as u64,
            transaction_timeout_us: self.limits.transaction_timeout_us.unwrap_or(0),
            transaction_kept_bytes_max: TRANSACTION_KEPT_BYTES_MAX,
        }
    }

    /// Which ways in are open.
    pub fn access_rules(&self) -> AccessRules {
        AccessRules {
            has_users: self.access.users.is_some(),
            has_hashes: !self.defined_users.is_empty(),
            allow_anonymous: self.access.allow_anonymous,
        }
    }

    /// What connections are offered and held to, by where they come from.
    fn offers(&self, loopback: bool, shards: usize) -> Offers {
        Offers {
            amqp10: Arc::new(self.connection_config(loopback, shards)),
            amqp091: Arc::new(self.amqp091_config(loopback, shards)),
        }
    }

    /// The same of connections that speak AMQP 0-9-1.
    fn amqp091_config(&self, loopback: bool, shards: usize) -> amqp091::Config {
        let mechanisms = self.access_rules().mechanisms(loopback).iter();
        let mut mechanisms: Vec<Box<str>> = mechanisms.map(|name| Box::from(*name)).collect();
        if mechanisms.iter().any(|name| **name == *"PLAIN") {
            mechanisms.push("AMQPLAIN".into());
        }
        let message_size_max = self.message_size_max(shards);
        let joined = message_size_max.saturating_mul(JOINED_MESSAGES);
        amqp091::Config {
            properties: product_of_0_9_1(),
            login: amqp091::Login::Server { mechanisms },
            max_message_size: message_size_max,
            assembly_size_max: usize::try_from(joined).unwrap_or(usize::MAX),
            ..amqp091::Config::default()
        }
    }

    /// What AMQP 1.0 connections are offered and held to, by where they come from.
    fn connection_config(&self, loopback: bool, shards: usize) -> Config {
        let rules = self.access_rules();
        let mechanisms = rules.mechanisms(loopback).iter().map(|name| Box::from(*name)).collect();
        let message_size_max = self.message_size_max(shards);
        let joined = message_size_max.saturating_mul(JOINED_MESSAGES);
        Config {
            container_id: container_id().into(),
            max_frame_size: self.limits.frame_size_max,
            idle_timeout_us: self.limits.idle_timeout_us,
            max_message_size: message_size_max,
            assembly_size_max: usize::try_from(joined).unwrap_or(usize::MAX),
            // Clients ask for them: a link without an address, each message with its own; messages that are delivered later; consumers
            // that share a subscription.
            offered_capabilities: vec![
                "ANONYMOUS-RELAY".into(),
                "DELAYED_DELIVERY".into(),
                "SHARED-SUBS".into(),
            ],
            properties: product(),
            sasl: Sasl::Server { mechanisms, required: !rules.anonymous(loopback) },
            ..Config::default()
        }
    }
}

/// One for the host: a client that connects to two brokers sees two containers (AMQP 1.0 §2.7.1).
fn container_id() -> String {
    let host = rustix::system::uname();
    format!("corelane@{}", host.nodename().to_string_lossy())
}

/// The properties of our start. Clients decide by product and version whether a prefetch count is each consumer's or the channel's: it
/// is as in RabbitMQ since 3.3.
fn product_of_0_9_1() -> Vec<(Box<str>, Box<str>)> {
    let platform = concat!("Corelane ", env!("CARGO_PKG_VERSION"));
    let pairs = [("product", "RabbitMQ"), ("version", "3.13.7"), ("platform", platform)];
    pairs.map(|(name, value)| (name.into(), value.into())).into()
}

/// The properties of our open, as an encoded map.
fn product() -> Vec<u8> {
    let mut properties = Vec::new();
    let mut map = MapWriter::new(&mut properties);
    map.symbol("product", &Value::String("Corelane"));
    map.symbol("version", &Value::String(env!("CARGO_PKG_VERSION")));
    // Clients of JMS put it before the names of topics, so that a message's address alone says that it is one.
    map.symbol("topic-prefix", &Value::String("topic://"));
    map.finish();
    properties
}
