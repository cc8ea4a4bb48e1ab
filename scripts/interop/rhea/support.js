'use strict';
// What the cases with rhea are made of: messages, waits with deadlines, links that keep what happens.

const rhea = require('rhea');

const MIB = 1 << 20;
const SECONDS = 20;
const BLOCK = Buffer.alloc(MIB + 1009);
for (let i = 0; i < BLOCK.length; i++) BLOCK[i] = (i * 131 + (i >> 8) * 17) & 255;

const [name, host, port, address, ...rest] = process.argv.slice(2);

// The same messages as the other programs make.
function sizeOf(seq) {
    if (seq % 100 === 50) return MIB;
    if (seq % 20 === 1) return 65536 + seq;
    if (seq % 10 === 2) return 20000;
    if (seq % 10 === 3) return 0;
    return seq * 37 % 2048;
}

function outcomeOf(seq) {
    return { 3: 'rejected', 7: 'released', 11: 'failed', 13: 'undeliverable' }[seq % 20] || 'accepted';
}

function bodyOf(seq, size) {
    return BLOCK.subarray(seq % 1009, seq % 1009 + size);
}

function message(seq, { size = seq % 100, producer = 'p', properties = {}, ...fields } = {}) {
    // Signed, as Java has no other numbers.
    const [seqInt, sizeInt] = [seq, size].map((number) => rhea.types.wrap_int(number));
    const application_properties = { seq: seqInt, producer, size: sizeInt, ...properties };
    return { application_properties, body: rhea.message.data_section(bodyOf(seq, size)), ...fields };
}

function seqOf(received) {
    return received.application_properties.seq;
}

function bodyIsRight(received) {
    const { seq, size } = received.application_properties;
    const body = received.body && received.body.content !== undefined ? received.body.content : received.body;
    return Buffer.compare(Buffer.from(body || []), bodyOf(seq, size)) === 0;
}

function fail(reason) {
    throw new Error(reason);
}

function check(condition, reason) {
    if (!condition) fail(reason);
}

function equal(found, expected, what) {
    const [left, right] = [JSON.stringify(found), JSON.stringify(expected)];
    if (left !== right) fail(`${what}: expected ${right.slice(0, 300)}, found ${left.slice(0, 300)}`);
}

function range(count, from = 0, step = 1) {
    const list = [];
    for (let i = from; i < count; i += step) list.push(i);
    return list;
}

function inOrder(found, expected, what) {
    const at = found.findIndex((value, index) => value !== expected[index]);
    if (at >= 0) fail(`${what}: at place ${at} expected ${expected[at]}, found ${found.slice(Math.max(0, at - 3), at + 5)}`);
    equal(found.length, expected.length, `${what}, count`);
}

// Waits until `condition` holds; every event of a connection asks again.
const waiting = new Set();
function poke() {
    for (const ask of [...waiting]) ask();
}

function wait(condition, what, seconds = SECONDS) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(() => done(new Error(`no ${typeof what === 'function' ? what() : what} within ${seconds} s`)),
            seconds * 1000);
        function done(error) {
            clearTimeout(timer);
            waiting.delete(ask);
            if (error) reject(error); else resolve();
        }
        function ask() {
            try {
                if (condition()) done();
            } catch (error) {
                done(error);
            }
        }
        waiting.add(ask);
        ask();
    });
}

function pause(milliseconds) {
    return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

const connections = [];

async function connect(options = {}) {
    const container = rhea.create_container();
    const connection = container.connect({ host, port: Number(port), reconnect: false, ...options });
    connections.push(connection);
    for (const event of ['connection_open', 'receiver_open', 'receiver_close', 'sender_open']) connection.on(event, poke);
    for (const event of ['connection_error', 'session_error', 'protocol_error', 'error', 'disconnected']) {
        connection.on(event, (context) => {
            const error = context.error || (context.connection && context.connection.error) || context;
            connection.problem = `${event}: ${error.condition || ''} ${error.description || error.message || error}`;
            poke();
        });
    }
    await wait(() => connection.problem ? fail(connection.problem) : connection.is_remote_open(), 'open');
    return connection;
}

class Outbox {
    constructor(connection, where, options = {}) {
        this.connection = connection;
        this.outcomes = { accepted: 0, released: 0, rejected: 0, modified: 0 };
        this.sent = 0;
        this.link = connection.open_sender({ target: where === null ? { address: null } : { address: where }, ...options });
        for (const outcome of Object.keys(this.outcomes)) {
            this.link.on(outcome, () => { this.outcomes[outcome]++; poke(); });
        }
        this.link.on('sender_error', () => { this.error = this.link.error; poke(); });
        this.link.on('sendable', () => { this.step(); poke(); });
        this.link.on('settled', () => { this.step(); poke(); });
    }

    start(messages) {
        this.queue = messages[Symbol.iterator]();
        this.exhausted = false;
        this.step();
        return this;
    }

    step() {
        while (this.queue && !this.exhausted && this.link.sendable()) {
            const next = this.queue.next();
            if (next.done) {
                this.exhausted = true;
                poke();
                break;
            }
            this.link.send(next.value);
            this.sent++;
            // rhea takes the credit when it writes, so it must be let to write.
            if (this.sent % 50 === 0) {
                setImmediate(() => { this.step(); poke(); });
                break;
            }
        }
    }

    settled() {
        return Object.values(this.outcomes).reduce((sum, count) => sum + count, 0);
    }

    done() {
        if (this.connection.problem) fail(this.connection.problem);
        if (this.error) fail(`the sender was closed: ${this.error.condition}`);
        return this.exhausted && this.settled() === this.sent;
    }

    async send(messages, seconds) {
        this.start(messages);
        const state = () => `outcome of all messages (sent ${this.sent}, outcomes ${JSON.stringify(this.outcomes)}, ` +
            `credit ${this.link.credit})`;
        await wait(() => this.done(), state, seconds);
    }
}

class Inbox {
    constructor(connection, where, { each, credit = 0, source = {}, ...options } = {}) {
        this.items = [];
        this.drained = 0;
        this.connection = connection;
        this.link = connection.open_receiver(
            { source: { address: where, ...source }, credit_window: 0, autoaccept: false, autosettle: true, ...options });
        this.link.on('message', (context) => {
            const item = { message: context.message, delivery: context.delivery };
            if (each) each(item); else this.items.push(item);
            poke();
        });
        this.link.on('receiver_drained', () => { this.drained++; poke(); });
        this.link.on('receiver_error', () => { this.error = this.link.error; poke(); });
        if (credit) this.link.add_credit(credit);
    }

    async opened() {
        await wait(() => this.error || this.link.is_remote_open(), 'answer to attach');
        return this;
    }

    async take(count, seconds) {
        await wait(() => this.check() && this.items.length >= count,
            () => `more than ${this.items.length} of ${count} messages`, seconds);
        return this.items.splice(0, count);
    }

    check() {
        if (this.connection.problem) fail(this.connection.problem);
        if (this.error) fail(`the receiver was closed: ${this.error.condition}`);
        return true;
    }

    async drain(credit) {
        const before = this.drained;
        this.link.drain = true;
        this.link.add_credit(credit);
        await wait(() => this.check() && this.drained > before, 'answer to drain');
        this.link.drain = false;
        return this.items.splice(0);
    }

    async close() {
        this.link.close();
        await wait(() => this.link.is_closed(), 'answer to detach');
    }
}

function seqs(items) {
    return items.map((item) => seqOf(item.message));
}

async function expectRest(connection, where, expected, what = 'what is left') {
    const inbox = await new Inbox(connection, where).opened();
    const found = [];
    for (;;) {
        const items = await inbox.drain(500);
        if (items.length === 0) break;
        for (const item of items) {
            found.push(seqOf(item.message));
            item.delivery.accept();
        }
    }
    await inbox.close();
    inOrder(found, expected, what);
}

function settle(delivery, outcome) {
    if (outcome === 'accepted') delivery.accept();
    else if (outcome === 'rejected') delivery.reject({ condition: 'x:unwanted', description: 'for the test' });
    else if (outcome === 'released') delivery.release();
    else if (outcome === 'failed') delivery.modified({ delivery_failed: true });
    else delivery.modified({ undeliverable_here: true });
}

// rhea (3.0.5) writes two neighbours with unlike outcomes as one range with the first one's outcome when both are settled in
// the same turn, so unlike outcomes are given in turns of their own.
class Settlements {
    constructor() {
        this.waiting = [];
    }

    add(delivery, outcome, then) {
        this.waiting.push({ delivery, outcome, then });
        if (this.waiting.length === 1) setImmediate(() => this.turn());
    }

    turn() {
        const { outcome } = this.waiting[0];
        while (this.waiting.length > 0 && this.waiting[0].outcome === outcome) {
            const { delivery, then } = this.waiting.shift();
            settle(delivery, outcome);
            then();
        }
        if (this.waiting.length > 0) setImmediate(() => this.turn());
        poke();
    }
}

// Messages made one by one: all at once would be hundreds of megabytes.
function* made(own, producer) {
    for (const seq of own) yield message(seq, { size: sizeOf(seq), producer });
}

module.exports = {
    MIB, sizeOf, outcomeOf, message, seqOf, bodyIsRight, check, equal,
    range, inOrder, wait, pause, connections, connect, Outbox, Inbox,
    seqs, expectRest, settle, Settlements, made, fail, name, address,
    rest, poke,
};
