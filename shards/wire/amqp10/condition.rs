//! The error conditions of the specification, as the symbols they are sent as.

// §2.8.15
pub const INTERNAL_ERROR: &str = "amqp:internal-error";
pub const NOT_FOUND: &str = "amqp:not-found";
pub const UNAUTHORIZED_ACCESS: &str = "amqp:unauthorized-access";
pub const DECODE_ERROR: &str = "amqp:decode-error";
pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
pub const NOT_ALLOWED: &str = "amqp:not-allowed";
pub const INVALID_FIELD: &str = "amqp:invalid-field";
pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
pub const RESOURCE_LOCKED: &str = "amqp:resource-locked";
pub const PRECONDITION_FAILED: &str = "amqp:precondition-failed";
pub const RESOURCE_DELETED: &str = "amqp:resource-deleted";
pub const ILLEGAL_STATE: &str = "amqp:illegal-state";
pub const FRAME_SIZE_TOO_SMALL: &str = "amqp:frame-size-too-small";

// §2.8.16
pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
pub const CONNECTION_REDIRECT: &str = "amqp:connection:redirect";

// §2.8.17
pub const WINDOW_VIOLATION: &str = "amqp:session:window-violation";
pub const ERRANT_LINK: &str = "amqp:session:errant-link";
pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";

// §2.8.18
pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
pub const TRANSFER_LIMIT_EXCEEDED: &str = "amqp:link:transfer-limit-exceeded";
pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
pub const LINK_REDIRECT: &str = "amqp:link:redirect";
pub const STOLEN: &str = "amqp:link:stolen";

// §4.5.8
pub const TRANSACTION_UNKNOWN_ID: &str = "amqp:transaction:unknown-id";
pub const TRANSACTION_ROLLBACK: &str = "amqp:transaction:rollback";
pub const TRANSACTION_TIMEOUT: &str = "amqp:transaction:timeout";
