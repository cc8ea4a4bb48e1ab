'use strict';
// One case with rhea: node interop.js CASE HOST PORT ADDRESS [more…]. Ends with 0, or says what was wrong and ends with 1.

const { connections, name, pause } = require('./support.js');

const cases = { ...require('./queues.js'), ...require('./topics.js'), ...require('./transactions.js') };

async function main() {
    await cases[name]();
    for (const connection of connections) connection.close();
    await pause(50);
}

main().then(() => process.exit(0), (error) => {
    console.log(error.stack.split('\n').slice(0, 4).join('\n'));
    process.exit(1);
});
