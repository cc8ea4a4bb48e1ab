//! What the management node does, over one shard and over several: what there is (`node`), what queues may be called and be given
//! (`queues`), why messages are not taken (`explaining`), what is done to messages (`messages`), what goes with those that are moved (`moving`), topics, subscriptions and links (`topics`), and messages that are not well-formed
//! (`unreadable`).

mod explaining;
mod messages;
mod moving;
mod node;
mod queues;
mod topics;
mod unreadable;

use corelane_protocol::amqp10::LinkId;
use corelane_sim::{Operator, ReceiverOptions, SenderOptions, Setup, World, names_homed_at};
use corelane_wire::amqp10::{Header, MessageId, Properties, Value};

pub fn world(shards: usize) -> World {
    World::new(&Setup::new(shards))
}

pub fn name_at(shard: usize, shards: usize) -> String {
    names_homed_at(shard, shards).next().expect("there is one for each shard")
}

pub fn other_at(shard: usize, shards: usize) -> String {
    names_homed_at(shard, shards).nth(1).expect("there are many for each shard")
}

/// Sends so many messages to a queue; their bodies are their numbers, each with the property `n`.
pub fn fill(world: &mut World, queue: &str, count: i32) {
    let client = world.connect(0);
    let sender = world.clients[client].attach_sender(queue, queue, &SenderOptions::default());
    world.run();
    for n in 0..count {
        let id = format!("id-{n}");
        let properties = Properties { message_id: Some(MessageId::String(&id)), ..Properties::default() };
        let application = [("n", Value::Int(n))];
        world.clients[client].send_with(
            sender,
            &n.to_string(),
            &properties,
            &application,
            &Header::default(),
        );
    }
    world.run();
}

pub fn consume(
    world: &mut World,
    shard: usize,
    queue: &str,
    options: &ReceiverOptions,
    credit: u32,
) -> (usize, LinkId) {
    let client = world.connect(shard);
    let link = world.clients[client].attach_receiver("consumer", queue, options);
    world.run();
    if credit > 0 {
        world.clients[client].credit(link, credit);
        world.run();
    }
    (client, link)
}

pub fn peek_bodies(operator: &mut Operator, world: &mut World, queue: &str) -> Vec<String> {
    let count = [("count", Value::Uint(1000))];
    let answer = operator.ask(world, "PEEK", ("queue", queue), &count, &[]);
    (0..).map(|n| answer.at(&format!("messages.{n}.body"))).take_while(|body| body != "null").collect()
}
