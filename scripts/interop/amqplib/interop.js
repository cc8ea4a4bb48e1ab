'use strict';
// amqplib against a broker: `node interop.js CASE PORT NAME`. Ends with 0 if the case holds; what is wrong is printed.

const amqp = require('amqplib');
const assert = require('node:assert');
const readline = require('node:readline');

const [name, port, prefix] = process.argv.slice(2);
const url = `amqp://guest:guest@127.0.0.1:${port}`;

const until = async (done, what) => {
  const deadline = Date.now() + 20_000;
  while (!(await done())) {
    assert.ok(Date.now() < deadline, `in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

const queues = () => [0, 1, 2, 3].map((n) => `${prefix}.${n}`);

// A client that was killed or refused says so on its own; nobody else is to fall over it.
const quiet = (connection) => connection.on('error', () => {});

const cases = {
  async confirms(connection) {
    const channel = await connection.createConfirmChannel();
    for (const queue of queues()) {
      await channel.assertQueue(queue, { durable: true });
      for (let n = 0; n < 100; n++) {
        channel.sendToQueue(queue, Buffer.from(String(n)), { persistent: n % 2 === 0 });
      }
      await channel.waitForConfirms();
      assert.strictEqual((await channel.checkQueue(queue)).messageCount, 100);
      assert.strictEqual((await channel.deleteQueue(queue)).messageCount, 100);
    }
  },

  async prefetch(connection) {
    const channel = await connection.createChannel();
    for (const queue of queues()) {
      await channel.assertQueue(queue);
      for (let n = 0; n < 20; n++) channel.sendToQueue(queue, Buffer.from(String(n)));
      await channel.prefetch(4);
      const held = [];
      const order = [];
      const { consumerTag } = await channel.consume(queue, (message) => {
        order.push(Number(message.content));
        held.push(message);
      });
      await until(() => held.length === 4, 'as many as the prefetch');
      assert.strictEqual((await channel.checkQueue(queue)).messageCount, 16);
      // The two in the middle come back before all that nobody has had yet.
      channel.nack(held[2]);
      channel.nack(held[1]);
      await until(() => order.length === 6, 'what was given back');
      assert.deepStrictEqual(order.slice(0, 4), [0, 1, 2, 3]);
      assert.deepStrictEqual(order.slice(4).sort(), [1, 2]);
      assert.ok(held.slice(4).every((message) => message.fields.redelivered));
      await until(() => {
        channel.ackAll();
        return order.length === 22;
      }, 'all of them');
      channel.ackAll();
      await channel.cancel(consumerTag);
      assert.strictEqual((await channel.deleteQueue(queue)).messageCount, 0);
    }
  },

  async returns(connection) {
    const channel = await connection.createConfirmChannel();
    const told = [];
    channel.on('return', (message) => told.push(`return ${message.fields.replyCode}`));
    for (const queue of queues()) {
      const confirmed = new Promise((resolve, reject) => {
        channel.publish('', `${queue}.missing`, Buffer.from('lost'), { mandatory: true }, (error) => {
          told.push('confirm');
          if (error) reject(error);
          else resolve();
        });
      });
      await confirmed;
    }
    assert.deepStrictEqual(told, queues().flatMap(() => ['return 312', 'confirm']));
  },

  async cancel(connection) {
    const channel = await connection.createChannel();
    for (const queue of queues()) {
      await channel.assertQueue(queue);
      let told = 0;
      await channel.consume(queue, (message) => {
        if (message === null) told += 1;
      });
      await (await connection.createChannel()).deleteQueue(queue);
      await until(() => told === 1, 'a cancel when the queue is deleted');
    }
  },

  async topics(connection) {
    const channel = await connection.createChannel();
    const exchange = `${prefix}.exchange`;
    await channel.assertExchange(exchange, 'topic', { alternateExchange: `${exchange}.rest` });
    await channel.assertExchange(`${exchange}.rest`, 'fanout');
    const [all, some, rest] = queues();
    for (const queue of [all, some, rest]) await channel.assertQueue(queue);
    await channel.bindQueue(all, exchange, 'news.#');
    await channel.bindQueue(some, exchange, '*.sport.*');
    await channel.bindQueue(rest, `${exchange}.rest`, '');
    const keys = ['news', 'news.sport.golf', 'old.sport.golf', 'nothing'];
    for (const key of keys) channel.publish(exchange, key, Buffer.from(key), { headers: { key, n: 1, deep: [1, { a: null }] } });
    const found = {};
    for (const queue of [all, some, rest]) {
      found[queue] = [];
      for (;;) {
        const message = await channel.get(queue, { noAck: true });
        if (message === false) break;
        assert.deepStrictEqual(message.properties.headers, { key: message.fields.routingKey, n: 1, deep: [1, { a: null }] });
        found[queue].push(message.fields.routingKey);
      }
    }
    assert.deepStrictEqual(found, {
      [all]: ['news', 'news.sport.golf'],
      [some]: ['news.sport.golf', 'old.sport.golf'],
      [rest]: ['nothing'],
    });
  },

  async refusals(connection) {
    for (const [code, attempt] of [
      [404, (channel) => channel.checkQueue(`${prefix}.missing`)],
      [403, (channel) => channel.assertQueue('amq.mine')],
      [406, (channel) => channel.assertQueue(`${prefix}.wrong`, { arguments: { 'x-message-ttl': 'late' } })],
    ]) {
      const channel = await connection.createChannel();
      channel.on('error', () => {});
      await assert.rejects(attempt(channel), (error) => error.code === code || error.message.includes(String(code)));
    }
  },

  // Says `ready`, waits for a line while the broker is started anew, and goes on with what is kept.
  async restart(connection) {
    quiet(connection);
    const channel = await connection.createConfirmChannel();
    const queue = prefix;
    await channel.assertQueue(queue, { durable: true });
    for (let n = 0; n < 10; n++) channel.sendToQueue(queue, Buffer.from(String(n)), { persistent: true });
    await channel.waitForConfirms();
    const ended = new Promise((resolve) => connection.once('close', resolve));
    const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    console.log('ready');
    await lines.next();
    await ended;
    const again = await amqp.connect(url);
    const fresh = await again.createChannel();
    const bodies = [];
    await fresh.consume(queue, (message) => bodies.push(Number(message.content)), { noAck: true });
    await until(() => bodies.length === 10, 'what was confirmed before');
    assert.deepStrictEqual(bodies, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    await again.close();
    process.exit(0);
  },
};

(async () => {
  const connection = await amqp.connect(url);
  await cases[name](connection);
  await connection.close();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
