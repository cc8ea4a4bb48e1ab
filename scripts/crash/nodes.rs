//! What is there to send to and to receive from? Queues and durable subscriptions, and how they are configured.

/// The topic that all subscriptions are to.
pub const TOPIC: &str = "topic://crash.topic";

/// Messages that the queue with few places holds.
const FEW: u32 = 40;
/// Failed deliveries after which a message dies, where that is configured.
const DELIVERIES_MAX: u32 = 3;

/// A queue, or a durable subscription.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Of a subscription: of its link and its container.
    pub name: String,
    pub is_subscription: bool,
    /// Where what is rejected goes.
    pub dead_letter: Option<usize>,
    /// Failed deliveries after which it goes there, too.
    pub deliveries_max: Option<u32>,
    /// Further messages are refused.
    pub messages_max: Option<u32>,
    /// What is delivered from it is on the disk.
    pub after_sync: bool,
    /// Nobody sends to it.
    pub is_dead_end: bool,
}

/// All of them. Names are so many that they have homes on all shards.
pub fn nodes() -> Vec<Node> {
    let named = |name: String| Node { name, ..Node::default() };
    let mut nodes: Vec<Node> = (0..6).map(|number| named(format!("crash.plain{number}"))).collect();
    nodes.push(Node { messages_max: Some(FEW), ..named("crash.few".to_owned()) });
    nodes.push(Node { after_sync: true, ..named("crash.synced".to_owned()) });
    for number in 0..4 {
        let dead_letter = Some(nodes.len() + 1);
        let deliveries_max = (number % 2 == 1).then_some(DELIVERIES_MAX);
        nodes.push(Node { dead_letter, deliveries_max, ..named(format!("crash.mortal{number}")) });
        nodes.push(Node { is_dead_end: true, ..named(format!("crash.dead{number}")) });
    }
    nodes.extend(
        (0..2).map(|number| Node { is_subscription: true, ..named(format!("crash-subscriber{number}")) }),
    );
    nodes
}

/// The broker's configuration file.
pub fn configuration(nodes: &[Node]) -> String {
    let mut text = String::new();
    for node in nodes.iter().filter(|node| !node.is_subscription) {
        text += &format!("[destinations.\"{}\"]\n", node.name);
        if let Some(dead) = node.dead_letter {
            text += &format!("dead-letter = \"{}\"\n", nodes[dead].name);
        }
        if let Some(max) = node.deliveries_max {
            text += &format!("deliveries-max = {max}\n");
        }
        if let Some(max) = node.messages_max {
            text += &format!("messages-max = {max}\noverflow = \"reject\"\n");
        }
        if node.after_sync {
            text += "deliver = \"after-sync\"\n";
        }
    }
    text
}
