//! Do all the parts of a connection agree with each other?
//!
//! Costs as much as there is; tests, fuzzing and simulation call it after every step.

use crate::serial;

use super::connection::Connection;
use super::link::{Detached, Link, LinkEnd, LinkState};
use super::session::{NO_LINK, NO_SESSION, Session};

impl Connection {
    /// Checks every invariant that is kept in more than one place.
    ///
    /// # Panics
    /// If one does not hold, which is a fault of this crate.
    pub fn verify(&self) {
        for (slot, session) in &self.sessions {
            self.verify_session(slot, session);
        }
        for (slot, link) in &self.links {
            self.verify_link(slot, link);
        }
        for (channel, &slot) in self.channels.iter().enumerate().filter(|&(_, &slot)| slot != NO_SESSION) {
            let session = self.sessions.get(usize::from(slot));
            assert_eq!(
                session.and_then(|session| session.remote_channel),
                Some(channel as u16),
                "channel of a session"
            );
        }
        let parts = self.links.iter().map(|(_, link)| match &link.end {
            LinkEnd::Receiver(receiver) => {
                receiver.partial.as_ref().map_or(0, |partial| partial.payload.len())
            }
            LinkEnd::Sender(_) => 0,
        });
        assert_eq!(parts.sum::<usize>(), self.assembly_size(), "bytes of unfinished deliveries");
        assert!(self.assembly_size() <= self.config.assembly_size_max, "unfinished deliveries are bounded");
        for &slot in &self.names {
            assert!(self.links.contains(slot as usize), "a name has a link");
        }
    }

    fn verify_session(&self, slot: usize, session: &Session) {
        session.sent.verify();
        session.arrived.verify();
        assert!(
            session.incoming_window <= self.config.incoming_window,
            "the window is never larger than announced"
        );
        let links = || session.local_handles.iter().map(|(_, &link)| &self.links[link as usize]);
        assert!(links().all(|link| link.session == slot), "handles are of links of this session");
        let (mut sent, mut arrived, mut attaching) = (session.sent_orphans, 0, 0);
        for link in links() {
            match &link.end {
                LinkEnd::Sender(sender) => sent += sender.unsettled,
                LinkEnd::Receiver(receiver) => arrived += receiver.unsettled,
            }
            attaching += usize::from(link.initiated);
        }
        assert_eq!(sent, session.sent.count(), "sent deliveries");
        assert_eq!(arrived, session.arrived.count(), "received deliveries");
        assert_eq!(attaching, session.attaching, "links that wait for the peer's attach");
        for (handle, &link) in session.remote_handles.iter().enumerate().filter(|&(_, &link)| link != NO_LINK)
        {
            assert_eq!(self.links[link as usize].remote_handle, Some(handle as u32), "handle of a link");
        }
        assert!(session.dirty || session.run_as_receiver.is_none(), "what was gathered will be written");
        assert!(session.dirty || session.run_as_sender.is_none(), "what was gathered will be written");
    }

    fn verify_link(&self, slot: usize, link: &Link) {
        match self.sessions.get(link.session) {
            Some(session) => {
                let handle = session.local_handles.get(link.local_handle as usize);
                assert_eq!(handle, Some(&(slot as u32)), "a link has its handle");
            }
            None => assert_eq!(
                link.state,
                LinkState::Detached(Detached::Queued),
                "a link without session is about to go"
            ),
        }
        if link.state == LinkState::Detached(Detached::Told) {
            assert!(link.received_unsettled() > 0, "a link that is done with is gone");
        }
        if let LinkEnd::Receiver(receiver) = &link.end {
            let limit = receiver.delivery_count.wrapping_add(receiver.credit);
            assert!(
                serial::distance(limit, receiver.delivery_limit_max) >= 0,
                "credit is within what was granted"
            );
        }
    }
}
