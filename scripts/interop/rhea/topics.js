'use strict';
// Topics: subscriptions by what a source says of them.

const rhea = require('rhea');
const {
    check, connect, equal, fail, inOrder, Inbox, message, Outbox, pause, range, seqOf, seqs, wait, address,
} = require('./support.js');

const NO_LOCAL = { 'no-local': rhea.types.wrap_described([], 0x0000468C00000003) };

function subscriber(connection, { capabilities = [], durable = false, filter, name, each, credit = 1000 } = {}) {
    const source = { capabilities: ['topic', ...capabilities], filter };
    if (durable) Object.assign(source, { durable: 2, expiry_policy: 'never' });
    return new Inbox(connection, address, { source, credit, each, ...(name ? { name } : {}) }).opened();
}

function publisher(connection, where) {
    return new Outbox(connection, where, { target: { address: where, capabilities: ['topic'] } });
}

function named(container_id) {
    return connect({ container_id });
}

async function nothing(inbox, what) {
    equal(seqs(await inbox.drain(100)), [], what);
}

module.exports = {
    async topics() {
        const inboxes = [];
        for (let index = 0; index < 5; index++) inboxes.push(await subscriber(await connect()));
        const count = 500;
        const outbox = publisher(await connect(), address);
        await outbox.send(range(count).map((seq) => message(seq)));
        equal(outbox.outcomes.accepted, count, 'accepted');
        for (const inbox of inboxes) {
            const items = await inbox.take(count);
            inOrder(seqs(items), range(count), 'at a subscriber');
            items.forEach(({ delivery }) => delivery.accept());
        }
        await inboxes[0].close();
        await outbox.send([message(count)]);
        const late = await subscriber(await connect());
        await nothing(late, 'before a late subscriber');
        equal(seqs(await inboxes[1].take(1)), [count], 'at those that stayed');
    },

    async 'topic-patterns'() {
        const connection = await connect();
        const wanted = { '*': ['a', 'b'], '#': ['', 'a', 'b', 'a.b'], 'a.*': ['a.b'], '>': ['a', 'b', 'a.b'], b: ['b'] };
        const inboxes = {};
        for (const pattern of Object.keys(wanted)) {
            const source = { capabilities: 'topic' };
            inboxes[pattern] = await new Inbox(connection, `${address}.${pattern}`, { source, credit: 100 }).opened();
        }
        for (const word of ['', 'a', 'b', 'a.b']) {
            const where = word ? `${address}.${word}` : address;
            await publisher(connection, where).send(range(3).map((seq) => message(seq, { producer: word })));
        }
        for (const [pattern, words] of Object.entries(wanted)) {
            const items = await inboxes[pattern].take(3 * words.length);
            equal(items.map((item) => item.message.application_properties.producer),
                words.flatMap((word) => [word, word, word]), pattern);
            await nothing(inboxes[pattern], `beyond ${pattern}`);
        }
    },

    async durable() {
        const outbox = publisher(await connect(), address);
        const options = { durable: true, name: 'sub' };
        let gathered = [];
        for (let turn = 0; turn < 3; turn++) {
            const connection = await named(`${address}-c`);
            const inbox = await subscriber(connection, options);
            const items = await inbox.take(gathered.length);
            inOrder(seqs(items), gathered, `gathered before turn ${turn}`);
            items.forEach(({ delivery }) => delivery.accept());
            if (turn === 1) {
                await pause(20);
                connection.socket.resetAndDestroy();
            } else {
                inbox.link.detach();
                await wait(() => inbox.link.is_closed(), 'answer to detach');
                connection.close();
            }
            gathered = range(10 * turn + 10, 10 * turn);
            // A connection that was reset is seen to be gone before what follows, or the messages come back from it: both right.
            await outbox.send(gathered.map((seq) => message(seq)));
        }
        const connection = await named(`${address}-c`);
        await nothing(await subscriber(connection, { durable: true, name: 'another' }), 'in another subscription');
        const inbox = await subscriber(connection, options);
        inOrder(seqs(await inbox.take(10)), gathered, 'at the end');
        await inbox.close();
        await outbox.send([message(99)]);
        const again = await subscriber(connection, options);
        await nothing(again, 'after the subscription was closed');
        await again.close();
    },

    async unsubscribe() {
        const connection = await named(`${address}-c`);
        const inbox = await subscriber(connection, { durable: true, name: 'sub' });
        inbox.link.detach();
        await wait(() => inbox.link.is_closed(), 'answer to detach');
        await publisher(connection, address).send([message(0)]);
        for (const found of [true, false]) {
            const link = connection.open_receiver({ name: 'sub', credit_window: 0 });
            link.local.attach.source = undefined;
            let error;
            link.on('receiver_error', () => { error = link.error; });
            if (found) {
                await wait(() => link.is_remote_open(), 'the subscription');
                check(link.source && link.source.address, 'the subscription has no source');
                link.close();
                await wait(() => link.is_closed(), 'answer to detach');
            } else {
                await wait(() => error, 'a refusal');
                equal(error.condition, 'amqp:not-found', 'refusal');
            }
        }
        await nothing(await subscriber(connection, { durable: true, name: 'sub' }), 'in a new subscription');
    },

    async shared() {
        const count = 600;
        for (const durable of [false, true]) {
            for (const capabilities of [['shared'], ['shared', 'global']]) {
                const shares = [];
                const inboxes = [];
                for (let index = 0; index < 3; index++) {
                    const connection = await named(capabilities.length === 1 ? `${address}-c` : `${address}-${index}`);
                    const name = `sub-${capabilities.length}-${durable}|${index}`;
                    const share = [];
                    const each = ({ delivery, message: received }) => {
                        share.push(seqOf(received));
                        delivery.accept();
                    };
                    inboxes.push(await subscriber(connection, { capabilities, durable, name, each, credit: 0 }));
                    shares.push(share);
                }
                inboxes.forEach((inbox) => inbox.link.add_credit(count));
                await pause(50);
                await publisher(await connect(), address).send(range(count).map((seq) => message(seq)));
                await wait(() => shares.flat().length === count, () => `all messages: ${shares.map((s) => s.length)}`);
                inOrder(shares.flat().sort((a, b) => a - b), range(count), 'each once');
                for (const share of shares) {
                    inOrder(share, [...share].sort((a, b) => a - b), 'order of a share');
                    check(share.length > count / 6, `shares of ${shares.map((s) => s.length)}`);
                }
                for (const inbox of inboxes) await inbox.close();
            }
        }
    },

    async 'subscription-filters'() {
        const connection = await connect();
        const red = await subscriber(connection, { filter: rhea.filter.selector("colour = 'red'") });
        const others = await subscriber(connection, { filter: NO_LOCAL });
        const all = await subscriber(connection);
        const colours = ['red', 'green', 'blue'];
        const coloured = (seq) => message(seq, { properties: { colour: colours[seq % 3] } });
        await publisher(connection, address).send(range(30).map(coloured));
        await publisher(await connect(), address).send(range(60, 30).map(coloured));
        inOrder(seqs(await red.take(20)), range(60, 0, 3), 'the red ones');
        inOrder(seqs(await others.take(30)), range(60, 30), 'those of others');
        inOrder(seqs(await all.take(60)), range(60), 'all');
        for (const inbox of [red, others, all]) await nothing(inbox, 'beyond');
        const wrong = await subscriber(connection, { filter: rhea.filter.selector('colour = = 1') });
        await wait(() => wrong.error, 'refusal of a wrong selector');
        equal(wrong.error.condition, 'amqp:invalid-field', 'refusal');
        if (wrong.items.length) fail('a refused link got a message');
    },
};
