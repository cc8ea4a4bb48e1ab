'use strict';
// Queues: volume, order, outcomes, credit, what comes back when links and connections end.

const rhea = require('rhea');
const {
    MIB, outcomeOf, message, seqOf, bodyIsRight, check, equal, range,
    inOrder, wait, pause, connect, Outbox, Inbox, seqs, expectRest,
    settle, Settlements, made, address, rest,
} = require('./support.js');

module.exports = {
    async volume() {
        const count = 10000;
        const producers = 3;
        const credit = 200;
        const consumer = await connect();
        const last = {};
        const returned = new Map();
        let [deliveries, finished, undeliverable, problem] = [0, 0, 0, undefined];
        const settlements = new Settlements();
        function again(seq, received, delivery) {
            const { outcome, when } = returned.get(seq);
            returned.delete(seq);
            settlements.add(delivery, 'accepted', () => finished++);
            const tries = outcome === 'failed' ? 1 : 0;
            if ((received.delivery_count || 0) !== tries) problem = problem || `${seq} came back with ${received.delivery_count}`;
            if (deliveries - when > 2 * credit) problem = problem || `${seq} came back after ${deliveries - when} others`;
        }
        function each({ message: received, delivery }) {
            const seq = seqOf(received);
            const { producer } = received.application_properties;
            if (++deliveries % 50 === 0) inbox.link.add_credit(50);
            if (!bodyIsRight(received)) problem = problem || `body of ${seq} is not what was sent`;
            if (returned.has(seq)) return again(seq, received, delivery);
            if (producer in last && seq <= last[producer]) problem = problem || `${producer}: ${seq} after ${last[producer]}`;
            last[producer] = seq;
            const outcome = outcomeOf(seq);
            settlements.add(delivery, outcome, () => {
                if (outcome === 'released' || outcome === 'failed') returned.set(seq, { outcome, when: deliveries });
                else if (outcome === 'undeliverable') undeliverable++;
                else finished++;
            });
        }
        const inbox = new Inbox(consumer, address, { credit, each });
        const senders = [];
        for (let index = 0; index < producers; index++) {
            const sender = new Outbox(await connect(), address);
            senders.push(sender);
            sender.start(made(range(count, index, producers), `p${index}`));
        }
        const state = () => `end of the run: ${deliveries} deliveries, ${finished} finished, ${undeliverable} undeliverable, ` +
            `${returned.size} not back, sent ${senders.map((sender) => [sender.sent, sender.settled()])}`;
        await wait(() => problem || (inbox.check() && finished === count - undeliverable && senders.every((s) => s.done())),
            state, 200);
        check(!problem, problem);
        for (const sender of senders) equal(sender.outcomes.accepted, sender.sent, 'accepted');
        const other = new Inbox(consumer, address, { credit: count });
        for (const item of await other.take(undeliverable)) {
            equal(outcomeOf(seqOf(item.message)), 'undeliverable', 'left for another link');
            item.delivery.accept();
        }
        await inbox.close();
        await other.close();
        await expectRest(consumer, address, []);
    },

    async frames() {
        for (const [size, sizes] of [[512, [0, 1, 400, 512, 60000]], [4096, [4096, MIB]], [65536, [65536, MIB]]]) {
            const connection = await connect({ max_frame_size: size });
            const where = `${address}.${size}`;
            const inbox = new Inbox(connection, where, { credit: sizes.length });
            await new Outbox(connection, where).send(sizes.map((bytes, seq) => message(seq, { size: bytes })));
            for (const { message: received, delivery } of await inbox.take(sizes.length)) {
                check(bodyIsRight(received), `frames of ${size}: body of ${seqOf(received)} is not what was sent`);
                delivery.accept();
            }
        }
    },

    async browse() {
        const connection = await connect();
        const outbox = new Outbox(connection, address);
        await outbox.send(range(100).map((seq) => message(seq)));
        const browser = new Inbox(connection, address, { credit: 105, source: { distribution_mode: 'copy' } });
        const items = await browser.take(100);
        inOrder(seqs(items), range(100), 'browsed');
        items.forEach(({ delivery }) => delivery.accept());
        await outbox.send(range(105, 100).map((seq) => message(seq)));
        inOrder(seqs(await browser.take(5)), range(105, 100), 'browsed as they came');
        await expectRest(connection, address, range(105));
    },

    async selector() {
        const connection = await connect();
        const colours = ['red', 'green', 'blue'];
        await new Outbox(connection, address).send(
            range(300).map((seq) => message(seq, { properties: { colour: colours[seq % 3] } })));
        const source = { filter: rhea.filter.selector("colour = 'red' AND seq < 150") };
        const expected = range(150, 0, 3);
        const inbox = new Inbox(connection, address, { source, credit: 300 });
        const items = await inbox.take(expected.length);
        inOrder(seqs(items), expected, 'selected');
        items.forEach(({ delivery }) => delivery.accept());
        equal((await inbox.drain(1)).length, 0, 'selected beyond');
        const wrong = await new Inbox(connection, address, { source: { filter: rhea.filter.selector('colour = = 1') } }).opened();
        await wait(() => wrong.error, 'refusal of a wrong selector');
        equal(wrong.error.condition, 'amqp:invalid-field', 'refusal');
        await inbox.close();
        await expectRest(connection, address, range(300).filter((seq) => !expected.includes(seq)));
    },

    async competing() {
        const count = 3000;
        const shares = [[], []];
        const inboxes = [];
        for (let index = 0; index < 2; index++) {
            const each = ({ message: received, delivery }) => {
                shares[index].push(seqOf(received));
                delivery.accept();
                inboxes[index].link.add_credit(1);
            };
            inboxes.push(await new Inbox(await connect(), address, { each, credit: 50 }).opened());
        }
        await pause(200);
        await new Outbox(await connect(), address).send(range(count).map((seq) => message(seq)));
        await wait(() => shares[0].length + shares[1].length === count, () => `all messages: ${shares.map((s) => s.length)}`);
        inOrder([...shares[0], ...shares[1]].sort((a, b) => a - b), range(count), 'all, each once');
        for (const share of shares) inOrder(share, [...share].sort((a, b) => a - b), 'order of a share');
        const [low, high] = shares.map((share) => share.length).sort((a, b) => a - b);
        check(high <= 1.2 * low, `shares of ${high} and ${low}`);
    },

    async 'one-at-a-time'() {
        const count = 200;
        const connection = await connect();
        await new Outbox(connection, address).send(range(count).map((seq) => message(seq)));
        const inbox = new Inbox(connection, address);
        for (let seq = 0; seq < count; seq++) {
            inbox.link.add_credit(1);
            const [item] = await inbox.take(1);
            equal(seqOf(item.message), seq, 'order');
            equal(inbox.items.length, 0, 'messages without credit');
            item.delivery.accept();
        }
        await pause(200);
        equal(inbox.items.length, 0, 'messages without credit');
    },

    async drain() {
        const connection = await connect();
        const inbox = await new Inbox(connection, address).opened();
        equal((await inbox.drain(10)).length, 0, 'drained from an empty queue');
        equal(inbox.link.credit, 0, 'credit after drain');
        await new Outbox(connection, address).send(range(3).map((seq) => message(seq)));
        const items = await inbox.drain(10);
        equal(seqs(items), [0, 1, 2], 'drained');
        equal(inbox.link.credit, 0, 'credit after drain');
        items.forEach(({ delivery }) => delivery.accept());
        const source = { filter: rhea.filter.selector('seq = 99') };
        equal((await (await new Inbox(connection, address, { source }).opened()).drain(10)).length, 0, 'no match');
    },

    async 'link-close'() {
        const connection = await connect();
        await new Outbox(connection, address).send(range(100).map((seq) => message(seq)));
        const inbox = new Inbox(connection, address, { credit: 50 });
        const items = await inbox.take(50);
        items[0].delivery.accept();
        items[7].delivery.accept();
        await inbox.close();
        await expectRest(connection, address, range(100).filter((seq) => seq !== 0 && seq !== 7));
    },

    async 'connection-close'() {
        const connection = await connect();
        const holder = await connect();
        await new Outbox(connection, address).send(range(60).map((seq) => message(seq)));
        await new Inbox(holder, address, { credit: 40 }).take(40);
        const inbox = new Inbox(connection, address, { credit: 100 });
        inOrder(seqs(await inbox.take(20)), range(60, 40), 'left over');
        holder.close();
        inOrder(seqs(await inbox.take(40)), range(40), 'returned by the closed connection');
    },

    async kill() {
        const connection = await connect();
        const holder = await connect();
        await new Outbox(connection, address).send(range(60).map((seq) => message(seq)));
        await new Inbox(holder, address, { credit: 40 }).take(40);
        const inbox = new Inbox(connection, address, { credit: 100 });
        inOrder(seqs(await inbox.take(20)), range(60, 40), 'left over');
        holder.socket.resetAndDestroy();
        inOrder(seqs(await inbox.take(40)), range(40), 'returned by the reset connection');
    },

    async 'many-links'() {
        const count = 100;
        const connection = await connect();
        const names = range(30).map((index) => `${address}.${index}`);
        // Settled as they come: rhea's session has room for 2048 unsettled deliveries.
        const found = names.map(() => []);
        const inboxes = names.map((where, index) => new Inbox(connection, where, {
            credit: count,
            each: ({ message: received, delivery }) => {
                found[index].push(seqOf(received));
                delivery.accept();
            },
        }));
        const outboxes = names.map((where) => new Outbox(connection, where));
        outboxes.forEach((outbox) => outbox.start(range(count).map((seq) => message(seq))));
        await wait(() => outboxes.every((outbox) => outbox.done()), 'outcomes of all senders');
        await wait(() => inboxes.every((inbox) => inbox.check()) && found.every((list) => list.length >= count), 'all messages');
        for (const list of found) inOrder(list, range(count), 'order in a queue');
        for (const where of names) await expectRest(connection, where, []);
    },

    async 'homed-apart'() {
        const [places, count] = [6, 400];
        const inboxes = [];
        const outboxes = [];
        for (let index = 0; index < places; index++) {
            const connection = await connect();
            inboxes.push(new Inbox(connection, `${address}.${index}`, { credit: count }));
            outboxes.push(new Outbox(connection, `${address}.${(index + 1) % places}`));
        }
        outboxes.forEach((outbox, index) => outbox.start(made(range(count), `p${index}`)));
        await wait(() => outboxes.every((outbox) => outbox.done()), 'outcomes of all senders');
        for (const [index, inbox] of inboxes.entries()) {
            const items = await inbox.take(count);
            inOrder(seqs(items), range(count), 'order in a queue');
            const producer = `p${(index + places - 1) % places}`;
            check(items.every((item) => item.message.application_properties.producer === producer), 'from another producer');
        }
    },

    async 'request-response'() {
        const server = await connect();
        const relay = new Outbox(server, null);
        relay.start([]);
        const requests = new Inbox(server, address, {
            credit: 100,
            each: ({ message: received, delivery }) => {
                delivery.accept();
                relay.link.send({ to: received.reply_to, correlation_id: received.correlation_id,
                    body: received.body.toUpperCase() });
                relay.sent++;
            },
        });
        const client = await connect();
        const replies = await new Inbox(client, null, { credit: 100, source: { dynamic: true } }).opened();
        const replyTo = replies.link.source.address;
        check(replyTo, 'the dynamic node has no address');
        const texts = ['twas brillig', 'and the slithy toves', 'did gyre and gimble'];
        await new Outbox(client, address).send(
            texts.map((text, index) => ({ reply_to: replyTo, correlation_id: `c${index}`, body: text })));
        const items = await replies.take(texts.length);
        equal(items.map((item) => item.message.body), texts.map((text) => text.toUpperCase()), 'replies');
        equal(items.map((item) => item.message.correlation_id), ['c0', 'c1', 'c2'], 'correlation');
        requests.check();
    },

    async 'anonymous-relay'() {
        const connection = await connect();
        const relay = new Outbox(connection, null);
        await relay.send(range(300).map((seq) => message(seq, { to: `${address}.${seq % 6}` })));
        equal(relay.outcomes.accepted, 300, 'accepted');
        await relay.send([message(0)]);
        equal(relay.outcomes.rejected, 1, 'rejected for want of `to`');
        for (const index of range(6)) await expectRest(connection, `${address}.${index}`, range(300, index, 6));
    },

    async presettled() {
        const connection = await connect();
        const outbox = new Outbox(connection, address, { snd_settle_mode: 1 });
        outbox.start(range(1000).map((seq) => message(seq)));
        const inbox = new Inbox(connection, address, { credit: 600, snd_settle_mode: 1 });
        const items = await inbox.take(600);
        inOrder(seqs(items), range(600), 'received settled');
        check(items.every(({ delivery }) => delivery.remote_settled), 'a delivery is not settled');
        await wait(() => outbox.exhausted, 'last message sent');
        await inbox.close();
        await new Outbox(connection, address).send([message(1000)]);
        await expectRest(connection, address, range(1001, 600));
    },

    async outcomes() {
        const connection = await connect();
        await new Outbox(connection, address).send(range(6).map((seq) => message(seq)));
        const inbox = new Inbox(connection, address, { credit: 5 });
        const items = await inbox.take(5);
        settle(items[1].delivery, 'released');
        settle(items[3].delivery, 'failed');
        inbox.link.add_credit(3);
        const again = await inbox.take(3);
        inOrder(seqs(again), [1, 3, 5], 'returned to their places');
        equal(again.map((item) => item.message.delivery_count || 0), [0, 1, 0], 'delivery-counts');
        settle(items[0].delivery, 'rejected');
        settle(again[0].delivery, 'undeliverable');
        equal(seqs(await inbox.drain(5)), [], 'after undeliverable here');
        const other = new Inbox(await connect(), address, { credit: 5 });
        equal(seqs(await other.take(1)), [1], 'undeliverable elsewhere');
    },

    async 'time-to-live'() {
        const connection = await connect();
        await new Outbox(connection, address).send(
            [60000, 300, 0, 300].map((ttl, seq) => message(seq, ttl ? { ttl } : {})));
        await pause(450);
        await expectRest(connection, address, [0, 2]);
    },

    async plain() {
        const [username, password] = rest;
        const connection = await connect({ username, password });
        await new Outbox(connection, address).send([message(0)]);
        await expectRest(connection, address, [0]);
    },

    async produce() {
        await new Outbox(await connect(), address).send(
            range(500).map((seq) => message(seq, { size: seq * 97 % 40000, message_id: `m${seq}`, durable: seq % 2 === 0 })));
    },

    async consume() {
        const connection = await connect();
        const inbox = new Inbox(connection, address, { credit: 500 });
        const items = await inbox.take(500);
        inOrder(seqs(items), range(500), 'from another client');
        for (const { message: received, delivery } of items) {
            const seq = seqOf(received);
            check(bodyIsRight(received), `body of ${seq} is not what was sent`);
            equal(Boolean(received.durable), seq % 2 === 0, 'durable');
            delivery.accept();
        }
        await expectRest(connection, address, []);
    },
};
