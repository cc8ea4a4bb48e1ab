//! How is each scene set up? The same situation in either protocol, as far as the protocol has it.

use corelane_protocol::LinkId;

use crate::client::{Client, Protocol, Receiver};
use crate::clock::Clock;
use crate::error::BenchError;
use crate::message::{Extras, Reader, Template};
use crate::scene::{Scene, Server, Sink, State};
use crate::traffic::{Flow, Receipts, Settle};
use crate::url::Url;

/// Connections that receivers are spread over, and links of one of them, at most.
const SINKS_MAX: usize = 8;
const LINKS_MAX: usize = 500;
/// Credit of each of many receivers.
const SMALL_WINDOW: u32 = 100;
/// How long the slow consumer is busy with a message.
const SLOW_NS: u64 = 1_000_000;
const SLOW_WINDOW: u32 = 100;
/// The property, or header, that selectors look at.
const PROPERTY: &str = "kind";

/// What is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One queue, one consumer.
    Queue,
    /// Requests through one queue, answers through another.
    Rpc,
    /// Each message to so many receivers: of a topic, or of queues bound to a fanout exchange.
    Fanout(u32),
    /// One consumer at work, and so many others of the same queue.
    Company(u32, Company),
    /// So many consumers that take messages with one value each; with 0-9-1, a headers exchange with as many queues.
    Selectors(u32),
    /// So many subscriptions with a pattern each; with 0-9-1, bindings of a topic exchange to one queue.
    Topics(u32),
    /// A quick consumer, and perhaps one beside it that takes 1 ms for each message.
    Slow(bool),
}

/// What the others do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Company {
    /// They give no credit.
    #[default]
    Idle,
    /// They take their share.
    Interested,
    /// They browse, and give no credit.
    Browsing,
}

/// Why a protocol has no such situation.
pub fn impossible(kind: Kind, protocol: Protocol) -> Option<&'static str> {
    match (kind, protocol) {
        (Kind::Company(_, Company::Idle), Protocol::Amqp091) => {
            Some("0-9-1 has no consumer without credit; use --company interested")
        }
        (Kind::Company(_, Company::Browsing), Protocol::Amqp091) => Some("0-9-1 has no browsers"),
        (_, _) => None,
    }
}

/// Everything attached, and nothing sent.
pub fn set_up(url: &Url, flow: &Flow, kind: Kind) -> Result<Scene, BenchError> {
    let clock = Clock::start();
    let place = Place { url, flow, clock };
    let producer = place.connect()?;
    let template = place.template(&Extras::default());
    let mut scene = Scene {
        clock,
        settle: flow.settle,
        producer,
        outlets: Vec::new(),
        templates: vec![template],
        sinks: Vec::new(),
        server: None,
        receipts: vec![Receipts::new(flow, 1)],
        in_order: true,
        company: Vec::new(),
        progress: State::default(),
    };
    match kind {
        Kind::Queue => place.queue(&mut scene, flow.window)?,
        Kind::Rpc => place.rpc(&mut scene)?,
        Kind::Fanout(count) => place.fanout(&mut scene, count)?,
        Kind::Company(count, company) => place.company(&mut scene, count, company)?,
        Kind::Selectors(count) => place.selectors(&mut scene, count)?,
        Kind::Topics(count) => place.topics(&mut scene, count)?,
        Kind::Slow(has_slow) => place.slow(&mut scene, has_slow)?,
    }
    for sink in &mut scene.sinks {
        sink.begin()?;
    }
    Ok(scene)
}

struct Place<'a> {
    url: &'a Url,
    flow: &'a Flow,
    clock: Clock,
}

impl Place<'_> {
    fn connect(&self) -> Result<Client, BenchError> {
        Client::connect(self.url, self.flow.protocol, self.clock)
    }

    fn template(&self, extras: &Extras<'_>) -> Template {
        Template::with(extras, self.flow.size, self.flow.run, 0)
    }

    fn is_settled(&self) -> bool {
        self.flow.settle == Settle::Pre
    }

    /// Without credit: all are there before the first message comes.
    fn receiver(&self) -> Receiver<'static> {
        Receiver { settled: self.is_settled(), ..Receiver::default() }
    }

    /// A name that no other run uses.
    fn name(&self, what: &str) -> String {
        format!("{}-{what}-{}", self.flow.queue, self.flow.run)
    }

    /// Calls `open` for each receiver on one of several connections.
    fn spread(
        &self,
        scene: &mut Scene,
        count: u32,
        window: u32,
        mut open: impl FnMut(&mut Client, u32) -> Result<LinkId, BenchError>,
        group: impl Fn(u32) -> u16,
    ) -> Result<(), BenchError> {
        let clients = (count as usize).div_ceil(LINKS_MAX).max(SINKS_MAX.min(count as usize));
        let first = scene.sinks.len();
        for _ in 0..clients {
            scene.sinks.push(Sink::new(self.connect()?, window));
        }
        for index in 0..count {
            let sink = &mut scene.sinks[first + index as usize % clients];
            let link = open(&mut sink.client, index)?;
            sink.add(link, group(index));
        }
        Ok(())
    }

    fn queue(&self, scene: &mut Scene, window: u32) -> Result<(), BenchError> {
        let mut sink = Sink::new(self.connect()?, window);
        let link = sink.client.open_receiver(&self.flow.queue, &self.receiver())?;
        sink.add(link, 0);
        scene.sinks.push(sink);
        scene.outlets.push(scene.producer.open_sender(&self.flow.queue, self.is_settled())?);
        Ok(())
    }

    fn rpc(&self, scene: &mut Scene) -> Result<(), BenchError> {
        let answers = format!("{}-answers", self.flow.queue);
        let mut sink = Sink::new(self.connect()?, self.flow.window);
        let link = sink.client.open_receiver(&answers, &self.receiver())?;
        sink.add(link, 0);
        scene.sinks.push(sink);
        let mut client = self.connect()?;
        let requests = client.open_receiver(&self.flow.queue, &self.receiver())?;
        let answer = client.open_sender(&answers, true)?;
        client.renew(requests, self.flow.window);
        client.flush()?;
        scene.server = Some(Server {
            client,
            requests,
            answers: answer,
            template: self.template(&Extras::default()),
            reader: Reader::new(self.flow.size, self.flow.run),
            window: self.flow.window,
            waiting: Server::room(),
        });
        scene.templates = vec![self.template(&Extras { reply_to: Some(&answers), ..Extras::default() })];
        scene.outlets.push(scene.producer.open_sender(&self.flow.queue, self.is_settled())?);
        Ok(())
    }

    fn fanout(&self, scene: &mut Scene, count: u32) -> Result<(), BenchError> {
        scene.receipts = (0..count).map(|_| Receipts::new(self.flow, 1)).collect();
        let (name, receiver) = (self.name("fanout"), self.receiver());
        let window = self.flow.window.min(SMALL_WINDOW.max(2 * self.flow.window / count.max(1)));
        if let Client::Amqp091(producer) = &mut scene.producer {
            let plain = producer.open_plain()?;
            producer.declare_exchange(plain, &name, "fanout")?;
            scene.outlets.push(producer.open_publisher(&name, "", self.is_settled())?);
        }
        let topic = format!("topic://{name}");
        self.spread(
            scene,
            count,
            window,
            |client, index| match client {
                Client::Amqp10(_) => client.open_receiver(&topic, &receiver),
                Client::Amqp091(client) => {
                    let queue = format!("{name}-{index}");
                    let plain = client.open_plain()?;
                    client.declare(plain, &queue, true)?;
                    client.bind(plain, &name, "", &queue, None)?;
                    client.close_channel(plain)?;
                    client.open_consumer(&queue, &receiver)
                }
            },
            |index| index as u16,
        )?;
        if scene.outlets.is_empty() {
            scene.outlets.push(scene.producer.open_sender(&topic, self.is_settled())?);
        }
        Ok(())
    }

    fn company(&self, scene: &mut Scene, count: u32, company: Company) -> Result<(), BenchError> {
        self.queue(scene, self.flow.window)?;
        scene.in_order = count == 0 || company != Company::Interested;
        let (queue, idle) = (&self.flow.queue, self.receiver());
        if company == Company::Interested {
            let open = |client: &mut Client, _| client.open_receiver(queue, &idle);
            return if count == 0 { Ok(()) } else { self.spread(scene, count, SMALL_WINDOW, open, |_| 0) };
        }
        let receiver = Receiver { browses: company == Company::Browsing, ..idle };
        for first in (0..count as usize).step_by(LINKS_MAX) {
            let mut client = self.connect()?;
            for _ in first..(first + LINKS_MAX).min(count as usize) {
                client.open_receiver(queue, &receiver)?;
            }
            scene.company.push(client);
        }
        Ok(())
    }

    fn selectors(&self, scene: &mut Scene, count: u32) -> Result<(), BenchError> {
        scene.in_order = false;
        let values: Vec<String> = (0..count).map(|index| format!("v{index}")).collect();
        scene.templates = values
            .iter()
            .map(|value| self.template(&Extras { property: Some((PROPERTY, value)), ..Extras::default() }))
            .collect();
        let (name, receiver) = (self.name("headers"), self.receiver());
        if let Client::Amqp091(producer) = &mut scene.producer {
            let plain = producer.open_plain()?;
            producer.declare_exchange(plain, &name, "headers")?;
            scene.outlets.push(producer.open_publisher(&name, "", self.is_settled())?);
        } else {
            scene.outlets.push(scene.producer.open_sender(&self.flow.queue, self.is_settled())?);
        }
        let open = |client: &mut Client, index: u32| {
            let value = &values[index as usize];
            match client {
                Client::Amqp10(_) => {
                    let selector = format!("{PROPERTY} = '{value}'");
                    client
                        .open_receiver(&self.flow.queue, &Receiver { selector: Some(&selector), ..receiver })
                }
                Client::Amqp091(client) => {
                    let queue = format!("{name}-{index}");
                    let plain = client.open_plain()?;
                    client.declare(plain, &queue, true)?;
                    client.bind(plain, &name, "", &queue, Some((PROPERTY, value)))?;
                    client.close_channel(plain)?;
                    client.open_consumer(&queue, &receiver)
                }
            }
        };
        self.spread(scene, count, SMALL_WINDOW, open, |_| 0)
    }

    fn topics(&self, scene: &mut Scene, count: u32) -> Result<(), BenchError> {
        scene.in_order = false;
        let name = self.name("topics");
        let key = |index: u32| format!("{name}.{index}.x");
        let addresses: Vec<String> = (0..count).map(|index| format!("topic://{}", key(index))).collect();
        let keys: Vec<String> = (0..count).map(key).collect();
        scene.templates = addresses
            .iter()
            .zip(&keys)
            .map(|(to, key)| self.template(&Extras { to: Some((to, key)), ..Extras::default() }))
            .collect();
        let receiver = self.receiver();
        match &mut scene.producer {
            Client::Amqp10(producer) => {
                scene.outlets.push(producer.attach_relay(self.is_settled())?);
                let open = |client: &mut Client, index: u32| {
                    client.open_receiver(&format!("topic://{name}.{index}.*"), &receiver)
                };
                self.spread(scene, count, SMALL_WINDOW, open, |_| 0)
            }
            Client::Amqp091(producer) => {
                let mut sink = Sink::new(self.connect()?, self.flow.window);
                let plain = producer.open_plain()?;
                producer.declare_exchange(plain, &name, "topic")?;
                scene.outlets.push(producer.open_publisher(&name, "", self.is_settled())?);
                if let Client::Amqp091(client) = &mut sink.client {
                    let plain = client.open_plain()?;
                    client.declare(plain, &name, true)?;
                    for index in 0..count {
                        client.bind(plain, &name, &format!("{name}.{index}.*"), &name, None)?;
                    }
                    let link = client.open_consumer(&name, &receiver)?;
                    sink.add(link, 0);
                }
                scene.sinks.push(sink);
                Ok(())
            }
        }
    }

    fn slow(&self, scene: &mut Scene, has_slow: bool) -> Result<(), BenchError> {
        self.queue(scene, self.flow.window)?;
        if has_slow {
            scene.in_order = false;
            let mut sink = Sink::new(self.connect()?, SLOW_WINDOW);
            let link = sink.client.open_receiver(&self.flow.queue, &self.receiver())?;
            sink.add(link, 0);
            sink.work_ns = SLOW_NS;
            scene.sinks.push(sink);
        }
        Ok(())
    }
}
