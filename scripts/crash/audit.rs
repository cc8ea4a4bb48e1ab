//! What is there after a start, and is it what has to be there?
//!
//! Queues are browsed. A durable subscription cannot be: everything in it is acquired and given back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use corelane_protocol::amqp10::LinkId;

use corelane_wire::amqp10::DeliveryState;

use crate::client::{Client, Gone, Happening, Mode, PATIENCE};
use crate::fault::Fault;
use crate::ledger::{Contents, Ledger, Seen};
use crate::message;
use crate::nodes::{Node, TOPIC};

/// More credit than there are messages.
const CREDIT: u32 = 60_000;
/// Dead letters may be on their way from one node to another while both are looked at: what is wrong then is looked at again for so long.
const SETTLING_TIME_MAX: Duration = Duration::from_secs(20);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Looks until what is there is right, and goes on with that. What is wrong to the end.
pub fn audit(address: SocketAddr, nodes: &[Node], ledger: &mut Ledger) -> Vec<Fault> {
    let started = Instant::now();
    loop {
        let contents = match contents(address, nodes) {
            Ok(contents) => contents,
            Err(fault) => return vec![fault],
        };
        let faults = ledger.faults(&contents);
        if faults.is_empty() {
            ledger.begin_with(&contents);
            return faults;
        }
        if started.elapsed() > SETTLING_TIME_MAX {
            return faults;
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
}

fn contents(address: SocketAddr, nodes: &[Node]) -> Result<Contents, Fault> {
    let broken = |Gone(reason)| Fault::Broker(format!("while it is looked at: {reason}"));
    let mut client = Client::connect(address, "crash-audit").map_err(broken)?;
    let mut contents = Contents::new();
    for node in nodes {
        contents.push(match node.is_subscription {
            false => {
                let link = client.attach_receiver(&format!("browse-{}", node.name), &node.name, Mode::Browse);
                read(&mut client, link.map_err(broken)?, Mode::Browse)?
            }
            true => {
                let mut client = Client::connect(address, &node.name).map_err(broken)?;
                let link = client.attach_receiver(&node.name, TOPIC, Mode::Subscribe).map_err(broken)?;
                read(&mut client, link, Mode::Subscribe)?
            }
        });
    }
    Ok(contents)
}

/// Everything that a link gets, which ends then.
fn read(client: &mut Client, link: LinkId, mode: Mode) -> Result<Vec<Seen>, Fault> {
    let started = Instant::now();
    let (mut seen, mut held) = (Vec::new(), Vec::new());
    client.drain(link, CREDIT);
    loop {
        let next = client.next(Duration::from_millis(100));
        match next.map_err(|Gone(reason)| Fault::Broker(format!("while it is looked at: {reason}")))? {
            Some(Happening::Message { delivery, bytes, .. }) => {
                seen.push(message::read(&bytes)?);
                held.push(delivery);
            }
            Some(Happening::Drained(_)) => {
                held.iter().for_each(|delivery| client.settle(link, *delivery, &DeliveryState::Released));
                client.detach(link, mode == Mode::Browse);
            }
            Some(Happening::Detached { error: None, .. }) => return Ok(seen),
            Some(Happening::Detached { error: Some(error), .. }) => {
                return Err(Fault::Broker(format!("nobody can look at it: {error}")));
            }
            Some(Happening::Opened | Happening::Attached | Happening::Answered { .. }) | None => {}
        }
        if started.elapsed() > PATIENCE {
            return Err(Fault::Broker("it does not say what there is".to_owned()));
        }
    }
}
