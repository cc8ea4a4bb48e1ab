"""Unmodified AMQP 1.0 clients, and raw sockets, against the real broker."""
