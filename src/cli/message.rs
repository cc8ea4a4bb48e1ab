//! `corelane send`, `receive` and `browse`: one link each, through the client.

use std::io::{self, Read, Write};

use anyhow::{Context, anyhow};
use clap::Args;
use corelane_shard::quantity::{duration_us, size_bytes};

use super::{DONE, INCOMPLETE};
use crate::client::{
    Client, ClientError, Ended, PropertyValue, Selection, SendOptions, TextMessage, Url, show_body,
    show_details,
};

/// The largest body that `--size` makes.
const SIZE_MAX: u64 = 1 << 30;

#[derive(Debug, Args)]
pub(super) struct BrokerArgument {
    /// The broker, as amqp://USER:PASSWORD@HOST:PORT or HOST:PORT
    #[arg(
        long,
        value_name = "URL",
        env = "CORELANE_URL",
        default_value = "amqp://127.0.0.1:5672",
        hide_env_values = true
    )]
    pub(super) url: Url,
}

/// Send messages to a queue, and wait until the broker has answered for all of them.
///
/// Exits with 3 if it did not accept them all.
#[derive(Debug, Args)]
#[command(after_help = SEND_EXAMPLES)]
pub(super) struct SendArguments {
    /// The queue
    address: String,

    /// The message, as text; `-` reads it from the standard input [default: empty]
    #[arg(conflicts_with = "size", allow_hyphen_values = true)]
    body: Option<String>,

    /// How many times to send it
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1)]
    count: u64,

    /// Send so many bytes instead of a text, such as 1024 or 64KiB
    #[arg(long, value_name = "BYTES", value_parser = body_size)]
    size: Option<u64>,

    /// Ask for the message to be kept on disk
    #[arg(long)]
    durable: bool,

    /// From 0 to 9
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,

    /// How long the message may wait in a queue, such as 500ms
    #[arg(long, value_name = "DURATION", value_parser = ttl_ms)]
    ttl: Option<u32>,

    /// The message's group: messages of one group go to one consumer at a time
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// How long the queue holds the message back before anyone gets it, such as 5s (x-opt-delivery-delay)
    #[arg(long, value_name = "DURATION", value_parser = delay_ms)]
    delay: Option<u64>,

    /// An application property, for selectors; may be given several times
    ///
    /// A number, true and false are sent as such: `attempt=1` fits the selector `attempt < 3`. All else is text, and so is what
    /// stands in quotes, single or double, which are not sent: `code='\"1\"'` in a shell.
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = property)]
    property: Vec<(String, PropertyValue)>,

    #[command(flatten)]
    broker: BrokerArgument,
}

const SEND_EXAMPLES: &str = "\
Examples:
  corelane send orders 'a first order'
  corelane send orders -n 1000 --size 64KiB
  corelane send orders 'a red one' --property colour=red --priority 7
  corelane send orders 'a second try' -p attempt=2 --delay 30s
  date | corelane send orders - --url amqp://alice:secret@broker.example:5672";

/// Take messages out of a queue, and print their bodies, one a line.
///
/// Exits with 3 if fewer came than asked for before the timeout.
#[derive(Debug, Args)]
#[command(after_help = RECEIVE_EXAMPLES)]
pub(super) struct ReceiveArguments {
    #[command(flatten)]
    common: ReceiveCommon,

    /// How many messages to take; 0: all that come, until the timeout
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1)]
    count: u64,

    /// How long to wait for a message, in seconds or as in 500ms [default: for ever]
    #[arg(long, value_name = "S", value_parser = timeout_us)]
    timeout: Option<u64>,
}

const RECEIVE_EXAMPLES: &str = "\
Examples:
  corelane receive orders
  corelane receive orders -n 10 --timeout 5
  corelane receive orders -n 0 --timeout 1 --selector \"colour = 'red'\" --verbose";

/// Look at the messages of a queue, which stay where they are.
#[derive(Debug, Args)]
#[command(after_help = BROWSE_EXAMPLES)]
pub(super) struct BrowseArguments {
    #[command(flatten)]
    common: ReceiveCommon,

    /// How many messages to look at; 0: all that are there
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 0)]
    count: u64,
}

const BROWSE_EXAMPLES: &str = "\
Examples:
  corelane browse orders
  corelane browse orders -n 10 --verbose";

#[derive(Debug, Args)]
struct ReceiveCommon {
    /// The queue
    address: String,

    /// Only messages that this JMS selector fits
    #[arg(long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Print each message's header, annotations and properties, too
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    broker: BrokerArgument,
}

/// Sends, and reports what was not accepted.
pub(super) fn send(arguments: &SendArguments) -> anyhow::Result<u8> {
    if let Some(name) = given_twice(&arguments.property) {
        return Err(anyhow!("the property {name:?} is given twice; a message has each once"));
    }
    let text;
    let message = match (&arguments.body, arguments.size) {
        (_, Some(size)) => TextMessage::Pattern(size),
        (Some(body), None) if body == "-" => {
            text = standard_input()?;
            TextMessage::Text(&text)
        }
        (Some(body), None) => TextMessage::Text(body),
        (None, None) => TextMessage::Text(""),
    };
    let options = SendOptions {
        durable: arguments.durable,
        priority: arguments.priority,
        ttl_ms: arguments.ttl,
        delay_ms: arguments.delay,
        group_id: arguments.group.clone(),
        properties: arguments.property.clone(),
    };
    let mut client = Client::connect(&arguments.broker.url)?;
    let (address, count) = (&arguments.address, arguments.count);
    let report = client.send_telling(address, message, count, &options, |sent| {
        eprintln!(
            "corelane: sent {sent} of {count}; waiting until the broker takes more. Is {address:?} full? \
             `corelane explain` says so for a queue"
        );
    })?;
    client.close()?;
    if report.accepted == report.total() {
        return Ok(DONE);
    }
    let fates = [
        ("accepted", report.accepted),
        ("rejected", report.rejected),
        ("released", report.released),
        ("modified", report.modified),
        ("settled without an outcome", report.unknown),
    ];
    let counts: Vec<String> =
        fates.iter().filter(|(_, count)| *count > 0).map(|(fate, count)| format!("{count} {fate}")).collect();
    eprintln!("corelane: of {} messages: {}", report.total(), counts.join(", "));
    if let Some(reason) = report.reason {
        eprintln!("corelane: the first reason given: {reason}");
    }
    Ok(INCOMPLETE)
}

/// Takes messages and prints them.
pub(super) fn receive(arguments: &ReceiveArguments) -> anyhow::Result<u8> {
    let common = &arguments.common;
    let count = Some(arguments.count).filter(|count| *count != 0);
    let selection = Selection { count, selector: common.selector.clone() };
    let mut client = Client::connect(&common.broker.url)?;
    let mut receiver = client.receive(&common.address, &selection)?;
    let mut came = 0_u64;
    let ended = receiver.run(arguments.timeout, |message| {
        print(message, common.verbose)?;
        came += 1;
        Ok::<(), Failure>(())
    });
    let ended = quiet_about_closed_output(ended)?;
    receiver.close()?;
    client.close()?;
    match (ended, count) {
        (Ended::TimedOut, Some(count)) => {
            eprintln!("corelane: {came} of {count} messages came in time");
            Ok(INCOMPLETE)
        }
        (Ended::TimedOut | Ended::Complete | Ended::QueueEnd, _) => Ok(DONE),
    }
}

/// Looks at messages and prints them.
pub(super) fn browse(arguments: &BrowseArguments) -> anyhow::Result<u8> {
    let common = &arguments.common;
    let count = Some(arguments.count).filter(|count| *count != 0);
    let selection = Selection { count, selector: common.selector.clone() };
    let mut client = Client::connect(&common.broker.url)?;
    let mut receiver = client.browse(&common.address, &selection)?;
    let ended = receiver.run(None, |message| print(message, common.verbose));
    quiet_about_closed_output(ended)?;
    receiver.close()?;
    client.close()?;
    Ok(DONE)
}

/// Why no more messages are taken.
enum Failure {
    Client(ClientError),
    Output(io::Error),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Failure::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

/// Who stops reading our output has seen enough: that is no failure.
fn quiet_about_closed_output(result: Result<Ended, Failure>) -> anyhow::Result<Ended> {
    match result {
        Ok(ended) => Ok(ended),
        Err(Failure::Client(error)) => Err(error.into()),
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Ended::Complete),
        Err(Failure::Output(error)) => {
            Err(anyhow!(error).context("the standard output cannot be written to"))
        }
    }
}

/// Prints a message, out at once.
fn print(message: &[u8], verbose: bool) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", show_body(message))?;
    if verbose {
        write!(output, "{}", show_details(message))?;
    }
    output.flush()?;
    Ok(())
}

fn standard_input() -> anyhow::Result<String> {
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(SIZE_MAX)
        .read_to_string(&mut text)
        .context("the standard input cannot be read as text")?;
    Ok(text)
}

fn body_size(text: &str) -> Result<u64, String> {
    let size = size_bytes(text).map_err(|error| error.to_string())?;
    if size > SIZE_MAX { Err("at most 1GiB".to_owned()) } else { Ok(size) }
}

/// Seconds, with or without a fraction, or a duration with its unit.
pub(super) fn timeout_us(text: &str) -> Result<u64, String> {
    const SECONDS_MAX: f64 = 1e9;
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok((seconds * 1e6) as u64),
        Ok(_) => Err("a timeout is 0 or more seconds".to_owned()),
        Err(_) => duration_us(text).map_err(|error| error.to_string()),
    }
}

fn ttl_ms(text: &str) -> Result<u32, String> {
    let us = duration_us(text).map_err(|error| error.to_string())?;
    u32::try_from(us.div_ceil(1000)).map_err(|_| "at most 49 days".to_owned())
}

fn delay_ms(text: &str) -> Result<u64, String> {
    Ok(duration_us(text).map_err(|error| error.to_string())?.div_ceil(1000))
}

fn property(text: &str) -> Result<(String, PropertyValue), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), property_value(value))),
        Some(_) | None => Err("write NAME=VALUE".to_owned()),
    }
}

/// The first name that stands for two properties.
fn given_twice(properties: &[(String, PropertyValue)]) -> Option<&str> {
    let mut names: Vec<&str> = properties.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// A number as JSON writes it (so `007` and `+49` are text, and what fits into no 64 bits, too), true and false; else a text.
fn property_value(text: &str) -> PropertyValue {
    let quoted = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    if let Some(inner) = quoted {
        return PropertyValue::Text(inner.to_owned());
    }
    let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    match (text, serde_json::from_str::<serde_json::Number>(text)) {
        ("true", _) => PropertyValue::Boolean(true),
        ("false", _) => PropertyValue::Boolean(false),
        (_, Ok(number)) if is_number && !text.ends_with(char::is_whitespace) => {
            match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => PropertyValue::Integer(integer),
                (None, Some(float)) if !number.is_u64() && text.contains(['.', 'e', 'E']) => {
                    PropertyValue::Float(float)
                }
                _ => PropertyValue::Text(text.to_owned()),
            }
        }
        _ => PropertyValue::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_seconds_or_durations() {
        assert_eq!(timeout_us("5"), Ok(5_000_000));
        assert_eq!(timeout_us("0.25"), Ok(250_000));
        assert_eq!(timeout_us("250ms"), Ok(250_000));
        assert_eq!(timeout_us("0"), Ok(0));
        for text in ["-1", "nan", "inf", "soon", ""] {
            assert!(timeout_us(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn properties_have_a_name() {
        let text = |text: &str| PropertyValue::Text(text.to_owned());
        assert_eq!(property("a=b=c"), Ok(("a".to_owned(), text("b=c"))));
        assert_eq!(property("a="), Ok(("a".to_owned(), text(""))));
        assert!(property("=b").is_err());
        assert!(property("a").is_err());
        let twice = |texts: &[&str]| {
            let properties: Vec<_> = texts.iter().map(|text| property(text).unwrap()).collect();
            given_twice(&properties).map(str::to_owned)
        };
        assert_eq!(twice(&["a=1", "b=1", "a=2"]), Some("a".to_owned()));
        assert_eq!(twice(&["a=1", "b=1"]), None);
    }

    #[test]
    fn numbers_and_flags_are_sent_as_such_and_what_is_quoted_as_text() {
        let check = |text, expected| assert_eq!(property_value(text), expected, "{text:?}");
        check("1", PropertyValue::Integer(1));
        check("-12", PropertyValue::Integer(-12));
        check("1.5", PropertyValue::Float(1.5));
        check("2e3", PropertyValue::Float(2000.0));
        check("true", PropertyValue::Boolean(true));
        check("false", PropertyValue::Boolean(false));
        for text in
            ["", "red", "007", "+49", "1 ", " 1", "0x10", "nan", "True", "18446744073709551615", "\"", "null"]
        {
            check(text, PropertyValue::Text(text.to_owned()));
        }
        for (text, inner) in [("\"1\"", "1"), ("'true'", "true"), ("\"\"", ""), ("'\"1\"'", "\"1\"")] {
            check(text, PropertyValue::Text(inner.to_owned()));
        }
    }
}
