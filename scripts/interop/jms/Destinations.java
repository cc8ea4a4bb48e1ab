import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a destination's properties and a message's headers and properties do. */
final class Destinations extends Interop {
    static void register(Map<String, Case> cases) {
        cases.put("groups", Destinations::groups);
        cases.put("priorities", Destinations::priorities);
        cases.put("expiration", Destinations::expiration);
        cases.put("delayed", Destinations::delayed);
        cases.put("fail-over", Destinations::failOver);
        cases.put("prefetch", Destinations::prefetch);
        cases.put("dead-letters", Destinations::deadLetters);
        cases.put("overflow", Destinations::overflow);
        cases.put("properties", Destinations::properties);
        cases.put("bodies", Destinations::bodies);
    }

    static void groups() throws Exception {
        int count = 300;
        List<Connection> connections = new ArrayList<>();
        Map<String, Integer> owner = Collections.synchronizedMap(new LinkedHashMap<>());
        Map<String, Integer> held = Collections.synchronizedMap(new LinkedHashMap<>());
        Map<String, Integer> last = Collections.synchronizedMap(new LinkedHashMap<>());
        List<String> problems = Collections.synchronizedList(new ArrayList<>());
        List<Integer> seen = Collections.synchronizedList(new ArrayList<>());
        for (int index = 0; index < 3; index++) {
            Connection connection = connect("jms.prefetchPolicy.all=20");
            connections.add(connection);
            Session session = connection.createSession(false, INDIVIDUAL);
            int consumer = index;
            session.createConsumer(session.createQueue(address)).setMessageListener(message -> {
                try {
                    String group = message.getStringProperty("JMSXGroupID");
                    synchronized (owner) {
                        if (held.getOrDefault(group, 0) > 0 && owner.get(group) != consumer) {
                            problems.add(group + " is with " + owner.get(group) + ", but came to " + consumer);
                        }
                        owner.put(group, consumer);
                        held.merge(group, 1, Integer::sum);
                        if (seq(message) <= last.getOrDefault(group, -1)) problems.add(group + ": " + seq(message) + " after " + last.get(group));
                        last.put(group, seq(message));
                        // Freed before it is settled, since who is next may get it before we go on.
                        held.merge(group, -1, Integer::sum);
                    }
                    settle(message, 1);
                    seen.add(seq(message));
                } catch (JMSException error) {
                    problems.add(error.toString());
                }
            });
        }
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue(address));
            for (int seq = 0; seq < count; seq++) {
                Message message = message(session, seq, 10, "p");
                message.setStringProperty("JMSXGroupID", "g" + seq % 7);
                message.setIntProperty("JMSXGroupSeq", seq / 7 + 1);
                producer.send(message);
            }
        }
        long end = System.currentTimeMillis() + MILLIS;
        while (seen.size() < count && problems.isEmpty()) {
            check(System.currentTimeMillis() < end, "only " + seen.size() + " of " + count + " came");
            Thread.sleep(10);
        }
        check(problems.isEmpty(), "" + problems);
        for (Connection connection : connections) connection.close();
    }

    static void priorities() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue("levels." + address));
            for (int seq = 0; seq < 100; seq++) producer.send(message(session, seq, 10, "p"), DeliveryMode.NON_PERSISTENT, seq % 10, 0);
            List<Integer> expected = range(0, 100, 1);
            expected.sort((a, b) -> a % 10 == b % 10 ? a - b : b % 10 - a % 10);
            inOrder(rest(session, "levels." + address), expected, "higher ones first, each level in order");
        }
    }

    static void expiration() throws Exception {
        // The client would drop by itself what its producer had given less time.
        try (Connection connection = connect("jms.localMessageExpiry=false")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue("brief." + address));
            // The queue's 2 s stand for what the producer says.
            long[] times = {0, 60_000, 50};
            for (int i = 0; i < 3; i++) producer.send(message(session, i, 10, "p"), DeliveryMode.NON_PERSISTENT, 4, times[i]);
            Thread.sleep(100);
            inOrder(rest(session, "brief." + address), range(0, 3, 1), "before the queue's time");
            for (int i = 0; i < 3; i++) producer.send(message(session, i, 10, "p"), DeliveryMode.NON_PERSISTENT, 4, times[i]);
            Thread.sleep(2200);
            equal(rest(session, "brief." + address), List.of(), "after the queue's time");
        }
    }

    static void delayed() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            MessageProducer producer = session.createProducer(session.createQueue(address));
            long[] delays = {900, 300, 0, 600};
            Map<Integer, Long> due = new LinkedHashMap<>();
            for (int i = 0; i < delays.length; i++) {
                producer.setDeliveryDelay(delays[i]);
                Message message = message(session, i, 10, "p");
                producer.send(message);
                due.put(i, message.getJMSDeliveryTime());
            }
            long before = 0;
            for (int i = 0; i < delays.length; i++) {
                Message message = take(consumer, "delayed");
                long late = System.currentTimeMillis() - due.get(seq(message));
                check(late >= -5 && late < 3000, seq(message) + " came " + late + " ms after its time");
                check(due.get(seq(message)) >= before, seq(message) + " came after one that was due later");
                before = due.get(seq(message));
                if (delays[seq(message)] > 0) equal(message.getJMSDeliveryTime(), before, "JMSDeliveryTime");
            }
            check(consumer.receiveNoWait() == null, "a message twice");
        }
    }

    static void failOver() throws Exception {
        String queue = "exclusive." + address;
        try (Connection home = connect("")) {
            send(session(home), queue, range(0, 30, 1));
            List<Connection> connections = new ArrayList<>();
            List<MessageConsumer> consumers = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Connection connection = connect("jms.prefetchPolicy.all=10");
                connections.add(connection);
                Session session = connection.createSession(false, INDIVIDUAL);
                consumers.add(session.createConsumer(session.createQueue(queue)));
            }
            int next = 0;
            for (int i = 0; i < 3; i++) {
                for (int taken = 0; taken < 6; taken++) {
                    Message message = take(consumers.get(i), "consumer " + i);
                    equal(seq(message), next, "order at consumer " + i);
                    next++;
                    settle(message, 1);
                }
                if (i < 2) check(consumers.get(i + 1).receive(100) == null, "a message for one that stands by");
                connections.get(i).close();
            }
            inOrder(rest(session(home), queue), range(18, 30, 1), "what is left");
        }
    }

    static void prefetch() throws Exception {
        for (String kind : new String[] {"one.", "clamped."}) {
            int limit = kind.equals("one.") ? 1 : 5;
            // A client that gives its credit ahead gives none again in time for a queue that wants a flow for each message.
            String ahead = "jms.prefetchPolicy.all=" + (limit == 1 ? 0 : 50);
            try (Connection connection = connect(ahead); Connection other = connect(ahead)) {
                send(session(other), kind + address, range(0, 20, 1));
                Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
                MessageConsumer consumer = session.createConsumer(session.createQueue(kind + address));
                Message message = null;
                for (int i = 0; i < limit; i++) {
                    message = take(consumer, kind);
                    equal(seq(message), i, "order");
                }
                check(consumer.receive(200) == null, kind + ": a message beyond the clamp of " + limit);
                // The others are for others.
                MessageConsumer second = session(other).createConsumer(session(other).createQueue(kind + address));
                inOrder(take(second, 20 - limit, "for others"), range(limit, 20, 1), "for others");
                message.acknowledge();
                second.close();
                consumer.close();
            }
        }
    }

    static void deadLetters() throws Exception {
        String queue = "mortal." + address;
        // The client would drop a letter whose producer's time has passed.
        try (Connection connection = connect("jms.localMessageExpiry=false")) {
            Session session = session(connection);
            MessageConsumer letters = session.createConsumer(session.createQueue("dead.mortal"), "producer = 'jms'");
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            Session transacted = connection.createSession(Session.SESSION_TRANSACTED);
            producer.send(message(session, 1, 10, "jms"));
            MessageConsumer consumer = transacted.createConsumer(transacted.createQueue(queue));
            for (int i = 1; i <= 3; i++) {
                equal(take(consumer, "try " + i).getIntProperty("JMSXDeliveryCount"), i, "JMSXDeliveryCount");
                transacted.rollback();
            }
            equal(seq(take(letters, "delivered too often")), 1, "delivered too often");
            check(consumer.receiveNoWait() == null, "a fourth try");
            consumer.close();
            producer.send(message(session, 2, 10, "jms"), DeliveryMode.NON_PERSISTENT, 4, 200);
            equal(seq(take(letters, "expired")), 2, "expired");
            producer.send(message(session, 3, 10, "jms"));
            Session individual = connection.createSession(false, INDIVIDUAL);
            settle(take(individual.createConsumer(individual.createQueue(queue)), "to be rejected"), 2);
            Message letter = take(letters, "rejected");
            equal(seq(letter), 3, "rejected");
            checkBody(letter);
            equal(rest(session, queue), List.of(), "what is left");
        }
    }

    static void overflow() throws Exception {
        String queue = "reject." + address;
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            int refused = 0;
            for (int i = 0; i < 8; i++) {
                try {
                    producer.send(message(session, i, 10, "p"));
                } catch (JMSException error) {
                    refused++;
                }
            }
            equal(refused, 3, "messages refused");
            inOrder(rest(session, queue), range(0, 5, 1), "what the queue took");
            producer.send(message(session, 9, 10, "p"));
            inOrder(rest(session, queue), List.of(9), "when there is room again");
        }
    }

    static void properties() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue(address));
            Map<String, Object> values = new LinkedHashMap<>();
            values.put("bool", true);
            values.put("byte", (byte) -7);
            values.put("short", (short) -30_000);
            values.put("int", Integer.MIN_VALUE);
            values.put("long", Long.MAX_VALUE);
            values.put("float", 1.25f);
            values.put("double", -1e300);
            values.put("text", "grün");
            String[] selectors = {
                "bool = TRUE", "byte = -7", "short < -29999", "int = -2147483648", "long = 9223372036854775807", "float = 1.25",
                "\"double\" < -1e299", "text = 'grün'", "missing IS NULL", "NOT bool = FALSE AND byte + short < 0",
                "JMSPriority = 3 AND JMSDeliveryMode = 'PERSISTENT' AND JMSType = 'kind'", "JMSXGroupID = 'g' AND JMSXGroupSeq = 2",
                "JMSCorrelationID = 'c'", "text IN ('rot', 'grün') AND text LIKE 'gr_n'",
            };
            for (String selector : selectors) {
                TextMessage message = session.createTextMessage("body");
                for (Map.Entry<String, Object> value : values.entrySet()) message.setObjectProperty(value.getKey(), value.getValue());
                message.setJMSType("kind");
                message.setJMSCorrelationID("c");
                message.setStringProperty("JMSXGroupID", "g");
                message.setIntProperty("JMSXGroupSeq", 2);
                message.setJMSReplyTo(session.createTopic("somewhere"));
                producer.send(message, DeliveryMode.PERSISTENT, 3, 60_000);
                MessageConsumer consumer = session.createConsumer(session.createQueue(address), selector.replace("\"double\"", "double"));
                TextMessage received = (TextMessage) take(consumer, selector);
                for (Map.Entry<String, Object> value : values.entrySet()) {
                    equal(received.getObjectProperty(value.getKey()), value.getValue(), "property " + value.getKey());
                }
                equal(received.getJMSMessageID(), message.getJMSMessageID(), "message-id");
                equal(received.getJMSTimestamp(), message.getJMSTimestamp(), "timestamp");
                equal(received.getJMSType(), "kind", "type");
                equal(received.getJMSCorrelationID(), "c", "correlation-id");
                equal(received.getJMSReplyTo(), message.getJMSReplyTo(), "reply-to");
                equal(received.getJMSPriority(), 3, "priority");
                check(Math.abs(received.getJMSExpiration() - message.getJMSExpiration()) < 5000, "expiration");
                equal(received.getIntProperty("JMSXGroupSeq"), 2, "group sequence");
                consumer.close();
            }
        }
    }

    static void bodies() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue(address));
            MapMessage map = session.createMapMessage();
            StreamMessage stream = session.createStreamMessage();
            BytesMessage bytes = session.createBytesMessage();
            Object[] values = {true, (byte) 1, (short) -2, 3, -4L, 'c', 1.5f, -2.5, "text", new byte[] {1, 2, 3}};
            for (int i = 0; i < values.length; i++) {
                map.setObject("k" + i, values[i]);
                stream.writeObject(values[i]);
                bytes.writeObject(values[i]);
            }
            map.setObject("null", null);
            ObjectMessage object = session.createObjectMessage(new LinkedHashMap<>(Map.of("a", List.of(1, 2))));
            for (Message message : new Message[] {map, stream, bytes, object, session.createTextMessage(null), session.createMessage()}) {
                producer.send(message);
            }
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            MapMessage gotMap = (MapMessage) take(consumer, "map");
            StreamMessage gotStream = (StreamMessage) take(consumer, "stream");
            BytesMessage gotBytes = (BytesMessage) take(consumer, "bytes");
            for (int i = 0; i < values.length; i++) {
                check(Arrays.deepEquals(new Object[] {gotMap.getObject("k" + i)}, new Object[] {values[i]}), "map entry " + i);
                check(Arrays.deepEquals(new Object[] {gotStream.readObject()}, new Object[] {values[i]}), "stream item " + i);
            }
            check(gotMap.itemExists("null") && gotMap.getObject("null") == null, "null in a map");
            equal(gotBytes.readBoolean(), true, "boolean in bytes");
            equal(gotBytes.readByte(), (byte) 1, "byte in bytes");
            equal(gotBytes.readShort(), (short) -2, "short in bytes");
            equal(gotBytes.readInt(), 3, "int in bytes");
            equal(gotBytes.readLong(), -4L, "long in bytes");
            equal(gotBytes.readChar(), 'c', "char in bytes");
            equal(gotBytes.readFloat(), 1.5f, "float in bytes");
            equal(gotBytes.readDouble(), -2.5, "double in bytes");
            equal(gotBytes.readUTF(), "text", "text in bytes");
            equal(((ObjectMessage) take(consumer, "object")).getObject(), Map.of("a", List.of(1, 2)), "object");
            equal(((TextMessage) take(consumer, "text without text")).getText(), null, "text");
            take(consumer, "a message without a body");
        }
    }
}
