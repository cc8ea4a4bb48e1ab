//! Which entities of a kind are on this shard? A page of them, by their indices.

use corelane_wire::amqp10::ListWriter;

use super::connections::ConnectionView;
use super::data::Data;
use super::kinds::Kind;
use super::question::{ListQuestion, RowLink, Rows};
use super::{connections, consumers, exchanges, queues, shards, subscriptions};
use crate::Shard;
use crate::limits::{ANSWER_BYTES_MAX, LIST_ROWS_MAX, LIST_STEPS_MAX};
use crate::patterns::pattern_matches;
use crate::vhost;

impl Shard {
    /// Looks at so many entities from an index on, and shows those that are asked for.
    pub(crate) fn list(&mut self, now: u64, question: &ListQuestion) -> Rows {
        let end = match question.kind {
            Kind::Queue | Kind::Subscription => self.queues.index_end(),
            Kind::Connection => self.connections.index_end(),
            Kind::Consumer => self.engine.consumer_index_end(),
            Kind::Shard => 1,
            Kind::Topic => self.topic_index_end(),
            Kind::Exchange => self.exchange_index_end(),
            Kind::Binding => self.binding_index_end(),
        };
        let until = end.min(question.from.saturating_add(LIST_STEPS_MAX));
        let mut rows = Rows { rows: Vec::new(), skipped: 0, next: None, links: Vec::new() };
        let mut bytes = 0;
        for index in question.from..until {
            let full = rows.rows.len() >= LIST_ROWS_MAX.min(question.count as usize);
            if full || bytes >= ANSWER_BYTES_MAX {
                rows.next = Some(index);
                return rows;
            }
            if !self.is_listed(question, index) {
                continue;
            }
            if rows.skipped < question.skip {
                rows.skipped += 1;
            } else {
                if question.kind == Kind::Consumer
                    && let Some((shard, link)) = self.consumer_link_elsewhere(index)
                {
                    rows.links.push(RowLink { row: rows.rows.len(), shard, link });
                }
                let row = self.row(now, question, index);
                bytes += row.len();
                rows.rows.push(row);
            }
        }
        rows.next = (until < end).then_some(until);
        rows
    }

    /// Whether there is an entity of this index, and its name is asked for.
    fn is_listed(&mut self, question: &ListQuestion, index: u32) -> bool {
        let fits = |name: &str| {
            let (vhost, name) = vhost::parts(name);
            vhost == &*question.vhost
                && question.pattern.as_deref().is_none_or(|pattern| name_fits(pattern, name))
        };
        let has = |name: &str| question.pattern.as_deref().is_none_or(|pattern| name_fits(pattern, name));
        match question.kind {
            Kind::Queue => self.queues.at(index).is_some_and(|(_, node)| fits(&node.name)),
            Kind::Connection => match self.connections.at(index) {
                Some((_, connection)) => {
                    connection.vhost() == &*question.vhost
                        && (has(&connection.container) || connection.user.as_deref().is_some_and(has))
                }
                None => false,
            },
            Kind::Consumer => {
                let queue = self.engine.consumer_at(index).and_then(|id| self.engine.queue_of(id));
                queue.and_then(|queue| self.queues.get(queue)).is_some_and(|node| fits(&node.name))
            }
            Kind::Shard => true,
            Kind::Topic => self.topic_at(index).is_some_and(fits),
            Kind::Exchange => {
                let found = self.exchange_at(index);
                found.is_some_and(|(vhost, exchange)| *vhost == *question.vhost && has(&exchange.name))
            }
            Kind::Binding => self.binding_at(index).is_some_and(|(vhost, (binding, _))| {
                let is_named = has(&binding.source) || has(exchanges::destination(&binding));
                *vhost == *question.vhost && is_named
            }),
            Kind::Subscription => self.queues.at(index).is_some_and(|(_, node)| {
                node.subscription.is_some() && (fits(&node.name) || fits(node.ruled_by()))
            }),
        }
    }

    fn row(&mut self, now: u64, question: &ListQuestion, index: u32) -> Box<[u8]> {
        let mut bytes = Vec::new();
        let mut row = ListWriter::new(&mut bytes);
        for column in &question.columns {
            let column = column.map(usize::from);
            row.field(&column.map_or(Data::Null, |column| self.cell(now, question.kind, index, column)));
        }
        row.finish();
        bytes.into()
    }

    fn cell(&mut self, now: u64, kind: Kind, index: u32, column: usize) -> Data {
        match kind {
            Kind::Queue => self.queue_view(now, index).map(|view| queues::cell(&view, column)),
            Kind::Connection => {
                let (shard, connection) = (self.index, self.connections.at(index));
                connection.map(|(_, connection)| {
                    connections::ATTRIBUTES[column].1(&mut ConnectionView { now, shard, connection })
                })
            }
            Kind::Consumer => {
                let view = self.engine.consumer_at(index).and_then(|id| self.consumer_view(id));
                view.map(|view| consumers::ATTRIBUTES[column].1(&view))
            }
            Kind::Shard => Some(shards::ATTRIBUTES[column].1(self)),
            Kind::Topic => {
                let name = self.topic_at(index).map(str::to_owned);
                name.map(|name| self.topic_cell(&name, column))
            }
            Kind::Subscription => self.queue_view(now, index).map(|view| subscriptions::cell(&view, column)),
            Kind::Exchange => {
                let found = self.exchange_at(index);
                found.map(|(_, exchange)| exchanges::ATTRIBUTES[column].1(exchange))
            }
            Kind::Binding => {
                let found = self.binding_at(index);
                found.map(|(_, bound)| exchanges::BINDING_ATTRIBUTES[column].1(&bound))
            }
        }
        .unwrap_or_default()
    }
}

/// A pattern with wildcards stands for whole words, as in rules for destinations; another one for a part of the name.
fn name_fits(pattern: &str, name: &str) -> bool {
    let is_wildcard = pattern.split('.').any(|word| matches!(word, "*" | ">"));
    if is_wildcard { pattern_matches(pattern, name) } else { name.contains(pattern) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parts_of_names_or_wildcards() {
        let check = |pattern, name, expect| assert_eq!(name_fits(pattern, name), expect, "{pattern} {name}");
        check("orders", "orders.eu", true);
        check("ders", "orders.eu", true);
        check("orders.*", "orders.eu", true);
        check("orders.*", "orders.eu.de", false);
        check("orders.>", "orders.eu.de", true);
        check("", "anything", true);
        check("Orders", "orders", false);
    }
}
