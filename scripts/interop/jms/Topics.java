import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Topics: subscriptions of every kind that JMS 2.0 has. */
final class Topics extends Interop {
    static void register(Map<String, Case> cases) {
        cases.put("topics", Topics::topics);
        cases.put("durable", Topics::durable);
        cases.put("durable-terms", Topics::durableTerms);
        cases.put("shared", Topics::shared);
        cases.put("shared-durable", Topics::sharedDurable);
        cases.put("topic-filters", Topics::topicFilters);
        cases.put("temporary-topic", Topics::temporaryTopic);
    }

    interface Step {
        void run() throws JMSException;
    }

    static void publish(Session session, String topic, List<Integer> seqs) throws JMSException {
        MessageProducer producer = session.createProducer(session.createTopic(topic));
        for (int seq : seqs) producer.send(message(session, seq, seq % 100, "p"));
        producer.close();
    }

    static Connection named(String container) throws JMSException {
        return connect("jms.clientID=" + container);
    }

    static void nothing(MessageConsumer consumer, String what) throws JMSException {
        Message message = consumer.receiveNoWait();
        check(message == null, what + ": " + (message == null ? "" : seq(message)));
    }

    static void refused(Class<?> kind, String what, Step step) throws JMSException {
        try {
            step.run();
        } catch (JMSException error) {
            check(kind.isInstance(error), what + " was refused with " + error);
            return;
        }
        throw new AssertionError(what + " was not refused");
    }

    static void topics() throws Exception {
        List<MessageConsumer> consumers = new ArrayList<>();
        try (Connection first = connect(""); Connection second = connect("jms.prefetchPolicy.all=10")) {
            Session publishing = session(first);
            publish(publishing, address, range(0, 5, 1));
            for (Connection connection : List.of(first, second, first, second)) {
                Session session = session(connection);
                consumers.add(session.createConsumer(session.createTopic(address)));
            }
            publish(publishing, address, range(0, 400, 1));
            for (MessageConsumer consumer : consumers) inOrder(take(consumer, 400, "a subscriber"), range(0, 400, 1), "a subscriber");
            consumers.get(0).close();
            publish(publishing, address, List.of(400));
            for (MessageConsumer consumer : consumers.subList(1, 4)) {
                Message message = take(consumer, "those that stayed");
                equal(seq(message), 400, "those that stayed");
                equal(((Topic) message.getJMSDestination()).getTopicName(), address, "destination");
            }
            Session session = session(second);
            nothing(session.createConsumer(session.createTopic(address)), "a late subscriber got a message");
            // A queue of the same name has nothing of it.
            equal(rest(session, address), List.of(), "in the queue of the topic's name");
        }
    }

    static void durable() throws Exception {
        String container = address + "-c";
        try (Connection publisher = connect("")) {
            Session publishing = session(publisher);
            for (int turn = 0; turn < 3; turn++) {
                Connection connection = named(container);
                Session session = session(connection);
                MessageConsumer consumer = session.createDurableConsumer(session.createTopic(address), "sub");
                if (turn > 0) inOrder(take(consumer, 20, "gathered"), range(20 * turn - 20, 20 * turn, 1), "gathered");
                nothing(consumer, "more than was gathered");
                if (turn == 0) consumer.close();
                connection.close();
                publish(publishing, address, range(20 * turn, 20 * turn + 20, 1));
            }
            try (Connection connection = named(container)) {
                Session session = session(connection);
                MessageConsumer another = session.createDurableConsumer(session.createTopic(address), "another");
                nothing(another, "in another subscription");
                refused(JMSException.class, "unsubscribe with a consumer", () -> session.unsubscribe("another"));
                another.close();
                session.unsubscribe("another");
                session.unsubscribe("sub");
                refused(InvalidDestinationException.class, "a second unsubscribe", () -> session.unsubscribe("sub"));
                MessageConsumer fresh = session.createDurableConsumer(session.createTopic(address), "sub");
                nothing(fresh, "after unsubscribe");
                publish(publishing, address, List.of(7));
                equal(seq(take(fresh, "of the new one")), 7, "of the new one");
                fresh.close();
                session.unsubscribe("sub");
            }
        }
    }

    /** Another selector or topic makes another subscription of the same name: what was gathered on the old terms is gone. */
    static void durableTerms() throws Exception {
        try (Connection connection = named(address + "-c")) {
            Session session = session(connection);
            Topic topic = session.createTopic(address);
            session.createDurableConsumer(topic, "sub", "seq < 5", false).close();
            publish(session, address, range(0, 10, 1));
            MessageConsumer same = session.createDurableConsumer(topic, "sub", "seq < 5", false);
            equal(seq(take(same, "on the same terms")), 0, "on the same terms");
            same.close();
            MessageConsumer changed = session.createDurableConsumer(topic, "sub", "seq >= 5", false);
            nothing(changed, "from before the change");
            publish(session, address, range(0, 10, 1));
            inOrder(take(changed, 5, "on the new terms"), range(5, 10, 1), "on the new terms");
            changed.close();
            session.unsubscribe("sub");
        }
    }

    static void balanced(List<List<Integer>> shares, int count) {
        List<Integer> all = new ArrayList<>();
        for (List<Integer> share : shares) {
            List<Integer> sorted = new ArrayList<>(share);
            Collections.sort(sorted);
            inOrder(share, sorted, "order of a share");
            check(share.size() > count / 6, "a share of " + share.size() + " of " + count);
            all.addAll(share);
        }
        Collections.sort(all);
        inOrder(all, range(0, count, 1), "all, each once");
    }

    /** Takes from each in turn until `count` have come. */
    static List<List<Integer>> among(List<MessageConsumer> consumers, int count) throws JMSException {
        List<List<Integer>> shares = new ArrayList<>();
        for (int i = 0; i < consumers.size(); i++) shares.add(new ArrayList<>());
        long end = System.currentTimeMillis() + MILLIS;
        for (int taken = 0; taken < count;) {
            check(System.currentTimeMillis() < end, "only " + taken + " of " + count + " came");
            for (int i = 0; i < consumers.size(); i++) {
                Message message = consumers.get(i).receive(50);
                if (message != null) {
                    shares.get(i).add(seq(message));
                    taken++;
                }
            }
        }
        return shares;
    }

    static void shared() throws Exception {
        int count = 300;
        try (Connection named = named(address + "-c"); Connection first = connect(""); Connection second = connect("")) {
            for (List<Connection> connections : List.of(List.of(named, named, named), List.of(first, second, second))) {
                List<MessageConsumer> consumers = new ArrayList<>();
                for (Connection connection : connections) {
                    Session session = session(connection);
                    consumers.add(session.createSharedConsumer(session.createTopic(address), "sub"));
                }
                Session session = session(first);
                MessageConsumer alone = session.createConsumer(session.createTopic(address));
                publish(session, address, range(0, count, 1));
                balanced(among(consumers, count), count);
                inOrder(take(alone, count, "who does not share"), range(0, count, 1), "who does not share");
                alone.close();
                for (MessageConsumer consumer : consumers) consumer.close();
                publish(session, address, List.of(1));
                Session last = session(connections.get(0));
                MessageConsumer again = last.createSharedConsumer(last.createTopic(address), "sub");
                nothing(again, "gathered for nobody");
                again.close();
            }
        }
    }

    static void sharedDurable() throws Exception {
        int count = 300;
        try (Connection named = named(address + "-c"); Connection first = connect(""); Connection second = connect("")) {
            for (List<Connection> connections : List.of(List.of(named, named, named), List.of(first, second, second))) {
                List<MessageConsumer> consumers = new ArrayList<>();
                for (Connection connection : connections) {
                    Session session = session(connection);
                    consumers.add(session.createSharedDurableConsumer(session.createTopic(address), "sub", "seq < 1000"));
                }
                Session session = session(first);
                publish(session, address, range(0, count, 1));
                balanced(among(consumers, count), count);
                consumers.get(0).close();
                consumers.get(1).close();
                publish(session, address, List.of(1, 2000));
                equal(seq(take(consumers.get(2), "for the last one")), 1, "for the last one");
                Session own = session(connections.get(0));
                refused(JMSException.class, "unsubscribe with a consumer", () -> own.unsubscribe("sub"));
                consumers.get(2).close();
                publish(session, address, range(0, 20, 1));
                MessageConsumer again = own.createSharedDurableConsumer(own.createTopic(address), "sub", "seq < 1000");
                inOrder(take(again, 20, "gathered"), range(0, 20, 1), "gathered");
                again.close();
                own.unsubscribe("sub");
                refused(InvalidDestinationException.class, "a second unsubscribe", () -> own.unsubscribe("sub"));
            }
        }
    }

    static void topicFilters() throws Exception {
        try (Connection connection = named(address + "-c"); Connection other = connect("")) {
            Session session = session(connection);
            Topic topic = session.createTopic(address);
            MessageConsumer high = session.createConsumer(topic, "seq > 15");
            MessageConsumer foreign = session.createConsumer(topic, null, true);
            MessageConsumer foreignDurable = session.createDurableConsumer(topic, "foreign", "seq > 5", true);
            publish(session, address, range(0, 20, 1));
            publish(session(other), address, range(10, 30, 1));
            List<Integer> expected = range(16, 20, 1);
            expected.addAll(range(16, 30, 1));
            inOrder(take(high, expected.size(), "selected"), expected, "selected");
            inOrder(take(foreign, 20, "of others"), range(10, 30, 1), "of others");
            inOrder(take(foreignDurable, 20, "of others, durable"), range(10, 30, 1), "of others, durable");
            for (MessageConsumer consumer : List.of(high, foreign, foreignDurable)) nothing(consumer, "beyond");
            foreignDurable.close();
            session.unsubscribe("foreign");
            refused(InvalidSelectorException.class, "a wrong selector", () -> session.createConsumer(topic, "seq = = 1"));
        }
    }

    static void temporaryTopic() throws Exception {
        try (Connection connection = connect(""); Connection other = connect("")) {
            Session session = session(connection);
            TemporaryTopic mine = session.createTemporaryTopic();
            check(!mine.getTopicName().equals(session.createTemporaryTopic().getTopicName()), "two temporary topics have one name");
            MessageConsumer first = session.createConsumer(mine);
            MessageConsumer second = session.createConsumer(mine);
            MessageConsumer requests = session.createConsumer(session.createTopic(address));
            Session away = session(other);
            TextMessage request = away.createTextMessage("question");
            request.setJMSReplyTo(mine);
            away.createProducer(away.createTopic(address)).send(request);
            Message received = take(requests, "request");
            MessageProducer replies = session.createProducer(null);
            replies.send(received.getJMSReplyTo(), session.createTextMessage("answer"));
            for (MessageConsumer consumer : List.of(first, second)) {
                equal(((TextMessage) take(consumer, "answer")).getText(), "answer", "answer");
            }
            first.close();
            second.close();
            mine.delete();
        }
    }
}
