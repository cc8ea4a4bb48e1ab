//! Does everything that is kept twice agree?

use super::channel::{Channel, ChannelState, Mode};
use super::connection::{Connection, Phase};
use super::link::LinkEnd;
use super::settlement::Mark;

impl Connection {
    /// Recounts everything. For tests and simulations; panics where something disagrees.
    pub fn verify(&self) {
        let (mut parked, mut assembled, mut links) = (0, 0, 0);
        for (number, channel) in self.channels.iter() {
            parked += channel.parked.size();
            assembled += channel.incoming.as_ref().map_or(0, |incoming| incoming.body().len());
            links += channel.links.len();
            let waits = channel.pending.is_some() || self.resumable.contains(&number);
            assert!(waits || !channel.parked.has_frames(), "what is parked waits for something");
            self.verify_channel(number, channel);
        }
        assert_eq!(parked, self.parked_size, "bytes of parked frames");
        assert_eq!(assembled, self.assembly.size, "bytes of messages that came in part");
        let retired = self.links.iter().filter(|(_, link)| link.retired).count();
        assert_eq!(
            links + retired,
            self.links.len(),
            "each link is one of a channel, or about to be told of"
        );
        let named = self.links.iter().filter(|(_, link)| !link.retired && link.name().is_some());
        let found = named.filter(|(slot, link)| {
            let (kind, name) = link.name().expect("filtered");
            self.find_link(link.channel, kind, name) == Some(*slot)
        });
        assert_eq!(found.count(), self.names.len(), "names lead to their links");
        if self.phase == Phase::Closed {
            assert!(self.channels.count() == 0, "the end is the end of all");
        }
    }

    fn verify_channel(&self, number: u16, channel: &Channel) {
        channel.sent.verify();
        let within = channel.sent.iter().filter(|(_, sent)| sent.mark != Mark::Unsettled).count();
        assert_eq!(within, channel.sent_within, "outcomes that wait for a commit");
        assert!(within == 0 || channel.mode == Mode::Transaction);
        let mut by_consumers = 0;
        for &slot in &channel.links {
            let link = &self.links[slot as usize];
            assert!(link.channel == number && !link.retired, "a channel's links are its own");
            let entries = channel.sent.iter().filter(|(_, sent)| sent.link == slot).count();
            assert_eq!(entries, link.unsettled, "unsettled deliveries of a link");
            match &link.end {
                LinkEnd::Consumer(_) => by_consumers += entries,
                LinkEnd::Publisher => assert!(entries == 0 && slot == channel.publisher),
                LinkEnd::Getter(_) => {}
            }
        }
        assert_eq!(by_consumers, channel.consumers_unsettled, "what consumers hold");
        if channel.mode == Mode::Confirm && channel.state == ChannelState::Open {
            channel.confirms.verify(channel.published);
        }
        if channel.state != ChannelState::Open {
            assert!(channel.links.is_empty() && channel.pending.is_none() && channel.incoming.is_none());
        }
    }
}
