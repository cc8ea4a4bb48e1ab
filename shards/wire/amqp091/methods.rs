//! Which classes and methods are there (§1.3 to §1.8, and RabbitMQ's extensions)?
//!
//! One module for each class, with a struct for each method, its arguments in the specification's order without those that
//! are reserved. `nowait` is `no_wait` everywhere, and `type` is `kind`.

use super::class::class;
use super::short_str::ShortStr;
use super::table::Table;

/// The connection as a whole, on channel 0 (§1.3).
pub mod connection {
    use super::{ShortStr, Table, class};

    class! {
        "connection": Method<'a> = 10;

        /// The server's first word.
        Start<'a> = 10 "start" {
            version_major: u8,
            version_minor: u8,
            server_properties: Table<'a>,
            /// Separated by spaces.
            mechanisms: &'a [u8],
            locales: &'a [u8],
        }

        StartOk<'a> = 11 "start-ok" {
            client_properties: Table<'a>,
            mechanism: ShortStr<'a>,
            /// What the mechanism makes of it; of AMQPLAIN, a table's bytes without their size.
            response: &'a [u8],
            locale: ShortStr<'a>,
        }

        Secure<'a> = 20 "secure" {
            challenge: &'a [u8],
        }

        SecureOk<'a> = 21 "secure-ok" {
            response: &'a [u8],
        }

        /// What the server can do; zero is no limit.
        Tune = 30 "tune" {
            channel_max: u16,
            /// Bytes of a whole frame.
            frame_max: u32,
            /// Seconds.
            heartbeat: u16,
        }

        /// What the client has chosen; zero is no limit.
        TuneOk = 31 "tune-ok" {
            channel_max: u16,
            /// Bytes of a whole frame.
            frame_max: u32,
            /// Seconds.
            heartbeat: u16,
        }

        Open<'a> = 40 "open" {
            virtual_host: ShortStr<'a>,
            ;
            _: ShortStr,
            _: bool,
        }

        OpenOk = 41 "open-ok" {
            _: ShortStr,
        }

        Close<'a> = 50 "close" {
            reply_code: u16,
            reply_text: ShortStr<'a>,
            /// The method that was wrong, or zeros.
            class_id: u16,
            method_id: u16,
        }

        CloseOk = 51 "close-ok" {}

        /// RabbitMQ: the server does not read what is published.
        Blocked<'a> = 60 "blocked" {
            reason: ShortStr<'a>,
        }

        /// RabbitMQ: the server reads again.
        Unblocked = 61 "unblocked" {}

        /// RabbitMQ: new credentials before the old ones expire.
        UpdateSecret<'a> = 70 "update-secret" {
            new_secret: &'a [u8],
            reason: ShortStr<'a>,
        }

        UpdateSecretOk = 71 "update-secret-ok" {}
    }
}

/// One of a connection's channels (§1.4).
pub mod channel {
    use super::{ShortStr, class};

    class! {
        "channel": Method<'a> = 20;

        Open = 10 "open" {
            _: ShortStr,
        }

        OpenOk = 11 "open-ok" {
            _: &[u8],
        }

        /// Whether the sender of this takes content.
        Flow = 20 "flow" {
            active: bool,
        }

        FlowOk = 21 "flow-ok" {
            active: bool,
        }

        Close<'a> = 40 "close" {
            reply_code: u16,
            reply_text: ShortStr<'a>,
            /// The method that was wrong, or zeros.
            class_id: u16,
            method_id: u16,
        }

        CloseOk = 41 "close-ok" {}
    }
}

/// Access tickets, which older clients still ask for (AMQP 0-8 and 0-9 §1.5).
pub mod access {
    use super::{ShortStr, class};

    class! {
        "access": Method<'a> = 30;

        Request<'a> = 10 "request" {
            realm: ShortStr<'a>,
            exclusive: bool,
            passive: bool,
            active: bool,
            write: bool,
            read: bool,
        }

        RequestOk = 11 "request-ok" {
            ticket: u16,
        }
    }
}

/// §1.5
pub mod exchange {
    use super::{ShortStr, Table, class};

    class! {
        "exchange": Method<'a> = 40;

        Declare<'a> = 10 "declare" {
            _: u16,
            exchange: ShortStr<'a>,
            /// `type` in the specification.
            kind: ShortStr<'a>,
            passive: bool,
            durable: bool,
            auto_delete: bool,
            internal: bool,
            no_wait: bool,
            arguments: Table<'a>,
        }

        DeclareOk = 11 "declare-ok" {}

        Delete<'a> = 20 "delete" {
            _: u16,
            exchange: ShortStr<'a>,
            if_unused: bool,
            no_wait: bool,
        }

        DeleteOk = 21 "delete-ok" {}

        /// RabbitMQ: what reaches `source` goes to `destination`, too.
        Bind<'a> = 30 "bind" {
            _: u16,
            destination: ShortStr<'a>,
            source: ShortStr<'a>,
            routing_key: ShortStr<'a>,
            no_wait: bool,
            arguments: Table<'a>,
        }

        BindOk = 31 "bind-ok" {}

        Unbind<'a> = 40 "unbind" {
            _: u16,
            destination: ShortStr<'a>,
            source: ShortStr<'a>,
            routing_key: ShortStr<'a>,
            no_wait: bool,
            arguments: Table<'a>,
        }

        UnbindOk = 51 "unbind-ok" {}
    }
}

/// §1.6
pub mod queue {
    use super::{ShortStr, Table, class};

    class! {
        "queue": Method<'a> = 50;

        Declare<'a> = 10 "declare" {
            _: u16,
            queue: ShortStr<'a>,
            passive: bool,
            durable: bool,
            exclusive: bool,
            auto_delete: bool,
            no_wait: bool,
            arguments: Table<'a>,
        }

        DeclareOk<'a> = 11 "declare-ok" {
            queue: ShortStr<'a>,
            message_count: u32,
            consumer_count: u32,
        }

        Bind<'a> = 20 "bind" {
            _: u16,
            queue: ShortStr<'a>,
            exchange: ShortStr<'a>,
            routing_key: ShortStr<'a>,
            no_wait: bool,
            arguments: Table<'a>,
        }

        BindOk = 21 "bind-ok" {}

        Purge<'a> = 30 "purge" {
            _: u16,
            queue: ShortStr<'a>,
            no_wait: bool,
        }

        PurgeOk = 31 "purge-ok" {
            message_count: u32,
        }

        Delete<'a> = 40 "delete" {
            _: u16,
            queue: ShortStr<'a>,
            if_unused: bool,
            if_empty: bool,
            no_wait: bool,
        }

        DeleteOk = 41 "delete-ok" {
            message_count: u32,
        }

        Unbind<'a> = 50 "unbind" {
            _: u16,
            queue: ShortStr<'a>,
            exchange: ShortStr<'a>,
            routing_key: ShortStr<'a>,
            arguments: Table<'a>,
        }

        UnbindOk = 51 "unbind-ok" {}
    }
}

/// Messages (§1.7). Content follows `publish`, `return`, `deliver` and `get-ok`.
pub mod basic {
    use super::{ShortStr, Table, class};

    class! {
        "basic": Method<'a> = 60;

        Qos = 10 "qos" {
            /// Bytes.
            prefetch_size: u32,
            /// Messages; zero is no limit.
            prefetch_count: u16,
            /// RabbitMQ: for the whole channel, not for each later consumer.
            global: bool,
        }

        QosOk = 11 "qos-ok" {}

        Consume<'a> = 20 "consume" {
            _: u16,
            queue: ShortStr<'a>,
            consumer_tag: ShortStr<'a>,
            no_local: bool,
            no_ack: bool,
            exclusive: bool,
            no_wait: bool,
            arguments: Table<'a>,
        }

        ConsumeOk<'a> = 21 "consume-ok" {
            consumer_tag: ShortStr<'a>,
        }

        /// From a client; RabbitMQ: from the server too, when the consumer's queue is gone.
        Cancel<'a> = 30 "cancel" {
            consumer_tag: ShortStr<'a>,
            no_wait: bool,
        }

        CancelOk<'a> = 31 "cancel-ok" {
            consumer_tag: ShortStr<'a>,
        }

        Publish<'a> = 40 "publish" {
            _: u16,
            exchange: ShortStr<'a>,
            routing_key: ShortStr<'a>,
            mandatory: bool,
            immediate: bool,
        }

        Return<'a> = 50 "return" {
            reply_code: u16,
            reply_text: ShortStr<'a>,
            exchange: ShortStr<'a>,
            routing_key: ShortStr<'a>,
        }

        Deliver<'a> = 60 "deliver" {
            consumer_tag: ShortStr<'a>,
            delivery_tag: u64,
            redelivered: bool,
            exchange: ShortStr<'a>,
            routing_key: ShortStr<'a>,
        }

        Get<'a> = 70 "get" {
            _: u16,
            queue: ShortStr<'a>,
            no_ack: bool,
        }

        GetOk<'a> = 71 "get-ok" {
            delivery_tag: u64,
            redelivered: bool,
            exchange: ShortStr<'a>,
            routing_key: ShortStr<'a>,
            /// Messages left in the queue.
            message_count: u32,
        }

        GetEmpty = 72 "get-empty" {
            _: ShortStr,
        }

        /// From a consumer; RabbitMQ: from the server too, as a confirm.
        Ack = 80 "ack" {
            /// With `multiple`, zero is all of them.
            delivery_tag: u64,
            multiple: bool,
        }

        Reject = 90 "reject" {
            delivery_tag: u64,
            requeue: bool,
        }

        RecoverAsync = 100 "recover-async" {
            requeue: bool,
        }

        Recover = 110 "recover" {
            requeue: bool,
        }

        RecoverOk = 111 "recover-ok" {}

        /// RabbitMQ: a reject of many; from the server, of a publish.
        Nack = 120 "nack" {
            delivery_tag: u64,
            multiple: bool,
            requeue: bool,
        }
    }
}

/// RabbitMQ's publisher confirms.
pub mod confirm {
    use super::class;

    class! {
        "confirm": Method = 85;

        Select = 10 "select" {
            no_wait: bool,
        }

        SelectOk = 11 "select-ok" {}
    }
}

/// §1.8
pub mod tx {
    use super::class;

    class! {
        "tx": Method = 90;

        Select = 10 "select" {}

        SelectOk = 11 "select-ok" {}

        Commit = 20 "commit" {}

        CommitOk = 21 "commit-ok" {}

        Rollback = 30 "rollback" {}

        RollbackOk = 31 "rollback-ok" {}
    }
}
