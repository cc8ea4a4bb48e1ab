//! Does the codec read and write what AMQP 0-9-1 specifies and RabbitMQ makes of it, and refuse everything else without harm?

mod methods;
