import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;

/** One case with Qpid JMS: Interop CASE HOST PORT ADDRESS [more…]. Ends with 0, or says what was wrong and ends with 1. */
public class Interop {
    static final int MIB = 1 << 20;
    static final long MILLIS = 20_000;
    /** Qpid JMS's own mode: each message is settled by itself, as its property JMS_AMQP_ACK_TYPE says. */
    static final int INDIVIDUAL = 101;
    static final byte[] BLOCK = new byte[MIB + 1009];
    static String host;
    static String port;
    static String address;
    static List<String> rest;

    static {
        for (int i = 0; i < BLOCK.length; i++) BLOCK[i] = (byte) (i * 131 + (i >> 8) * 17);
    }

    interface Case {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        host = arguments[1];
        port = arguments[2];
        address = arguments[3];
        rest = Arrays.asList(arguments).subList(4, arguments.length);
        Map<String, Case> cases = new HashMap<>();
        cases.put("volume", Interop::volume);
        cases.put("frames", Interop::frames);
        cases.put("browse", Interop::browse);
        cases.put("selector", Interop::selector);
        cases.put("competing", Interop::competing);
        cases.put("one-at-a-time", Interop::oneAtATime);
        cases.put("drain", Interop::drain);
        cases.put("link-close", Interop::linkClose);
        cases.put("connection-close", Interop::connectionClose);
        cases.put("hold", Interop::hold);
        cases.put("recover", Interop::recover);
        cases.put("many-links", Interop::manyLinks);
        cases.put("homed-apart", Interop::homedApart);
        cases.put("request-response", Interop::requestResponse);
        cases.put("anonymous-relay", Interop::anonymousRelay);
        cases.put("presettled", Interop::presettled);
        cases.put("outcomes", Interop::outcomes);
        cases.put("time-to-live", Interop::timeToLive);
        cases.put("types", Interop::types);
        cases.put("async-send", Interop::asyncSend);
        cases.put("login", Interop::login);
        cases.put("produce", Interop::produce);
        cases.put("consume", Interop::consume);
        Topics.register(cases);
        Transactions.register(cases);
        Destinations.register(cases);
        try {
            cases.get(arguments[0]).run();
            System.exit(0);
        } catch (Throwable error) {
            StackTraceElement[] trace = error.getStackTrace();
            System.out.println(error + (trace.length > 0 ? " at " + Arrays.asList(trace).subList(0, Math.min(4, trace.length)) : ""));
            if (error.getCause() != null) System.out.println("because of " + error.getCause());
            System.exit(1);
        }
    }

    static int sizeOf(int seq) {
        if (seq % 100 == 50) return MIB;
        if (seq % 20 == 1) return 65536 + seq;
        if (seq % 10 == 2) return 20000;
        if (seq % 10 == 3) return 0;
        return seq * 37 % 2048;
    }

    static String outcomeOf(int seq) {
        switch (seq % 20) {
            case 3: return "rejected";
            case 7: return "released";
            case 11: return "failed";
            case 13: return "undeliverable";
            default: return "accepted";
        }
    }

    static void check(boolean condition, String reason) {
        if (!condition) throw new AssertionError(reason);
    }

    static void equal(Object found, Object expected, String what) {
        check(found == null ? expected == null : found.equals(expected), what + ": expected " + expected + ", found " + found);
    }

    static void inOrder(List<Integer> found, List<Integer> expected, String what) {
        for (int i = 0; i < Math.min(found.size(), expected.size()); i++) {
            check(found.get(i).equals(expected.get(i)), what + ": at place " + i + " expected " + expected.get(i) + ", found "
                + found.subList(Math.max(0, i - 3), Math.min(found.size(), i + 5)));
        }
        equal(found.size(), expected.size(), what + ", count");
    }

    static List<Integer> range(int from, int to, int step) {
        List<Integer> list = new ArrayList<>();
        for (int i = from; i < to; i += step) list.add(i);
        return list;
    }

    static Connection connect(String options) throws JMSException {
        return connect(options, null, null);
    }

    static Connection connect(String options, String user, String password) throws JMSException {
        String uri = "amqp://" + host + ":" + port + "?jms.connectTimeout=15000&jms.requestTimeout=20000&jms.sendTimeout=20000"
            + "&jms.closeTimeout=10000" + (options.isEmpty() ? "" : "&" + options);
        ConnectionFactory factory = user == null ? new JmsConnectionFactory(uri) : new JmsConnectionFactory(user, password, uri);
        Connection connection = factory.createConnection();
        connection.start();
        return connection;
    }

    static Session session(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    static BytesMessage message(Session session, int seq, int size, String producer) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(BLOCK, seq % 1009, size);
        message.setIntProperty("seq", seq);
        message.setStringProperty("producer", producer);
        message.setIntProperty("size", size);
        return message;
    }

    static void send(Session session, String queue, List<Integer> seqs) throws JMSException {
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (int seq : seqs) producer.send(message(session, seq, seq % 100, "p"));
        producer.close();
    }

    static int seq(Message message) throws JMSException {
        return (int) message.getLongProperty("seq");
    }

    static void checkBody(Message message) throws JMSException {
        int size = (int) message.getLongProperty("size");
        BytesMessage bytes = (BytesMessage) message;
        equal(bytes.getBodyLength(), (long) size, "size of " + seq(message));
        byte[] body = new byte[size];
        bytes.readBytes(body);
        int from = seq(message) % 1009;
        check(Arrays.equals(body, Arrays.copyOfRange(BLOCK, from, from + size)), "body of " + seq(message) + " is wrong");
    }

    static Message take(MessageConsumer consumer, String what) throws JMSException {
        Message message = consumer.receive(MILLIS);
        check(message != null, "no message within 20 s: " + what);
        return message;
    }

    static List<Integer> take(MessageConsumer consumer, int count, String what) throws JMSException {
        List<Integer> found = new ArrayList<>();
        while (found.size() < count) found.add(seq(take(consumer, what + " after " + found.size() + " of " + count)));
        return found;
    }

    static void settle(Message message, int type) throws JMSException {
        message.setIntProperty("JMS_AMQP_ACK_TYPE", type);
        message.acknowledge();
    }

    /** Takes all that is there; receiveNoWait asks the broker with a drain. */
    static List<Integer> rest(Session session, String queue) throws JMSException {
        List<Integer> found = new ArrayList<>();
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) found.add(seq(message));
        consumer.close();
        return found;
    }

    static void volume() throws Exception {
        int count = 10_000;
        int producers = 3;
        Connection connection = connect("jms.prefetchPolicy.all=200");
        Session session = connection.createSession(false, INDIVIDUAL);
        MessageConsumer consumer = session.createConsumer(session.createQueue(address));
        List<Thread> threads = new ArrayList<>();
        List<Throwable> problems = Collections.synchronizedList(new ArrayList<>());
        for (int index = 0; index < producers; index++) {
            List<Integer> own = range(index, count, producers);
            String name = "p" + index;
            Thread thread = new Thread(() -> {
                try (Connection mine = connect("jms.forceAsyncSend=true")) {
                    Session sending = session(mine);
                    MessageProducer producer = sending.createProducer(sending.createQueue(address));
                    for (int seq : own) producer.send(message(sending, seq, sizeOf(seq), name));
                } catch (Throwable error) {
                    problems.add(error);
                }
            });
            thread.start();
            threads.add(thread);
        }
        Map<Integer, String> returned = new HashMap<>();
        Map<Integer, Integer> when = new HashMap<>();
        Map<String, Integer> last = new HashMap<>();
        int deliveries = 0;
        int finished = 0;
        int undeliverable = 0;
        while (finished + undeliverable < count) {
            Message message = take(consumer, finished + " finished, " + undeliverable + " undeliverable, not back " + returned
                + ", producers' problems " + problems);
            deliveries++;
            int seq = seq(message);
            checkBody(message);
            String before = returned.remove(seq);
            if (before != null) {
                equal(message.getIntProperty("JMSXDeliveryCount"), before.equals("failed") ? 2 : 1, "JMSXDeliveryCount of " + seq);
                check(deliveries - when.get(seq) <= 400, seq + " came back after " + (deliveries - when.get(seq)) + " others");
                settle(message, 1);
                finished++;
                continue;
            }
            String producer = message.getStringProperty("producer");
            check(seq > last.getOrDefault(producer, -1), producer + ": " + seq + " after " + last.get(producer));
            last.put(producer, seq);
            String outcome = outcomeOf(seq);
            settle(message, Arrays.asList("", "accepted", "rejected", "released", "failed", "undeliverable").indexOf(outcome));
            if (outcome.equals("released") || outcome.equals("failed")) {
                returned.put(seq, outcome);
                when.put(seq, deliveries);
            } else if (outcome.equals("undeliverable")) {
                undeliverable++;
            } else {
                finished++;
            }
        }
        for (Thread thread : threads) thread.join(MILLIS);
        check(problems.isEmpty(), "producers: " + problems);
        MessageConsumer other = session.createConsumer(session.createQueue(address));
        for (int i = 0; i < undeliverable; i++) {
            Message message = take(other, "undeliverable elsewhere");
            equal(outcomeOf(seq(message)), "undeliverable", "left for another link");
            settle(message, 1);
        }
        consumer.close();
        other.close();
        equal(rest(session(connection), address), List.of(), "what is left");
        connection.close();
    }

    static void frames() throws Exception {
        for (int frame : new int[] {512, 4096, 65536}) {
            int[] sizes = frame == 512 ? new int[] {0, 1, 400, 512, 60_000} : new int[] {frame, MIB};
            try (Connection connection = connect("amqp.maxFrameSize=" + frame)) {
                Session session = session(connection);
                String queue = address + "." + frame;
                MessageProducer producer = session.createProducer(session.createQueue(queue));
                for (int i = 0; i < sizes.length; i++) producer.send(message(session, i, sizes[i], "p"));
                MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
                for (int i = 0; i < sizes.length; i++) {
                    Message message = take(consumer, "frames of " + frame);
                    equal(seq(message), i, "order");
                    checkBody(message);
                }
            }
        }
    }

    static void browse() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            send(session, address, range(0, 100, 1));
            for (String selector : new String[] {null, "seq >= 40"}) {
                QueueBrowser browser = session.createBrowser(session.createQueue(address), selector);
                List<Integer> found = new ArrayList<>();
                for (Enumeration<?> all = browser.getEnumeration(); all.hasMoreElements();) found.add(seq((Message) all.nextElement()));
                inOrder(found, range(selector == null ? 0 : 40, 100, 1), "browsed with " + selector);
                browser.close();
            }
            inOrder(rest(session, address), range(0, 100, 1), "after browsing");
        }
    }

    static void selector() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            String[] colours = {"red", "green", "blue"};
            for (int seq = 0; seq < 300; seq++) {
                Message message = message(session, seq, 10, "p");
                message.setStringProperty("colour", colours[seq % 3]);
                message.setDoubleProperty("weight", seq / 2.0);
                message.setJMSType(seq % 2 == 0 ? "even" : "odd");
                message.setJMSCorrelationID("c" + seq);
                producer.send(message);
            }
            MessageConsumer consumer = session.createConsumer(queue, "colour = 'red' AND weight BETWEEN 30 AND 90");
            List<Integer> expected = range(60, 181, 3);
            inOrder(take(consumer, expected.size(), "selected"), expected, "selected");
            check(consumer.receiveNoWait() == null, "selected beyond");
            consumer.close();
            MessageConsumer byHeader = session.createConsumer(queue, "JMSType = 'odd' AND JMSCorrelationID LIKE 'c29_'");
            inOrder(take(byHeader, 5, "by header"), List.of(291, 293, 295, 297, 299), "by header");
            byHeader.close();
            try {
                session.createConsumer(queue, "colour = = 'red'");
                throw new AssertionError("a wrong selector was taken");
            } catch (InvalidSelectorException right) {
                // As it should be.
            }
            List<Integer> left = range(0, 300, 1);
            left.removeAll(expected);
            left.removeAll(List.of(291, 293, 295, 297, 299));
            inOrder(rest(session, address), left, "what no selector took");
        }
    }

    static void competing() throws Exception {
        int count = 3000;
        List<List<Integer>> shares = List.of(Collections.synchronizedList(new ArrayList<>()), Collections.synchronizedList(new ArrayList<>()));
        CountDownLatch all = new CountDownLatch(count);
        List<Connection> connections = new ArrayList<>();
        for (List<Integer> share : shares) {
            Connection connection = connect("jms.prefetchPolicy.all=50");
            connections.add(connection);
            Session session = session(connection);
            session.createConsumer(session.createQueue(address)).setMessageListener(message -> {
                try {
                    share.add(seq(message));
                } catch (JMSException error) {
                    share.add(-1);
                }
                all.countDown();
            });
        }
        Thread.sleep(200);
        try (Connection connection = connect("")) {
            send(session(connection), address, range(0, count, 1));
        }
        check(all.await(MILLIS, TimeUnit.MILLISECONDS), "still to come: " + all.getCount());
        List<Integer> both = new ArrayList<>(shares.get(0));
        both.addAll(shares.get(1));
        Collections.sort(both);
        inOrder(both, range(0, count, 1), "all, each once");
        for (List<Integer> share : shares) {
            List<Integer> sorted = new ArrayList<>(share);
            Collections.sort(sorted);
            inOrder(share, sorted, "order of a share");
        }
        int low = Math.min(shares.get(0).size(), shares.get(1).size());
        check(count - low <= 1.2 * low, "shares of " + low + " and " + (count - low));
        for (Connection connection : connections) connection.close();
    }

    /** Prefetch 0 asks for each message with one credit; prefetch 1 keeps one ahead. */
    static void oneAtATime() throws Exception {
        for (int prefetch : new int[] {0, 1}) {
            try (Connection connection = connect("jms.prefetchPolicy.all=" + prefetch)) {
                Session session = session(connection);
                String queue = address + "." + prefetch;
                send(session, queue, range(0, 200, 1));
                MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
                inOrder(take(consumer, 200, "prefetch " + prefetch), range(0, 200, 1), "prefetch " + prefetch);
                check(consumer.receiveNoWait() == null, "more than was sent");
            }
        }
    }

    static void drain() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            Queue queue = session.createQueue(address);
            MessageConsumer consumer = session.createConsumer(queue);
            for (int i = 0; i < 20; i++) check(consumer.receiveNoWait() == null, "a message from an empty queue");
            check(consumer.receive(200) == null, "a message from an empty queue");
            send(session, address, range(0, 3, 1));
            inOrder(take(consumer, 3, "after drains"), range(0, 3, 1), "after drains");
            check(consumer.receiveNoWait() == null, "a message from an empty queue");
            consumer.close();
            MessageConsumer choosy = session.createConsumer(queue, "seq = 99");
            send(session, address, range(3, 6, 1));
            check(choosy.receiveNoWait() == null, "a message that does not match");
            send(session, address, List.of(99));
            equal(seq(take(choosy, "the one that matches")), 99, "match");
            choosy.close();
            inOrder(rest(session, address), range(3, 6, 1), "the others");
        }
    }

    static void linkClose() throws Exception {
        try (Connection connection = connect("jms.prefetchPolicy.all=60")) {
            send(session(connection), address, range(0, 100, 1));
            Session session = connection.createSession(false, INDIVIDUAL);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            for (int i = 0; i < 20; i++) {
                Message message = take(consumer, "first");
                equal(seq(message), i, "order");
                if (i == 3 || i == 7) settle(message, 1);
            }
            consumer.close();
            session.close();
            List<Integer> left = range(0, 100, 1);
            left.removeAll(List.of(3, 7));
            inOrder(rest(session(connection), address), left, "after the session closed");
        }
    }

    /** The client releases what it holds one by one as it closes, with credit left; so the next consumer comes after that. */
    static void connectionClose() throws Exception {
        Connection connection = connect("");
        send(session(connection), address, range(0, 60, 1));
        Connection holder = connect("jms.prefetchPolicy.all=40");
        Session session = holder.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        inOrder(take(session.createConsumer(session.createQueue(address)), 40, "held"), range(0, 40, 1), "held");
        holder.close();
        inOrder(rest(session(connection), address), range(0, 60, 1), "returned by the closed connection");
        connection.close();
    }

    /** Holds 40 messages until it is killed. */
    static void hold() throws Exception {
        Connection holder = connect("jms.prefetchPolicy.all=40");
        Session session = holder.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        inOrder(take(session.createConsumer(session.createQueue(address)), 40, "held"), range(0, 40, 1), "held");
        System.out.println("holding");
        Thread.sleep(60_000);
    }

    static void recover() throws Exception {
        try (Connection connection = connect("")) {
            send(session(connection), address, range(0, 50, 1));
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            inOrder(take(consumer, 30, "first"), range(0, 30, 1), "first");
            session.recover();
            Message message = null;
            for (int i = 0; i < 50; i++) {
                message = take(consumer, "after recover");
                equal(seq(message), i, "order after recover");
                equal(message.getJMSRedelivered(), i < 30, "JMSRedelivered of " + i);
            }
            message.acknowledge();
            check(consumer.receiveNoWait() == null, "more than was sent");
        }
    }

    static void manyLinks() throws Exception {
        int places = 30;
        try (Connection connection = connect("")) {
            Session session = session(connection);
            List<MessageConsumer> consumers = new ArrayList<>();
            for (int i = 0; i < places; i++) consumers.add(session.createConsumer(session.createQueue(address + "." + i)));
            for (int i = 0; i < places; i++) send(session, address + "." + i, range(0, 50, 1));
            for (MessageConsumer consumer : consumers) inOrder(take(consumer, 50, "a queue"), range(0, 50, 1), "a queue");
            for (int i = 0; i < places; i++) {
                consumers.get(i).close();
                equal(rest(session, address + "." + i), List.of(), "what is left");
            }
        }
    }

    static void homedApart() throws Exception {
        int places = 6;
        int count = 200;
        List<Connection> connections = new ArrayList<>();
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < places; i++) {
            Connection connection = connect("");
            connections.add(connection);
            Session session = session(connection);
            consumers.add(session.createConsumer(session.createQueue(address + "." + i)));
        }
        AtomicInteger problems = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < places; i++) {
            int index = i;
            Thread thread = new Thread(() -> {
                try {
                    send(session(connections.get(index)), address + "." + (index + 1) % places, range(0, count, 1));
                } catch (JMSException error) {
                    System.out.println(error);
                    problems.incrementAndGet();
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (MessageConsumer consumer : consumers) inOrder(take(consumer, count, "a queue"), range(0, count, 1), "a queue");
        for (Thread thread : threads) thread.join(MILLIS);
        equal(problems.get(), 0, "producers with problems");
        for (Connection connection : connections) connection.close();
    }

    static void requestResponse() throws Exception {
        try (Connection server = connect(""); Connection client = connect("")) {
            Session serving = session(server);
            MessageProducer replies = serving.createProducer(null);
            serving.createConsumer(serving.createQueue(address)).setMessageListener(request -> {
                try {
                    TextMessage reply = serving.createTextMessage(((TextMessage) request).getText().toUpperCase());
                    reply.setJMSCorrelationID(request.getJMSMessageID());
                    replies.send(request.getJMSReplyTo(), reply);
                } catch (JMSException error) {
                    System.out.println("the server: " + error);
                }
            });
            Session session = session(client);
            TemporaryQueue mine = session.createTemporaryQueue();
            TemporaryQueue another = session.createTemporaryQueue();
            check(!mine.getQueueName().equals(another.getQueueName()), "two temporary queues have one name");
            MessageConsumer consumer = session.createConsumer(mine);
            MessageProducer producer = session.createProducer(session.createQueue(address));
            for (int i = 0; i < 50; i++) {
                TextMessage request = session.createTextMessage("request " + i);
                request.setJMSReplyTo(mine);
                producer.send(request);
                TextMessage reply = (TextMessage) take(consumer, "reply " + i);
                equal(reply.getText(), "REQUEST " + i, "reply");
                equal(reply.getJMSCorrelationID(), request.getJMSMessageID(), "correlation");
            }
            another.delete();
            consumer.close();
            mine.delete();
        }
    }

    static void anonymousRelay() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(null);
            for (int i = 0; i < 120; i++) producer.send(session.createQueue(address + "." + i % 4), message(session, i, 10, "p"));
            for (int i = 0; i < 4; i++) inOrder(rest(session, address + "." + i), range(i, 120, 4), "queue " + i);
        }
    }

    static void presettled() throws Exception {
        try (Connection connection = connect("jms.presettlePolicy.presettleAll=true&jms.prefetchPolicy.all=1000")) {
            Session session = session(connection);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            send(session, address, range(0, 500, 1));
            inOrder(take(consumer, 500, "presettled"), range(0, 500, 1), "presettled");
            consumer.close();
            equal(rest(session, address), List.of(), "what is left");
        }
    }

    static void outcomes() throws Exception {
        try (Connection connection = connect("jms.prefetchPolicy.all=10")) {
            send(session(connection), address, range(0, 5, 1));
            Session session = connection.createSession(false, INDIVIDUAL);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            List<Message> all = new ArrayList<>();
            for (int i = 0; i < 5; i++) all.add(take(consumer, "first"));
            settle(all.get(1), 3);
            Message released = take(consumer, "released");
            equal(seq(released), 1, "released");
            equal(released.getIntProperty("JMSXDeliveryCount"), 1, "JMSXDeliveryCount of the released");
            settle(all.get(3), 4);
            Message failed = take(consumer, "failed");
            equal(seq(failed), 3, "failed");
            equal(failed.getIntProperty("JMSXDeliveryCount"), 2, "JMSXDeliveryCount of the failed");
            settle(all.get(0), 2);
            settle(released, 5);
            settle(all.get(2), 1);
            settle(all.get(4), 1);
            settle(failed, 1);
            check(consumer.receive(300) == null, "a message after all were settled");
            equal(rest(session(connection), address), List.of(1), "undeliverable elsewhere");
        }
    }

    static void timeToLive() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue(address));
            long[] times = {60_000, 300, 0, 300};
            for (int i = 0; i < times.length; i++) {
                producer.send(message(session, i, 10, "p"), DeliveryMode.NON_PERSISTENT, 4, times[i]);
            }
            Thread.sleep(450);
            inOrder(rest(session, address), List.of(0, 2), "after the time");
        }
    }

    static void types() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue(address));
            TextMessage text = session.createTextMessage("täxt");
            text.setJMSPriority(7);
            text.setJMSReplyTo(session.createQueue("answers"));
            text.setObjectProperty("long", 1L << 40);
            text.setBooleanProperty("yes", true);
            text.setFloatProperty("float", 1.5f);
            text.setByteProperty("byte", (byte) -3);
            producer.send(text, DeliveryMode.PERSISTENT, 7, 0);
            MapMessage map = session.createMapMessage();
            map.setString("a", "b");
            map.setBytes("c", new byte[] {1, 2});
            producer.send(map);
            StreamMessage stream = session.createStreamMessage();
            stream.writeInt(7);
            stream.writeString("s");
            producer.send(stream);
            producer.send(session.createObjectMessage(new ArrayList<>(List.of("x", "y"))));
            producer.send(session.createMessage());
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            TextMessage gotText = (TextMessage) take(consumer, "text");
            equal(gotText.getText(), "täxt", "text");
            equal(gotText.getJMSPriority(), 7, "priority");
            equal(gotText.getJMSDeliveryMode(), DeliveryMode.PERSISTENT, "delivery mode");
            equal(((Queue) gotText.getJMSReplyTo()).getQueueName(), "answers", "reply-to");
            equal(((Queue) gotText.getJMSDestination()).getQueueName(), address, "destination");
            equal(gotText.getObjectProperty("long"), 1L << 40, "long");
            equal(gotText.getBooleanProperty("yes"), true, "boolean");
            equal(gotText.getFloatProperty("float"), 1.5f, "float");
            equal(gotText.getByteProperty("byte"), (byte) -3, "byte");
            MapMessage gotMap = (MapMessage) take(consumer, "map");
            equal(gotMap.getString("a"), "b", "map");
            check(Arrays.equals(gotMap.getBytes("c"), new byte[] {1, 2}), "bytes in a map");
            StreamMessage gotStream = (StreamMessage) take(consumer, "stream");
            equal(gotStream.readInt(), 7, "stream");
            equal(gotStream.readString(), "s", "stream");
            ObjectMessage gotObject = (ObjectMessage) take(consumer, "object");
            equal(gotObject.getObject(), List.of("x", "y"), "object");
            take(consumer, "empty message");
        }
    }

    static void asyncSend() throws Exception {
        int count = 5000;
        CountDownLatch all = new CountDownLatch(count);
        List<String> problems = Collections.synchronizedList(new ArrayList<>());
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue(address));
            for (int i = 0; i < count; i++) {
                producer.send(message(session, i, 100, "p"), new jakarta.jms.CompletionListener() {
                    @Override
                    public void onCompletion(Message message) {
                        all.countDown();
                    }

                    @Override
                    public void onException(Message message, Exception error) {
                        problems.add(error.toString());
                        all.countDown();
                    }
                });
            }
            check(all.await(MILLIS, TimeUnit.MILLISECONDS), "completions still to come: " + all.getCount());
            check(problems.isEmpty(), "completions with errors: " + problems);
            inOrder(rest(session, address), range(0, count, 1), "sent with completions");
        }
    }

    static void login() throws Exception {
        String mechanism = rest.get(2);
        try (Connection connection = connect("amqp.saslMechanisms=" + mechanism, rest.get(0), rest.get(1))) {
            Session session = session(connection);
            send(session, address, range(0, 3, 1));
            inOrder(rest(session, address), range(0, 3, 1), "with " + mechanism);
        }
    }

    static void produce() throws Exception {
        try (Connection connection = connect("jms.validatePropertyNames=false")) {
            Session session = session(connection);
            MessageProducer producer = session.createProducer(session.createQueue(address));
            for (int seq = 0; seq < 500; seq++) {
                Message message = message(session, seq, seq * 97 % 40_000, "p");
                producer.send(message, seq % 2 == 0 ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT, 4, 0);
            }
        }
    }

    static void consume() throws Exception {
        try (Connection connection = connect("")) {
            Session session = session(connection);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            for (int seq = 0; seq < 500; seq++) {
                Message message = take(consumer, "from another client");
                equal(seq(message), seq, "order");
                checkBody(message);
                equal(message.getJMSDeliveryMode(), seq % 2 == 0 ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT, "delivery mode");
            }
            consumer.close();
            equal(rest(session, address), List.of(), "what is left");
        }
    }
}
