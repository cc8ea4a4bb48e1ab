import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Transacted sessions. */
final class Transactions extends Interop {
    static void register(Map<String, Case> cases) {
        cases.put("transacted-sends", Transactions::sends);
        cases.put("transacted-receives", Transactions::receives);
        cases.put("transacted-pipeline", Transactions::pipeline);
        cases.put("transaction-ends", Transactions::ends);
        cases.put("transaction-refused", Transactions::refused);
    }

    static Session transacted(Connection connection) throws JMSException {
        return connection.createSession(Session.SESSION_TRANSACTED);
    }

    static void sends() throws Exception {
        try (Connection connection = connect(""); Connection other = connect("")) {
            Session session = transacted(connection);
            Session looking = session(other);
            for (int turn = 0; turn < 4; turn++) {
                boolean commits = turn % 2 == 1;
                for (int i = 0; i < 40; i++) {
                    MessageProducer producer = session.createProducer(session.createQueue(address + "." + i % 4));
                    producer.send(message(session, i, 10, "p"));
                    producer.close();
                }
                for (int i = 0; i < 4; i++) equal(rest(looking, address + "." + i), List.of(), "before the end");
                if (commits) session.commit();
                else session.rollback();
                for (int i = 0; i < 4; i++) {
                    inOrder(rest(looking, address + "." + i), commits ? range(i, 40, 4) : List.of(), "after the end");
                }
            }
            // To a topic: what was rolled back reaches nobody.
            MessageConsumer subscriber = looking.createConsumer(looking.createTopic(address + ".t"));
            MessageProducer publisher = session.createProducer(session.createTopic(address + ".t"));
            publisher.send(message(session, 1, 10, "p"));
            session.rollback();
            publisher.send(message(session, 2, 10, "p"));
            publisher.send(message(session, 3, 10, "p"));
            check(subscriber.receive(100) == null, "a message before the commit");
            session.commit();
            inOrder(take(subscriber, 2, "committed"), List.of(2, 3), "committed");
        }
    }

    static void receives() throws Exception {
        try (Connection connection = connect("jms.prefetchPolicy.all=15"); Connection other = connect("")) {
            send(session(other), address, range(0, 30, 1));
            Session session = transacted(connection);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            for (int turn = 0; turn < 3; turn++) {
                for (int i = 0; i < 10; i++) {
                    Message message = take(consumer, "turn " + turn);
                    equal(seq(message), i, "order in turn " + turn);
                    equal(message.getJMSRedelivered(), turn > 0, "JMSRedelivered of " + i + " in turn " + turn);
                    equal(message.getIntProperty("JMSXDeliveryCount"), turn + 1, "JMSXDeliveryCount of " + i);
                }
                if (turn < 2) session.rollback();
                else session.commit();
            }
            for (int i = 10; i < 30; i++) equal(seq(take(consumer, "the others")), i, "order of the others");
            session.commit();
            check(consumer.receiveNoWait() == null, "more than was sent");
            consumer.close();
            equal(rest(session(other), address), List.of(), "what is left");
        }
    }

    /** From one queue to another in transactions of ten, every third rolled back: each arrives once. */
    static void pipeline() throws Exception {
        int count = 300;
        try (Connection connection = connect(""); Connection other = connect("")) {
            send(session(other), address + ".in", range(0, count, 1));
            List<Thread> threads = new ArrayList<>();
            List<Throwable> problems = Collections.synchronizedList(new ArrayList<>());
            for (int worker = 0; worker < 2; worker++) {
                Thread thread = new Thread(() -> {
                    try (Connection mine = connect("jms.prefetchPolicy.all=20")) {
                        work(transacted(mine));
                    } catch (Throwable error) {
                        problems.add(error);
                    }
                });
                thread.start();
                threads.add(thread);
            }
            Session session = session(connection);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address + ".out"));
            List<Integer> found = new ArrayList<>();
            while (found.size() < count) found.add(seq(take(consumer, found.size() + " came; problems: " + problems)));
            for (Thread thread : threads) thread.join(MILLIS);
            check(problems.isEmpty(), "workers: " + problems);
            Collections.sort(found);
            inOrder(found, range(0, count, 1), "each once");
            check(consumer.receiveNoWait() == null, "more than was sent");
            equal(rest(session, address + ".in"), List.of(), "what is left");
        }
    }

    static void work(Session session) throws JMSException {
        MessageConsumer consumer = session.createConsumer(session.createQueue(address + ".in"));
        MessageProducer producer = session.createProducer(session.createQueue(address + ".out"));
        for (int transaction = 0;; transaction++) {
            int taken = 0;
            while (taken < 10) {
                Message message = consumer.receive(1000);
                if (message == null) break;
                producer.send(message(session, seq(message), 10, "worker"));
                taken++;
            }
            if (taken == 0) return;
            if (transaction % 3 == 1) session.rollback();
            else session.commit();
        }
    }

    /** A session, or a connection, that ends with its transaction open has rolled it back. */
    static void ends() throws Exception {
        try (Connection home = connect("")) {
            Session looking = session(home);
            for (boolean whole : new boolean[] {false, true}) {
                String in = address + ".in." + whole;
                String out = address + ".out." + whole;
                send(looking, in, range(0, 10, 1));
                Connection connection = connect("");
                Session session = transacted(connection);
                MessageConsumer consumer = session.createConsumer(session.createQueue(in));
                MessageProducer producer = session.createProducer(session.createQueue(out));
                inOrder(take(consumer, 10, "inside"), range(0, 10, 1), "inside");
                for (int i = 0; i < 10; i++) producer.send(message(session, i, 10, "p"));
                if (whole) connection.close();
                else session.close();
                inOrder(rest(looking, in), range(0, 10, 1), "taken inside");
                equal(rest(looking, out), List.of(), "sent inside");
                connection.close();
            }
        }
    }

    /** What a full queue refuses inside a transaction makes its commit fail, and nothing of it stays. */
    static void refused() throws Exception {
        try (Connection connection = connect("")) {
            Session session = transacted(connection);
            MessageProducer full = session.createProducer(session.createQueue("reject." + address));
            MessageProducer free = session.createProducer(session.createQueue(address));
            boolean failed = false;
            try {
                free.send(message(session, 0, 10, "p"));
                for (int i = 0; i < 8; i++) full.send(message(session, i, 10, "p"));
                session.commit();
            } catch (TransactionRolledBackException expected) {
                failed = true;
            } catch (JMSException expected) {
                failed = true;
                session.rollback();
            }
            check(failed, "a transaction with refused messages was committed");
            Session looking = session(connection);
            equal(rest(looking, address), List.of(), "in the queue with room");
            equal(rest(looking, "reject." + address), List.of(), "in the full queue");
        }
    }
}
