//! Timeouts both ways.

use super::script::{check_new, check_with, config};
use crate::amqp10::Config;

const OPENED: &str = "header; open; begin";

#[test]
fn a_silent_peer_is_closed_with_an_error() {
    // AMQP 1.0 §2.4.5.
    check_with(
        Config { idle_timeout_us: Some(1_000_000), ..config() },
        OPENED,
        "wait 900; empty; wait 900; begin ch=1; wait 999; wait 1; close",
        "> ch=1 begin remote=1; * begun 1; > close amqp:resource-limit-exceeded; * ended 0; * ended 1
         * closed amqp:resource-limit-exceeded",
    );
    // Who is not listened to is not silent.
    check_with(
        Config { idle_timeout_us: Some(1_000_000), ..config() },
        OPENED,
        "wait 900; !reading off; wait 5000; !reading on; wait 999; wait 1",
        "> close amqp:resource-limit-exceeded; * ended 0",
    );
    // Any byte counts.
    check_with(
        Config { idle_timeout_us: Some(1_000_000), ..config() },
        OPENED,
        "bytes 00; wait 900; bytes 00; wait 900; bytes 00; wait 900; bytes 08; wait 900; bytes 02; wait 1000; wait 2000",
        "> close amqp:resource-limit-exceeded; * ended 0; * closed amqp:resource-limit-exceeded",
    );
}

#[test]
fn half_of_the_limit_is_announced() {
    check_new(
        Config { idle_timeout_us: Some(1_000_000), ..config() },
        "header; open",
        "> header 0; * opened peer; > open us idle=500",
    );
}

#[test]
fn the_peer_hears_us_at_half_of_its_limit() {
    check_with(
        config(),
        "header; open idle=1000; begin",
        "wait 499; wait 1; wait 499; begin ch=1; wait 499; wait 1; wait 500",
        "> empty; > ch=1 begin remote=1; * begun 1; > empty; > empty",
    );
    // AMQP 1.0 §2.7.1: zero is never.
    check_with(config(), "header; open idle=0", "wait 1000000", "");
}

/// AMQP 1.0 §2.4.5.
#[test]
fn an_unreasonable_limit_of_the_peer_is_refused() {
    for idle in [1, 99] {
        check_new(
            config(),
            &format!("header; open idle={idle}; begin; close; wait 5000"),
            "> header 0; > open us; > close amqp:invalid-field; * closed amqp:invalid-field",
        );
    }
    check_with(config(), "header; open idle=100", "wait 49; wait 1", "> empty");
}

#[test]
fn the_handshake_takes_its_time_at_most() {
    let config = Config { handshake_timeout_us: Some(1_000_000), ..config() };
    check_new(config.clone(), "wait 999; wait 1; wait 2000", "* closed amqp:resource-limit-exceeded");
    check_new(config.clone(), "text AMQ; wait 1000; wait 2000", "* closed amqp:resource-limit-exceeded");
    check_new(
        config.clone(),
        "header; wait 1000; wait 2000",
        "> header 0; > open us; > close amqp:resource-limit-exceeded; * closed amqp:resource-limit-exceeded",
    );
    check_new(config, "header; open; wait 5000", "> header 0; * opened peer; > open us");
}
