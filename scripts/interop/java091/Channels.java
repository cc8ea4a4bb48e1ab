import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** RabbitMQ's Java client against a broker: {@code Channels CASE PORT NAME}. Ends with 0 if the case holds. */
public final class Channels {
    private static final int PATIENCE_SECONDS = 20;

    private final String prefix;
    private final Connection connection;

    private Channels(String prefix, Connection connection) {
        this.prefix = prefix;
        this.connection = connection;
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost("127.0.0.1");
        factory.setPort(Integer.parseInt(arguments[1]));
        factory.setNetworkRecoveryInterval(100);
        Connection connection = factory.newConnection();
        Channels channels = new Channels(arguments[2], connection);
        try {
            switch (arguments[0]) {
                case "confirms" -> channels.confirms();
                case "prefetch" -> channels.prefetch();
                case "returns" -> channels.returns();
                case "cancel" -> channels.cancel();
                case "topics" -> channels.topics();
                case "restart" -> channels.restart();
                default -> throw new IllegalArgumentException(arguments[0]);
            }
            connection.close();
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static void check(boolean condition, String reason) {
        if (!condition) {
            throw new AssertionError(reason);
        }
    }

    private List<String> queues() {
        List<String> names = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            names.add(prefix + "." + n);
        }
        return names;
    }

    private static byte[] bytes(Object body) {
        return body.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static Delivery next(BlockingQueue<Delivery> box, String body, boolean redelivered)
            throws InterruptedException {
        Delivery delivery = box.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
        check(delivery != null, "nothing came, expected " + body);
        String found = new String(delivery.getBody(), StandardCharsets.UTF_8);
        check(found.equals(body), "expected " + body + ", found " + found);
        check(delivery.getEnvelope().isRedeliver() == redelivered, body + " is redelivered: " + !redelivered);
        return delivery;
    }

    private void confirms() throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        for (String queue : queues()) {
            channel.queueDeclare(queue, true, false, false, null);
            for (int n = 0; n < 100; n++) {
                AMQP.BasicProperties properties =
                        n % 2 == 0 ? MessageProperties.PERSISTENT_BASIC : MessageProperties.BASIC;
                channel.basicPublish("", queue, properties, bytes(n));
            }
            channel.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000L);
            check(channel.queueDelete(queue).getMessageCount() == 100, "what was confirmed is not there");
        }
    }

    private void prefetch() throws Exception {
        for (String queue : queues()) {
            Channel channel = connection.createChannel();
            channel.queueDeclare(queue, false, false, false, Map.of("x-max-priority", 5));
            channel.basicQos(2);
            for (int n = 0; n < 4; n++) {
                channel.basicPublish("", queue, null, bytes(n));
            }
            BlockingQueue<Delivery> box = new LinkedBlockingQueue<>();
            String tag = channel.basicConsume(queue, false, (t, delivery) -> box.add(delivery), t -> {});
            Delivery first = next(box, "0", false);
            Delivery second = next(box, "1", false);
            check(channel.messageCount(queue) == 2, "beyond the prefetch");
            channel.basicNack(second.getEnvelope().getDeliveryTag(), false, true);
            next(box, "1", true);
            channel.basicReject(first.getEnvelope().getDeliveryTag(), false);
            Delivery third = next(box, "2", false);
            channel.basicAck(third.getEnvelope().getDeliveryTag(), true);
            Delivery last = next(box, "3", false);
            channel.basicCancel(tag);
            channel.basicNack(last.getEnvelope().getDeliveryTag(), false, true);
            check(channel.basicGet(queue, true).getEnvelope().isRedeliver(), "it has come back");
            check(channel.queueDelete(queue, true, true).getMessageCount() == 0, "some are left");
            channel.close();
        }
    }

    private void returns() throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        BlockingQueue<Integer> codes = new LinkedBlockingQueue<>();
        channel.addReturnListener(returned -> codes.add(returned.getReplyCode()));
        for (String queue : queues()) {
            channel.basicPublish("", queue + ".missing", true, null, bytes("lost"));
            channel.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000L);
            // The return came before the confirm.
            check(Integer.valueOf(312).equals(codes.poll()), "confirmed, and not returned");
        }
    }

    private void cancel() throws Exception {
        for (String queue : queues()) {
            Channel channel = connection.createChannel();
            channel.queueDeclare(queue, false, false, false, null);
            CountDownLatch told = new CountDownLatch(1);
            channel.basicConsume(queue, true, (tag, delivery) -> {}, tag -> told.countDown());
            connection.createChannel().queueDelete(queue);
            check(told.await(PATIENCE_SECONDS, TimeUnit.SECONDS), "no cancel when the queue was deleted");
        }
    }

    private void topics() throws Exception {
        Channel channel = connection.createChannel();
        String exchange = prefix + ".headers";
        channel.exchangeDeclare(exchange, "headers");
        for (String queue : queues()) {
            channel.queueDeclare(queue, false, false, false, null);
        }
        List<String> queues = queues();
        channel.queueBind(queues.get(0), exchange, "", Map.of("x-match", "all", "a", 1, "b", "two"));
        channel.queueBind(queues.get(1), exchange, "", Map.of("x-match", "any", "a", 1, "b", "two"));
        channel.queueBind(queues.get(2), exchange, "", Map.of("c", true));
        for (Map<String, Object> headers :
                List.of(Map.<String, Object>of("a", 1, "b", "two"), Map.<String, Object>of("b", "two"),
                        Map.<String, Object>of("c", true))) {
            channel.basicPublish(exchange, "", new AMQP.BasicProperties.Builder().headers(headers).build(), bytes("x"));
        }
        long[] expected = {1, 2, 1, 0};
        for (int n = 0; n < expected.length; n++) {
            check(channel.queueDelete(queues.get(n)).getMessageCount() == expected[n], "routed to " + queues.get(n));
        }
        channel.exchangeDelete(exchange);
    }

    /** Says `ready`, and waits for a line while the broker is started anew; the client recovers on its own. */
    private void restart() throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        channel.exchangeDeclare(prefix + ".exchange", "direct", false, true, null);
        String queue = channel.queueDeclare("", false, true, true, null).getQueue();
        channel.queueBind(queue, prefix + ".exchange", "key");
        BlockingQueue<Delivery> box = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, true, (tag, delivery) -> box.add(delivery), tag -> {});
        channel.queueDeclare(prefix, true, false, false, null);
        for (int n = 0; n < 10; n++) {
            channel.basicPublish("", prefix, MessageProperties.PERSISTENT_BASIC, bytes(n));
        }
        channel.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000L);
        CountDownLatch recovered = new CountDownLatch(1);
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recoverable) {
                recovered.countDown();
            }

            @Override
            public void handleRecoveryStarted(Recoverable recoverable) {}
        });
        System.out.println("ready");
        System.in.read();
        check(recovered.await(PATIENCE_SECONDS, TimeUnit.SECONDS), "not recovered");
        // The exchange, the queue with a new name, its binding and its consumer are there again.
        channel.basicPublish(prefix + ".exchange", "key", null, bytes("again"));
        next(box, "again", false);
        check(channel.queueDelete(prefix).getMessageCount() == 10, "what was confirmed is not kept");
    }
}
