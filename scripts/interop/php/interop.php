<?php

// php-amqplib against a broker: `php interop.php CASE PORT NAME`. Ends with 0 if the case holds; what is wrong is printed.

require_once 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPBasicCancelException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

const PATIENCE = 20;

function check($condition, $reason)
{
    if (!$condition) {
        throw new Exception($reason);
    }
}

function same($found, $expected, $what)
{
    check($found === $expected, "$what: expected " . json_encode($expected) . ', found ' . json_encode($found));
}

function connect($port)
{
    return new AMQPStreamConnection('127.0.0.1', $port, 'guest', 'guest');
}

function names($prefix)
{
    return array_map(fn ($n) => "$prefix.$n", range(0, 3));
}

function await($channel, $done, $what)
{
    $deadline = microtime(true) + PATIENCE;
    while (!$done()) {
        check(microtime(true) < $deadline, "in vain: $what");
        $channel->wait(null, false, PATIENCE);
    }
}

function confirms($connection, $prefix)
{
    $channel = $connection->channel();
    $confirmed = 0;
    $channel->set_ack_handler(function () use (&$confirmed) {
        $confirmed += 1;
    });
    $channel->confirm_select();
    foreach (names($prefix) as $queue) {
        $channel->queue_declare($queue, false, true, false, false);
        for ($n = 0; $n < 100; $n++) {
            $channel->basic_publish(new AMQPMessage("$n", ['delivery_mode' => 1 + $n % 2]), '', $queue);
        }
        $channel->wait_for_pending_acks(PATIENCE);
        same($channel->queue_delete($queue), 100, 'messages that were confirmed');
    }
    same($confirmed, 400, 'confirms');
}

function prefetch($connection, $prefix)
{
    foreach (names($prefix) as $queue) {
        $channel = $connection->channel();
        $channel->queue_declare($queue, false, false, false, false);
        $channel->basic_qos(0, 2, false);
        for ($n = 0; $n < 4; $n++) {
            $headers = new AMQPTable(['n' => $n, 'nested' => ['a' => [1, null, 'b']]]);
            $channel->basic_publish(new AMQPMessage("$n", ['application_headers' => $headers]), '', $queue);
        }
        // An object, so that all functions see the same one.
        $found = new ArrayObject();
        $channel->basic_consume($queue, 'tag', false, false, false, false, function ($message) use ($found) {
            $found[] = $message;
        });
        $bodies = fn () => array_map(fn ($message) => $message->body . ($message->isRedelivered() ? ' again' : ''), (array) $found);
        await($channel, fn () => count($found) >= 2, 'the prefetch');
        same($found[1]->get('application_headers')->getNativeData(), ['n' => 1, 'nested' => ['a' => [1, null, 'b']]], 'headers');
        $found[1]->nack(true);
        await($channel, fn () => count($found) >= 3, 'what was given back');
        $found[0]->ack();
        await($channel, fn () => count($found) >= 4, 'the next one');
        $found[3]->ack(true);
        await($channel, fn () => count($found) >= 5, 'the last one');
        same($bodies(), ['0', '1', '1 again', '2', '3'], 'what came');
        $channel->basic_cancel('tag');
        $found[4]->reject(true);
        same($channel->basic_get($queue, true)->body, '3', 'what came back');
        same($channel->queue_delete($queue, true, true), 0, 'what is left');
        $channel->close();
    }
}

function returns($connection, $prefix)
{
    $channel = $connection->channel();
    $told = [];
    $channel->set_return_listener(function ($code) use (&$told) {
        $told[] = $code;
    });
    $channel->set_ack_handler(function () use (&$told) {
        $told[] = 'confirmed';
    });
    $channel->confirm_select();
    foreach (names($prefix) as $queue) {
        $told = [];
        $channel->basic_publish(new AMQPMessage('lost'), '', "$queue.missing", true);
        $channel->wait_for_pending_acks_returns(PATIENCE);
        same($told, [312, 'confirmed'], 'what was told');
    }
}

function cancel($connection, $prefix)
{
    foreach (names($prefix) as $queue) {
        $channel = $connection->channel();
        $channel->queue_declare($queue, false, false, false, false);
        $channel->basic_consume($queue, $queue, false, false, false, false, fn () => null);
        $connection->channel()->queue_delete($queue);
        try {
            $channel->wait(null, false, PATIENCE);
        } catch (AMQPBasicCancelException $cancelled) {
            same($cancelled->consumerTag, $queue, 'the consumer');
            continue;
        }
        throw new Exception('the consumer was not told that its queue is gone');
    }
}

// Says `ready`, waits for a line while the broker is started anew, and goes on with what is kept.
function restart($connection, $prefix)
{
    $channel = $connection->channel();
    $channel->confirm_select();
    $channel->queue_declare($prefix, false, true, false, false);
    for ($n = 0; $n < 10; $n++) {
        $channel->basic_publish(new AMQPMessage("$n", ['delivery_mode' => 2]), '', $prefix);
    }
    $channel->wait_for_pending_acks(PATIENCE);
    echo "ready\n";
    fgets(STDIN);
    $connection->reconnect();
    $channel = $connection->channel();
    $found = [];
    while ($message = $channel->basic_get($prefix, true)) {
        $found[] = $message->body;
    }
    same($found, array_map('strval', range(0, 9)), 'what is kept');
}

[, $case, $port, $prefix] = $argv;
try {
    $connection = connect((int) $port);
    $case($connection, $prefix);
    $connection->close();
} catch (Throwable $error) {
    echo $error, "\n";
    exit(1);
}
