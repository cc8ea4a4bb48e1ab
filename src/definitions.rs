//! What does a file of definitions say, as RabbitMQ exports them (`rabbitmqctl export_definitions`)?
//!
//! Virtual hosts, users with the hashes of their passwords, permissions, exchanges, queues, bindings and policies. What has no
//! meaning here (topic permissions, parameters, limits) is said in a warning, and so is a policy's key that is unknown.
//!
//! Invariants: a file is taken as a whole or not at all, and an error names the entry; nothing of it is written anywhere by
//! reading it. Left out: how what it defines comes to be (`corelane_shard::Definitions`), who checks passwords (`authenticate`).

mod arguments;
mod hash;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use corelane_shard::{
    BindingDefinition, Definitions, ExchangeDefinition, Policy, QueueDefinition, is_plain_name, is_vhost_name,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::regular_file::read_text;
use crate::users::{Grants, Tag, prepare_name};
pub use hash::PasswordHash;

/// Bytes of a file. A larger one is not read.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// What a file defines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DefinitionsFile {
    /// In order, with the default one if it stands there.
    pub vhosts: BTreeSet<String>,
    pub users: BTreeMap<String, DefinedUser>,
    pub policies: Vec<Policy>,
    pub shards: Definitions,
    /// What is left out.
    pub warnings: Vec<String>,
}

/// A user, and what it may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinedUser {
    /// None: it has no password, and nobody logs in as it.
    pub hash: Option<PasswordHash>,
    pub grants: Grants,
}

/// Why a file is not taken.
#[derive(Debug)]
pub enum DefinitionsError {
    Unreadable {
        file: PathBuf,
        error: std::io::Error,
    },
    /// Its text is not of that shape; says line and column.
    Malformed {
        file: PathBuf,
        error: serde_json::Error,
    },
    /// What is wrong with an entry.
    Entry {
        file: PathBuf,
        entry: String,
        why: String,
    },
}

impl fmt::Display for DefinitionsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefinitionsError::Unreadable { file, error } => {
                write!(formatter, "the definitions {} cannot be read: {error}", file.display())
            }
            DefinitionsError::Malformed { file, error } => {
                write!(formatter, "the definitions {} are not valid: {error}", file.display())
            }
            DefinitionsError::Entry { file, entry, why } => {
                write!(formatter, "the definitions {} are not valid: {entry}: {why}", file.display())
            }
        }
    }
}

impl std::error::Error for DefinitionsError {}

/// The file as it is written. Keys that are not named mean nothing here.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Text {
    users: Vec<User>,
    vhosts: Vec<Vhost>,
    permissions: Vec<Permission>,
    topic_permissions: Vec<Value>,
    parameters: Vec<Value>,
    policies: Vec<PolicyText>,
    queues: Vec<Queue>,
    exchanges: Vec<Exchange>,
    bindings: Vec<BindingText>,
}

#[derive(Deserialize)]
struct Vhost {
    name: String,
}

#[derive(Deserialize)]
struct User {
    name: String,
    #[serde(default)]
    password_hash: String,
    #[serde(default)]
    hashing_algorithm: Option<String>,
    #[serde(default)]
    tags: Tags,
}

/// Tags are a list since RabbitMQ 3.9, and were words with commas before.
#[derive(Deserialize)]
#[serde(untagged)]
enum Tags {
    List(Vec<String>),
    Words(String),
}

impl Default for Tags {
    fn default() -> Self {
        Tags::List(Vec::new())
    }
}

#[derive(Deserialize)]
struct Permission {
    user: String,
    vhost: String,
    configure: String,
    write: String,
    read: String,
}

#[derive(Deserialize)]
struct PolicyText {
    vhost: String,
    name: String,
    pattern: String,
    #[serde(rename = "apply-to", default)]
    apply_to: Option<String>,
    #[serde(default)]
    definition: Map<String, Value>,
    #[serde(default)]
    priority: i64,
}

#[derive(Deserialize)]
struct Queue {
    name: String,
    vhost: String,
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    auto_delete: bool,
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[derive(Deserialize)]
struct Exchange {
    name: String,
    vhost: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    auto_delete: bool,
    #[serde(default)]
    internal: bool,
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[derive(Deserialize)]
struct BindingText {
    source: String,
    vhost: String,
    destination: String,
    destination_type: String,
    #[serde(default)]
    routing_key: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// An entry, and what is wrong with it.
type Wrong = (String, String);

impl DefinitionsFile {
    pub fn read(file: &Path) -> Result<DefinitionsFile, DefinitionsError> {
        let text = read_text(file, FILE_BYTES_MAX)
            .map_err(|error| DefinitionsError::Unreadable { file: file.to_owned(), error })?;
        let text: Text = serde_json::from_str(&text)
            .map_err(|error| DefinitionsError::Malformed { file: file.to_owned(), error })?;
        let mut definitions = DefinitionsFile::default();
        definitions.take(text).map_err(|(entry, why)| DefinitionsError::Entry {
            file: file.to_owned(),
            entry,
            why,
        })?;
        Ok(definitions)
    }

    fn take(&mut self, text: Text) -> Result<(), Wrong> {
        for Vhost { name } in text.vhosts {
            if !is_vhost_name(&name) {
                return Err((
                    format!("vhost {name:?}"),
                    "1 to 255 bytes without control characters".to_owned(),
                ));
            }
            self.vhosts.insert(name);
        }
        text.users.into_iter().try_for_each(|user| self.take_user(user))?;
        text.permissions.into_iter().try_for_each(|permission| self.take_permission(permission))?;
        text.policies.iter().try_for_each(|policy| self.take_policy(policy))?;
        text.queues.into_iter().try_for_each(|queue| self.take_queue(queue))?;
        text.exchanges.into_iter().try_for_each(|exchange| self.take_exchange(exchange))?;
        text.bindings.into_iter().try_for_each(|binding| self.take_binding(binding))?;
        for (count, what) in [
            (text.topic_permissions.len(), "topic permissions"),
            (text.parameters.len(), "parameters of plug-ins and virtual hosts"),
        ] {
            if count > 0 {
                self.warnings.push(format!("{count} {what} mean nothing here and are left out"));
            }
        }
        Ok(())
    }

    fn check_vhost(&self, entry: &str, vhost: &str) -> Result<(), Wrong> {
        match vhost == "/" || self.vhosts.contains(vhost) {
            true => Ok(()),
            false => Err((entry.to_owned(), format!("there is no vhost {vhost:?}"))),
        }
    }

    fn take_user(&mut self, user: User) -> Result<(), Wrong> {
        let User { name, password_hash, hashing_algorithm, tags } = user;
        let entry = format!("user {name:?}");
        let wrong = |why: String| (entry.clone(), why);
        let name = prepare_name(&name).map_err(|error| wrong(error.to_string()))?;
        let hash = match &*password_hash {
            "" => None,
            text => Some(PasswordHash::read(text, hashing_algorithm.as_deref()).map_err(wrong)?),
        };
        let tags = match tags {
            Tags::List(tags) => tags,
            Tags::Words(words) => words.split(',').map(|word| word.trim().to_owned()).collect(),
        };
        let mut grants = Grants::default();
        for tag in tags.iter().filter(|tag| !tag.is_empty()) {
            match &**tag {
                "administrator" => drop(grants.tags.insert(Tag::Administrator)),
                "impersonator" => drop(grants.tags.insert(Tag::Impersonator)),
                // Everybody may look at what is in their virtual host.
                "management" | "monitoring" | "policymaker" => {}
                other => self.warnings.push(format!("{entry}: the tag {other:?} means nothing here")),
            }
        }
        match self.users.insert(name, DefinedUser { hash, grants }) {
            None => Ok(()),
            Some(_) => Err((entry, "it stands in the list twice".to_owned())),
        }
    }

    fn take_permission(&mut self, permission: Permission) -> Result<(), Wrong> {
        let Permission { user, vhost, configure, write, read } = permission;
        let entry = format!("permission of user {user:?} in vhost {vhost:?}");
        self.check_vhost(&entry, &vhost)?;
        let known = prepare_name(&user).ok().and_then(|name| self.users.get_mut(&name));
        let Some(known) = known else { return Err((entry, "there is no such user".to_owned())) };
        known.grants.permit(&vhost, [configure, write, read]).map_err(|why| (entry, why))
    }

    fn take_policy(&mut self, policy: &PolicyText) -> Result<(), Wrong> {
        let PolicyText { vhost, name, pattern, apply_to, definition, priority } = policy;
        let entry = format!("policy {name:?} in vhost {vhost:?}");
        self.check_vhost(&entry, vhost)?;
        if apply_to.as_deref() == Some("exchanges") {
            self.warnings.push(format!("{entry}: policies for exchanges mean nothing here"));
            return Ok(());
        }
        let arguments = definition.iter().map(|(key, value)| (format!("x-{key}"), value));
        let arguments = arguments::encoded(arguments).map_err(|why| (entry.clone(), why))?;
        let mut unknown = Vec::new();
        let made = Policy::new(vhost, pattern, *priority, &arguments, |key| unknown.push(key.to_owned()));
        let policy = made.map_err(|why| (entry.clone(), why))?;
        for key in unknown {
            let key = key.strip_prefix("x-").unwrap_or(&key);
            self.warnings.push(format!("{entry}: {key:?} means nothing here"));
        }
        self.policies.push(policy);
        Ok(())
    }

    fn take_queue(&mut self, queue: Queue) -> Result<(), Wrong> {
        let Queue { name, vhost, durable, auto_delete, arguments } = queue;
        let entry = format!("queue {name:?} in vhost {vhost:?}");
        self.check_vhost(&entry, &vhost)?;
        if !is_plain_name(&name) {
            return Err((entry, "no queue can have this name".to_owned()));
        }
        let arguments = arguments::encoded(arguments.iter()).map_err(|why| (entry, why))?;
        let (vhost, name) = (vhost.into(), name.into());
        self.shards.queues.push(QueueDefinition { vhost, name, durable, auto_delete, arguments });
        Ok(())
    }

    fn take_exchange(&mut self, exchange: Exchange) -> Result<(), Wrong> {
        let Exchange { name, vhost, kind, durable, auto_delete, internal, arguments } = exchange;
        let entry = format!("exchange {name:?} in vhost {vhost:?}");
        self.check_vhost(&entry, &vhost)?;
        let arguments = arguments::encoded(arguments.iter()).map_err(|why| (entry, why))?;
        let (vhost, name, kind) = (vhost.into(), name.into(), kind.into());
        let defined = ExchangeDefinition { vhost, name, kind, durable, auto_delete, internal, arguments };
        self.shards.exchanges.push(defined);
        Ok(())
    }

    fn take_binding(&mut self, binding: BindingText) -> Result<(), Wrong> {
        let BindingText { source, vhost, destination, destination_type, routing_key, arguments } = binding;
        let entry = format!("binding of {destination:?} to exchange {source:?} in vhost {vhost:?}");
        self.check_vhost(&entry, &vhost)?;
        let to_queue = match &*destination_type {
            "queue" => true,
            "exchange" => false,
            other => return Err((entry, format!("destination_type is {other:?}; allowed: queue, exchange"))),
        };
        let arguments = arguments::encoded(arguments.iter()).map_err(|why| (entry, why))?;
        self.shards.bindings.push(BindingDefinition {
            vhost: vhost.into(),
            source: source.into(),
            to_queue,
            destination: destination.into(),
            key: routing_key.into_bytes().into(),
            arguments,
        });
        Ok(())
    }
}

#[cfg(test)]
#[path = "definitions/definitions_tests.rs"]
mod tests;
