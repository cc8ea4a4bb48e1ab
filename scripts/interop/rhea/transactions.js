'use strict';
// Local transactions by hand: the library knows neither coordinators nor the states of transactional deliveries.

const rhea = require('rhea');
const { check, connect, equal, expectRest, fail, inOrder, Inbox, message, Outbox, poke, range, seqs, wait, address } =
    require('./support.js');

const { types } = rhea;
const [COORDINATOR, DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL] = [0x30, 0x31, 0x32, 0x33, 0x34];

function described(code, values) {
    return types.wrap_described(types.wrap_list(values), code);
}

const ACCEPTED = described(0x24, []);
const RELEASED = described(0x26, []);

class Coordinator {
    constructor(connection) {
        this.connection = connection;
        this.link = connection.open_sender({ target: {}, autosettle: true });
        this.link.local.attach.target = described(COORDINATOR, [types.wrap_symbol('amqp:local-transactions')]);
        for (const event of ['sendable', 'settled']) this.link.on(event, poke);
    }

    // The library cannot write a described value into a body, so the message is made here.
    async command(code, fields) {
        await wait(() => this.link.sendable(), 'credit of the coordinator');
        const list = fields.length === 0 ? [0x45] : [0xc0, fields.length + 1, 2, ...fields];
        const delivery = this.link.send(Buffer.from([0x00, 0x53, 0x77, 0x00, 0x53, code, ...list]), undefined, 0);
        await wait(() => delivery.remote_settled, 'outcome of a command');
        return delivery.remote_state;
    }

    async declare() {
        const state = await this.command(DECLARE, []);
        equal(Number(state.descriptor.value), DECLARED, 'outcome of declare');
        const [id] = state.value;
        return id.value === undefined ? id : id.value;
    }

    // undefined, or the condition of a refusal.
    async discharge(id, failed) {
        // The library writes messages before the settlements of the same turn.
        await new Promise((resolve) => setImmediate(resolve));
        const state = await this.command(DISCHARGE, [0xa0, id.length, ...id, failed ? 0x41 : 0x42]);
        return state.error ? state.error.condition : undefined;
    }
}

function inside(id, outcome) {
    return described(TRANSACTIONAL, outcome ? [types.wrap_binary(id), outcome] : [types.wrap_binary(id)]);
}

// The library leaves the state out of transfers.
function sendInside(outbox, id, messages) {
    const { session } = outbox.link;
    const output = session.output;
    session.output = function (frame, payload) {
        // AMQP 1.0 §2.7.5: behind `more` come rcv-settle-mode and state.
        if (frame.delivery_tag !== undefined) [frame.value[6], frame.value[7]] = [types.wrap(null), inside(id)];
        return output.call(session, frame, payload);
    };
    const deliveries = messages.map((each) => outbox.link.send(each));
    return wait(() => deliveries.every((delivery) => delivery.remote_settled), 'outcomes inside a transaction')
        .finally(() => { session.output = output; });
}

module.exports = {
    async transactions() {
        const connection = await connect();
        const coordinator = new Coordinator(connection);
        const names = range(4).map((index) => `${address}.${index}`);
        const outboxes = names.map((where) => new Outbox(connection, where));
        for (const outbox of outboxes) await wait(() => outbox.link.sendable(), 'credit');
        for (const failed of [true, false]) {
            const id = await coordinator.declare();
            for (const outbox of outboxes) await sendInside(outbox, id, range(10).map((seq) => message(seq)));
            for (const where of names) await expectRest(connection, where, [], 'before the end of the transaction');
            equal(await coordinator.discharge(id, failed), undefined, 'discharge');
            for (const where of names) await expectRest(connection, where, failed ? [] : range(10), `failed: ${failed}`);
            equal(await coordinator.discharge(id, failed), 'amqp:transaction:unknown-id', 'a second discharge');
        }
    },

    async 'transactional-settlement'() {
        const connection = await connect();
        const coordinator = new Coordinator(connection);
        await new Outbox(connection, address).send(range(20).map((seq) => message(seq)));
        const inbox = new Inbox(connection, address, { credit: 10 });
        let items = await inbox.take(10);
        let id = await coordinator.declare();
        for (const { delivery } of items.slice(0, 5)) delivery.update(true, inside(id, ACCEPTED));
        equal(await coordinator.discharge(id, true), undefined, 'rollback');
        await inbox.close();
        const again = new Inbox(connection, address, { credit: 20 });
        items = await again.take(20);
        inOrder(seqs(items), range(20), 'after the rollback');
        id = await coordinator.declare();
        for (const { delivery } of items.slice(0, 8)) delivery.update(true, inside(id, ACCEPTED));
        for (const { delivery } of items.slice(8, 10)) delivery.update(true, inside(id, RELEASED));
        equal(await coordinator.discharge(id, false), undefined, 'commit');
        await again.close();
        await expectRest(connection, address, range(20, 8), 'after the commit');
    },

    async 'transaction-lost'() {
        const [home, other] = [await connect(), await connect()];
        const coordinator = new Coordinator(other);
        const outbox = new Outbox(other, `${address}.out`);
        await new Outbox(home, `${address}.in`).send(range(10).map((seq) => message(seq)));
        const inbox = new Inbox(other, `${address}.in`, { credit: 10 });
        const items = await inbox.take(10);
        await wait(() => outbox.link.sendable(), 'credit');
        const id = await coordinator.declare();
        await sendInside(outbox, id, range(10).map((seq) => message(seq)));
        for (const { delivery } of items) delivery.update(true, inside(id, ACCEPTED));
        equal(await new Coordinator(home).discharge(id, false), 'amqp:transaction:unknown-id', 'another connection\'s');
        const waiting = new Inbox(home, `${address}.in`, { credit: 10 });
        other.socket.resetAndDestroy();
        inOrder(seqs(await waiting.take(10)), range(10), 'after the connection was lost');
        await expectRest(home, `${address}.out`, [], 'what was sent inside');
        check(outbox.link, 'the link');
        if (!coordinator.link) fail('no coordinator');
    },
};
