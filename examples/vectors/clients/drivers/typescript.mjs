// The driver of the TypeScript SDKs 2.x (npm i @modelcontextprotocol/client) and 1.x
// (npm i @modelcontextprotocol/sdk): run it in the folder where one is installed.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(process.cwd() + '/driver.cjs');
let sdk, old = null;
try {
    sdk = { ...require('@modelcontextprotocol/client'), ...require('@modelcontextprotocol/client/stdio') };
} catch {
    old = require('@modelcontextprotocol/sdk/types.js');
    sdk = {};
    for (const path of ['index', 'stdio', 'streamableHttp']) Object.assign(sdk, require(`@modelcontextprotocol/sdk/client/${path}.js`));
}
const { Client, StdioClientTransport, StreamableHTTPClientTransport } = sdk;

let client = null, timeout, changes = [], told = new Set();
const running = new Map();  // what can be cancelled, by the ids of the actions

// Register a function for a method, under the name that each SDK has for it.
const METHODS = {
    'elicitation/create': 'ElicitRequestSchema',
    'sampling/createMessage': 'CreateMessageRequestSchema',
    'roots/list': 'ListRootsRequestSchema',
    'notifications/tools/list_changed': 'ToolListChangedNotificationSchema',
    'notifications/prompts/list_changed': 'PromptListChangedNotificationSchema',
    'notifications/resources/list_changed': 'ResourceListChangedNotificationSchema',
    'notifications/resources/updated': 'ResourceUpdatedNotificationSchema'
};
const named = method => (old ? old[METHODS[method]] : method);

async function connect({ server, timeout: seconds, probe, answers = {} }) {
    const capabilities = {};
    if ('sample' in answers) capabilities.sampling = {};
    if ('roots' in answers) capabilities.roots = {};
    for (const mode of ['form', 'url']) if (mode in answers) (capabilities.elicitation ??= {})[mode] = {};
    const options = { capabilities };
    timeout = seconds && seconds * 1000;
    if (!old) options.versionNegotiation = { mode: 'auto', probe: probe && { timeoutMs: probe * 1000 } };
    client = new Client({ name: 'driver', version: '1' }, options);
    const answer = (method, find) => client.setRequestHandler(named(method), find);
    if (capabilities.elicitation) answer('elicitation/create', request => answers[request.params.mode ?? 'form']);
    if (capabilities.sampling) {
        answer('sampling/createMessage', () => {
            if (answers.sample) return answers.sample;
            throw Object.assign(new Error('The user refused'), { code: -1 });
        });
    }
    if (capabilities.roots) answer('roots/list', () => ({ roots: answers.roots.map(uri => ({ uri })) }));
    changes = [];
    const note = (method, find) => client.setNotificationHandler(named(method), message => { changes.push(find(message)); });
    for (const kind of ['tools', 'prompts', 'resources']) note(`notifications/${kind}/list_changed`, () => kind);
    note('notifications/resources/updated', message => message.params.uri);
    const transport = Array.isArray(server)
        ? new StdioClientTransport({ command: server[0], args: server.slice(1), stderr: 'ignore' })
        : new StreamableHTTPClientTransport(new URL(server));
    await client.connect(transport, limits());
}

function limits(seconds) {
    const limit = seconds ? seconds * 1000 : timeout;
    return limit ? { timeout: limit } : {};
}

async function callTool({ id, name, arguments: given, timeout: seconds, progress }) {
    const values = [];
    const stop = new AbortController();
    running.set(id, () => stop.abort());
    const options = { ...limits(seconds), signal: stop.signal };
    if (progress) options.onprogress = report => { values.push(report.progress); };
    const params = { name, ...(given ? { arguments: given } : {}) };
    const result = old ? await client.callTool(params, undefined, options) : await client.callTool(params, options);
    return values.length ? { ...result, progress: values } : result;
}

// Version 2 reads all pages if it is called without a cursor.
const list = (method, member) => async () => {
    if (!old) return (await client[method](undefined, limits()))[member];
    let items = [], cursor;
    do {
        const page = await client[method](cursor === undefined ? {} : { cursor }, limits());
        items = [...items, ...page[member]];
        cursor = page.nextCursor;
    } while (cursor !== undefined);
    return items;
};

async function listen({ id, wanted }) {
    const uris = wanted.filter(one => !['tools', 'prompts', 'resources'].includes(one));
    const ended = new Promise(done => running.set(id, done));
    if (old || client.getProtocolEra() === 'legacy') {
        for (const uri of uris) await client.subscribeResource({ uri }, limits());
        await ended;
        return changes;
    }
    const filter = {};
    for (const kind of ['tools', 'prompts', 'resources']) if (wanted.includes(kind)) filter[`${kind}ListChanged`] = true;
    if (uris.length) filter.resourceSubscriptions = uris;
    const subscription = await client.listen(filter);
    ended.then(() => subscription.close());
    await subscription.closed;
    return changes;
}

const actions = {
    connect,
    call_tool: callTool,
    list_tools: list('listTools', 'tools'),
    list_prompts: list('listPrompts', 'prompts'),
    list_resources: list('listResources', 'resources'),
    get_prompt: ({ name, arguments: given }) => client.getPrompt({ name, ...(given ? { arguments: given } : {}) }, limits()),
    read_resource: async ({ uri }) => (await client.readResource({ uri }, limits())).contents,
    complete: async ({ prompt, argument, value }) =>
        (await client.complete({ ref: { type: 'ref/prompt', name: prompt }, argument: { name: argument, value } }, limits())).completion.values,
    set_level: ({ level }) => client.setLoggingLevel(level, limits()),
    ping: () => client.ping(limits()),
    listen,
    cancel: async ({ target }) => running.get(target)(),
    close: async () => {
        // The SDK has a method of the transport to end a session.
        await client?.transport?.terminateSession?.();
        await client?.close();
        client = null;
    }
};

createInterface({ input: process.stdin }).on('line', async line => {
    const action = JSON.parse(line);
    const report = { id: action.id };
    try {
        if (action.do in actions) report.result = (await actions[action.do](action)) ?? null;
        else report.unsupported = true;
    } catch (problem) {
        report.error = { text: String(problem), code: Number.isInteger(problem?.code) ? problem.code : null };
    }
    process.stdout.write(JSON.stringify(report) + '\n');
}).on('close', () => process.exit());
process.on('unhandledRejection', () => {});
