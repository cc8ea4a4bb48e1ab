//! What does a client do, and what does it see? The protocol's client role, with a record of everything that arrived.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::transacting::transaction_id;
use corelane_protocol::amqp10::{
    self, AttachRequest, Config, Event, LinkId, Outgoing, Progress, SendReadiness, SessionId, Token,
    TransactionId,
};

use corelane_wire::amqp10::{
    self as wire, DeliveryState, Disposition, DistributionMode, Encode, ExpiryPolicy, FrameKind, Header, Map,
    MapSection, MapWriter, Properties, ReceiverSettleMode, Role, Sections, SenderSettleMode, Source, Symbols,
    Target, TargetArchetype, TerminusDurability, Value, begin_frame, finish_frame,
    write_application_properties, write_data,
};

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub link: LinkId,
    pub delivery_id: u32,
    pub body: String,
    /// The whole message.
    pub bytes: Vec<u8>,
    pub settled: bool,
    pub delivery_count: u32,
    pub first_acquirer: bool,
    /// Message annotations, their values as text.
    pub annotations: Vec<(String, String)>,
    /// The transaction it was sent in.
    pub transaction: Option<u32>,
}

/// Names and values of a map.
type Pairs<'a> = &'a [(&'a str, Value<'a>)];

/// How a receiver attaches.
#[derive(Clone, Debug, Default)]
pub struct ReceiverOptions {
    pub selector: Option<String>,
    pub no_local: bool,
    pub browse: bool,
    pub priority: Option<i32>,
    pub presettled: bool,
    pub dynamic: bool,
    /// Outcomes are said unsettled, and the broker settles first.
    pub settles_second: bool,
    /// What stays when the link is detached.
    pub durable: bool,
    /// Of its source: `topic`, `shared`, `global` and such.
    pub capabilities: Vec<&'static str>,
}

/// How a sender attaches.
#[derive(Clone, Debug, Default)]
pub struct SenderOptions {
    pub presettled: bool,
    /// No address: each message says where it goes.
    pub anonymous: bool,
    pub dynamic: bool,
    /// Of its target.
    pub capabilities: Vec<&'static str>,
}

/// A message to send.
#[derive(Clone, Debug)]
struct Waiting {
    link: LinkId,
    bytes: Vec<u8>,
    written: usize,
    token: u64,
    transaction: Option<TransactionId>,
}

/// One client with one session.
#[derive(Debug)]
pub struct Client {
    pub(crate) protocol: amqp10::Connection,
    /// What stands in for `protocol` while that is read from.
    stand_in: Arc<Config>,
    pub(crate) input: Vec<u8>,
    session: Option<SessionId>,
    outgoing: VecDeque<Waiting>,
    sent: u64,
    /// What became of sent messages: token, and the outcome's name.
    pub outcomes: Vec<(u64, String)>,
    /// What was said of sent messages that were rejected.
    pub refusals: Vec<(u64, String)>,
    pub received: Vec<Received>,
    /// Names of dynamic nodes, by link.
    pub addresses: Vec<(LinkId, String)>,
    pub attached: Vec<LinkId>,
    /// Names of receiving links that neither side has detached, or only one.
    receivers: Vec<(LinkId, String)>,
    /// Detached links and the error's condition.
    pub detached: Vec<(LinkId, Option<String>)>,
    draining: Vec<LinkId>,
    /// Links whose sender said that a drain is done.
    pub drained: Vec<LinkId>,
    /// The session has ended, with the error's condition.
    pub ended: Option<Option<String>>,
    /// The connection has ended, with the error's condition.
    pub closed: Option<Option<String>>,
    /// Accept what arrives at once.
    pub accepts: bool,
}

impl Client {
    pub(crate) fn new(config: Config, now: u64) -> Self {
        Client {
            protocol: amqp10::Connection::client(config, now),
            stand_in: Arc::new(Config::default()),
            input: Vec::new(),
            session: None,
            outgoing: VecDeque::new(),
            sent: 0,
            outcomes: Vec::new(),
            refusals: Vec::new(),
            received: Vec::new(),
            addresses: Vec::new(),
            attached: Vec::new(),
            receivers: Vec::new(),
            detached: Vec::new(),
            draining: Vec::new(),
            drained: Vec::new(),
            ended: None,
            closed: None,
            accepts: false,
        }
    }

    pub(crate) fn begin(&mut self) {
        self.session = self.protocol.begin();
        assert!(self.session.is_some(), "the connection is open");
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session.expect("begin was called when the connection was made")
    }

    pub fn attach_sender(&mut self, name: &str, address: &str, options: &SenderOptions) -> LinkId {
        let target = Target {
            address: (!options.anonymous && !options.dynamic).then_some(address),
            dynamic: options.dynamic,
            capabilities: Symbols::new(&options.capabilities),
            ..Target::default()
        };
        let sender_settle_mode =
            if options.presettled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
        let request = AttachRequest {
            name,
            source: Some(Source::default()),
            target: Some(TargetArchetype::Target(target)),
            sender_settle_mode,
            receiver_settle_mode: ReceiverSettleMode::First,
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        self.protocol
            .attach_sender(self.session(), &request)
            .unwrap_or_else(|| panic!("no handle is left: ended {:?}, closed {:?}", self.ended, self.closed))
    }

    pub fn attach_receiver(&mut self, name: &str, address: &str, options: &ReceiverOptions) -> LinkId {
        let filters = encoded_filters(options);
        let mut properties = Vec::new();
        if let Some(priority) = options.priority {
            let mut map = MapWriter::new(&mut properties);
            map.symbol("priority", &Value::Int(priority));
            map.finish();
        }
        let map = |bytes| Map::decode(bytes).ok();
        let source = Source {
            address: (!options.dynamic).then_some(address),
            dynamic: options.dynamic,
            distribution_mode: options.browse.then_some(DistributionMode::Copy),
            filter: map(&filters),
            durable: if options.durable {
                TerminusDurability::UnsettledState
            } else {
                TerminusDurability::None
            },
            expiry_policy: if options.durable { ExpiryPolicy::Never } else { ExpiryPolicy::default() },
            capabilities: Symbols::new(&options.capabilities),
            ..Source::default()
        };
        let sender_settle_mode =
            if options.presettled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
        let receiver_settle_mode =
            if options.settles_second { ReceiverSettleMode::Second } else { ReceiverSettleMode::First };
        let request = AttachRequest {
            name,
            source: Some(source),
            target: Some(TargetArchetype::Target(Target::default())),
            sender_settle_mode,
            receiver_settle_mode,
            max_message_size: None,
            desired_capabilities: Symbols::default(),
            properties: map(&properties),
        };
        let link = self
            .protocol
            .attach_receiver(self.session(), &request)
            .unwrap_or_else(|| panic!("no handle is left: ended {:?}, closed {:?}", self.ended, self.closed));
        self.receivers.push((link, name.to_owned()));
        link
    }

    /// Whether a receiving link has this name still: it must not have another one (AMQP 1.0 §2.6.1).
    pub(crate) fn has_receiver(&self, name: &str) -> bool {
        self.receivers.iter().any(|(_, other)| other == name)
    }

    /// Asks for the durable subscription of this name, to end it by closing the link.
    pub fn attach_unsubscriber(&mut self, name: &str, capabilities: &[&str]) -> LinkId {
        let request = AttachRequest {
            name,
            source: None,
            target: Some(TargetArchetype::Target(Target::default())),
            sender_settle_mode: SenderSettleMode::Unsettled,
            receiver_settle_mode: ReceiverSettleMode::First,
            max_message_size: None,
            desired_capabilities: Symbols::new(capabilities),
            properties: None,
        };
        self.protocol.attach_receiver(self.session(), &request).expect("a handle is left")
    }

    /// Queues a message whose body is `body`; it is sent when there is credit. Returns its token.
    pub fn send(&mut self, link: LinkId, body: &str) -> u64 {
        self.send_with(link, body, &Properties::default(), &[], &Header::default())
    }

    pub fn send_with(
        &mut self,
        link: LinkId,
        body: &str,
        properties: &Properties<'_>,
        application: &[(&str, Value<'_>)],
        header: &Header,
    ) -> u64 {
        self.send_whole((link, None), body, properties, (application, &[]), header)
    }

    /// With application properties and message annotations, and inside a transaction if there is one.
    pub fn send_whole(
        &mut self,
        (link, transaction): (LinkId, Option<u32>),
        body: &str,
        properties: &Properties<'_>,
        (application, annotations): (Pairs<'_>, Pairs<'_>),
        header: &Header,
    ) -> u64 {
        let mut bytes = Vec::new();
        if *header != Header::default() {
            header.encode(&mut bytes);
        }
        if !annotations.is_empty() {
            let mut map = MapWriter::section(&mut bytes, MapSection::MessageAnnotations);
            annotations.iter().for_each(|(name, value)| map.symbol(name, value));
            map.finish();
        }
        if *properties != Properties::default() {
            properties.encode(&mut bytes);
        }
        if !application.is_empty() {
            write_application_properties(&mut bytes, application);
        }
        write_data(&mut bytes, body.as_bytes());
        self.send_encoded(link, bytes, transaction.map(transaction_id))
    }

    pub(crate) fn send_encoded(
        &mut self,
        link: LinkId,
        bytes: Vec<u8>,
        transaction: Option<TransactionId>,
    ) -> u64 {
        self.sent += 1;
        self.outgoing.push_back(Waiting { link, bytes, written: 0, token: self.sent, transaction });
        self.sent
    }

    /// The same with message annotations.
    pub fn send_annotated(&mut self, link: LinkId, body: &str, annotations: &[(&str, Value<'_>)]) -> u64 {
        let mut bytes = Vec::new();
        let mut section = MapWriter::section(&mut bytes, MapSection::MessageAnnotations);
        for (name, value) in annotations {
            section.symbol(name, value);
        }
        section.finish();
        write_data(&mut bytes, body.as_bytes());
        self.send_encoded(link, bytes, None)
    }

    /// Whether a message is still here, whole or in part.
    pub fn is_waiting(&self, token: u64) -> bool {
        self.outgoing.iter().any(|waiting| waiting.token == token)
    }

    /// Whether a message is here in part, and the rest of it was sent.
    pub(crate) fn is_cut(&self, token: u64) -> bool {
        self.outgoing.iter().any(|waiting| waiting.token == token && waiting.written > 0)
    }

    /// Sends a message, if there is credit, and ends the link in the same breath.
    pub fn send_and_detach(&mut self, link: LinkId, body: &str) -> u64 {
        let token = self.send(link, body);
        self.write();
        self.protocol.detach(link, true, None);
        token
    }

    /// Sends the beginning of a message, about so many bytes, and never the rest.
    pub fn send_unfinished(&mut self, link: LinkId, size: usize) {
        let mut bytes = Vec::new();
        write_data(&mut bytes, &vec![b'x'; size]);
        let message =
            Outgoing { token: Token(0, 0), settled: false, message_format: 0, head: &[], rest: &bytes };
        // One burst is written, and the rest is not asked for.
        self.protocol.send(link, &message);
    }

    pub fn credit(&mut self, link: LinkId, credit: u32) {
        self.protocol.grant_credit(link, credit, false);
    }

    pub fn drain(&mut self, link: LinkId, credit: u32) {
        self.draining.push(link);
        self.protocol.grant_credit(link, credit, true);
    }

    pub fn settle(&mut self, link: LinkId, delivery_id: u32, state: &DeliveryState<'_>) {
        self.protocol.settle(link, delivery_id, state);
    }

    /// Accepts all that has arrived on a link.
    pub fn accept_all(&mut self, link: LinkId) {
        for received in self.received.iter().filter(|received| received.link == link) {
            self.protocol.settle(link, received.delivery_id, &DeliveryState::Accepted);
        }
        self.received.retain(|received| received.link != link);
    }

    /// Says that it is at work on a delivery.
    pub fn renew(&mut self, link: LinkId, delivery_id: u32) {
        self.protocol.renew(link, delivery_id);
    }

    /// A drain was asked for on this link and is not answered.
    pub fn is_draining(&self, link: LinkId) -> bool {
        self.draining.contains(&link)
    }

    /// The same of all deliveries from one to another, so many times over.
    pub fn renew_all(&mut self, (first, last): (u32, u32), times: usize) {
        let state = Some(DeliveryState::Received(wire::Received { section_number: 0, section_offset: 0 }));
        let last = Some(last);
        let disposition =
            Disposition { role: Role::Receiver, first, last, settled: false, state, batchable: false };
        for _ in 0..times {
            self.write_disposition(&disposition);
        }
    }

    /// Writes a disposition past the state machine, which would never say that.
    pub(crate) fn write_disposition(&mut self, disposition: &Disposition<'_>) {
        let out = self.protocol.output();
        let start = begin_frame(out, FrameKind::Amqp, 0);
        disposition.encode(out);
        finish_frame(out, start);
    }

    pub fn detach(&mut self, link: LinkId) {
        self.protocol.detach(link, true, None);
    }

    /// Ends the session.
    pub fn end(&mut self) {
        self.protocol.end(self.session(), None);
    }

    /// Ends the attachment and leaves the terminus.
    pub fn suspend(&mut self, link: LinkId) {
        self.protocol.detach(link, false, None);
    }

    pub fn close(&mut self) {
        self.protocol.close(None);
    }

    /// Credit that is left on a link.
    pub fn credit_left(&self, link: LinkId) -> u32 {
        self.protocol.credit(link)
    }

    pub fn bodies(&self, link: LinkId) -> Vec<&str> {
        let of_link = self.received.iter().filter(|received| received.link == link);
        of_link.map(|received| received.body.as_str()).collect()
    }

    /// Reads what has arrived and writes what can be written. True if anything happened.
    pub(crate) fn act(&mut self, now: u64) -> bool {
        if self.protocol.next_deadline().is_some_and(|at| at <= now) {
            self.protocol.handle_timeout(now);
        }
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        let stand_in = amqp10::Connection::client(self.stand_in.clone(), now);
        let mut protocol = std::mem::replace(&mut self.protocol, stand_in);
        let mut acted = false;
        while let Some(event) = protocol.receive(now, &mut rest) {
            acted = true;
            self.on_event(&mut protocol, event);
        }
        self.protocol = protocol;
        self.input = rest.to_vec();
        acted |= self.write();
        self.protocol.finish_turn(now);
        acted
    }

    fn on_event(&mut self, protocol: &mut amqp10::Connection, event: Event<'_>) {
        match event {
            Event::Message(message) => {
                let (link, delivery_id, settled) = (message.link, message.delivery_id, message.settled);
                let mut received = read_message(link, delivery_id, settled, message.payload.bytes());
                received.transaction = message.transaction.as_deref().map(transaction_number);
                self.received.push(received);
                if self.accepts && !settled {
                    protocol.settle(link, delivery_id, &DeliveryState::Accepted);
                }
            }
            Event::Disposition { state, .. } => {
                let name = state.map_or("none".to_owned(), |state| outcome_name(&state));
                while let Some(disposed) = protocol.poll_outcome() {
                    if let Some(DeliveryState::Rejected { error: Some(error) }) = state {
                        let said = error.description.unwrap_or_default();
                        self.refusals.push((disposed.token.0, said.to_owned()));
                    }
                    self.outcomes.push((disposed.token.0, name.clone()));
                }
            }
            Event::AttachConfirmed { link, attach } => {
                let source = attach.source.and_then(|source| source.address);
                let target = match attach.target {
                    Some(TargetArchetype::Target(target)) => target.address,
                    Some(TargetArchetype::Coordinator(_)) | None => None,
                };
                self.attached.push(link);
                if let Some(address) = source.or(target) {
                    self.addresses.push((link, address.to_owned()));
                }
            }
            Event::LinkFlow { link, credit: 0, .. } if self.draining.contains(&link) => {
                self.draining.retain(|draining| *draining != link);
                self.drained.push(link);
            }
            Event::Detached { link, error, .. } => {
                self.draining.retain(|draining| *draining != link);
                self.receivers.retain(|(receiver, _)| *receiver != link);
                self.detached.push((link, error.map(|error| error.condition.to_owned())));
            }
            Event::Ended { error, .. } => self.ended = Some(error.map(|error| error.condition.to_owned())),
            Event::Closed { error } => self.closed = Some(error.map(|error| error.condition.to_owned())),
            Event::LinkFlow { .. }
            | Event::SessionFlow { .. }
            | Event::SessionBegun { .. }
            | Event::Opened(_)
            | Event::Attached { .. }
            | Event::SaslInit { .. }
            | Event::SaslResponse(_)
            | Event::SaslMechanisms(_)
            | Event::SaslChallenge(_)
            | Event::SaslOutcome { .. } => {}
        }
    }

    /// Sends queued messages in order, per link.
    fn write(&mut self) -> bool {
        let mut wrote = false;
        let mut blocked: Vec<LinkId> = Vec::new();
        let mut kept = VecDeque::new();
        while let Some(mut waiting) = self.outgoing.pop_front() {
            if blocked.contains(&waiting.link) || !self.write_one(&mut waiting, &mut wrote) {
                blocked.push(waiting.link);
                kept.push_back(waiting);
            }
        }
        self.outgoing = kept;
        wrote
    }

    /// True if the message is written whole, or never will be.
    fn write_one(&mut self, waiting: &mut Waiting, wrote: &mut bool) -> bool {
        let Waiting { link, ref bytes, written, token, transaction } = *waiting;
        let progress = if written == 0 {
            if self.protocol.can_send(link) != SendReadiness::Ready {
                return self.detached.iter().any(|(detached, _)| *detached == link);
            }
            let outgoing = Outgoing {
                token: Token(token, 0),
                settled: false,
                message_format: 0,
                head: &[],
                rest: bytes,
            };
            self.protocol.set_transaction(link, transaction);
            self.protocol.send(link, &outgoing)
        } else {
            self.protocol.send_more(link, &bytes[written..])
        };
        match progress {
            Progress::Complete { .. } => {
                *wrote = true;
                true
            }
            Progress::Partial { written, .. } => {
                *wrote |= written > 0;
                waiting.written += written;
                false
            }
            Progress::TooLarge => panic!("a message larger than the broker takes"),
            Progress::NotReady(_) => false,
        }
    }
}

/// What the broker calls a transaction.
pub(crate) fn transaction_number(id: &[u8]) -> u32 {
    u32::from_be_bytes(id.try_into().expect("the broker's ids have four bytes"))
}

fn read_message(link: LinkId, delivery_id: u32, settled: bool, bytes: &[u8]) -> Received {
    let sections = Sections::scan(bytes).expect("the broker sends whole messages");
    let header = sections.header(bytes).expect("the broker sends right headers");
    let annotations = sections.message_annotations.map(bytes);
    let body = match sections.body_values(bytes).next() {
        Some(Ok(Value::Binary(body))) => String::from_utf8_lossy(body).into_owned(),
        Some(_) | None => String::new(),
    };
    Received {
        link,
        delivery_id,
        body,
        bytes: bytes.to_vec(),
        settled,
        delivery_count: header.delivery_count,
        first_acquirer: header.first_acquirer,
        annotations: annotations.into_iter().flatten().flatten().map(as_text).collect(),
        transaction: None,
    }
}

fn as_text((key, value): (Value<'_>, Value<'_>)) -> (String, String) {
    let text = match value {
        Value::List(list) => {
            let items = list.iter().flatten();
            items.map(|item| item.as_str().unwrap_or("?").to_owned()).collect::<Vec<_>>().join(" ")
        }
        Value::Uint(number) => number.to_string(),
        value => value.as_str().unwrap_or("?").to_owned(),
    };
    (key.as_str().unwrap_or("?").to_owned(), text)
}

fn outcome_name(state: &DeliveryState<'_>) -> String {
    match state {
        DeliveryState::Accepted => "accepted".to_owned(),
        DeliveryState::Rejected { error } => {
            format!("rejected {}", error.map_or("", |error| error.condition))
        }
        DeliveryState::Released => "released".to_owned(),
        DeliveryState::Modified(_) => "modified".to_owned(),
        DeliveryState::Declared { transaction } => format!("declared {}", transaction_number(transaction)),
        DeliveryState::Transactional { transaction, outcome } => {
            let outcome = outcome.map_or("nothing".to_owned(), |outcome| outcome_name(&outcome.into()));
            format!("{outcome} in {}", transaction_number(transaction))
        }
        DeliveryState::Received(_) => "received".to_owned(),
    }
}

/// The filter map of a source, encoded by hand: descriptors are the filters' codes.
fn encoded_filters(options: &ReceiverOptions) -> Vec<u8> {
    struct Filter<'a>(u64, Value<'a>);
    impl Encode for Filter<'_> {
        fn encode(&self, out: &mut Vec<u8>) {
            out.push(0);
            self.0.encode(out);
            self.1.encode(out);
        }
    }
    let mut bytes = Vec::new();
    let mut map = MapWriter::new(&mut bytes);
    if let Some(selector) = &options.selector {
        map.symbol("jms-selector", &Filter(0x0000_468C_0000_0004, Value::String(selector)));
    }
    if options.no_local {
        map.symbol("no-local", &Filter(0x0000_468C_0000_0003, Value::List(Default::default())));
    }
    map.finish();
    bytes
}
