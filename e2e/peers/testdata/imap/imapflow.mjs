// Walks through a mailbox with imapflow: HOST PORT USER PASSWORD. It prints each operation that has worked.
import assert from "node:assert";
import { ImapFlow } from "imapflow";

const [host, port, user, pass] = process.argv.slice(2);
const options = { host, port: Number(port), secure: false, auth: { user, pass }, logger: false, clientInfo: { name: "test", version: "1" } };
const did = (operation) => console.log(operation);

const client = new ImapFlow(options);
await client.connect();
did("log in");
assert.equal(client.serverInfo.name, "Mailstead");
did("id");
assert.ok(client._deflate, "compression is not on");
did("compress");
const folders = await client.list({ statusQuery: { messages: true, highestModseq: true } });
assert.equal(folders.find((f) => f.path === "INBOX").status.messages, 3);
assert.equal(folders.find((f) => f.specialUse === "\\Sent").path, "Sent");
did("list");

const lock = await client.getMailboxLock("INBOX");
assert.equal(client.mailbox.exists, 3);
did("select");
const since = client.mailbox.highestModseq;
assert.ok(since > 0n);
const seen = [];
for await (const m of client.fetch("1:*", { uid: true, flags: true, envelope: true, bodyStructure: true, internalDate: true, size: true })) {
  seen.push(m.envelope.subject);
}
assert.deepEqual(seen, ["one", "two", "three"]);
did("fetch");
const { content } = await client.download("1", "1", { maxBytes: 1000, chunkSize: 5 });
let text = "";
for await (const chunk of content) text += chunk;
assert.equal(text, "Hello one\r\n");
did("parts");
assert.deepEqual(await client.search({ or: [{ subject: "one" }, { body: "Hello two" }] }, { uid: true }), [1, 2]);
did("search");
assert.ok(await client.messageFlagsAdd("2", ["\\Flagged", "$Later"]));
did("flags");
const changed = [];
for await (const m of client.fetch("1:*", { flags: true }, { changedSince: since })) changed.push([m.uid, m.modseq > since]);
assert.deepEqual(changed, [[2, true]]);
assert.ok(await client.messageFlagsAdd("1", ["\\Answered"], { uid: true, unchangedSince: since }));
did("condstore");
const appended = await client.append("Drafts", "Subject: draft\r\n\r\nunfinished\r\n", ["\\Draft"], new Date(0));
assert.ok(appended.uid > 0);
did("append");
await client.mailboxCreate(["Work", "Pläne"]);
await client.mailboxRename("Work/Pläne", "Work/Done");
await client.mailboxCreate("Gone");
await client.mailboxDelete("Gone");
did("folders");
await client.mailboxSubscribe("Work/Done");
assert.ok((await client.list()).find((f) => f.path === "Work/Done").subscribed);
await client.mailboxUnsubscribe("Work/Done");
did("subscribe");
assert.equal((await client.messageCopy("1", "Archive")).uidMap.size, 1);
did("copy");
assert.equal((await client.messageMove("2", "Work/Done")).uidMap.size, 1);
did("move");
assert.ok(await client.messageDelete("3", { uid: true }));
assert.equal(client.mailbox.exists, 1);
did("expunge");
const quota = await client.getQuota("INBOX");
assert.equal(quota.storage.limit, 10240 * 1024);
did("quota");

// Another session delivers while this one idles.
const exists = new Promise((resolve) => client.once("exists", resolve));
const idling = client.idle();
const other = new ImapFlow({ ...options, disableCompression: true });
await other.connect();
await other.append("INBOX", "Subject: new\r\n\r\nnew\r\n");
await other.logout();
assert.equal((await exists).count, 2);
did("idle");
lock.release();
await client.logout();
await idling.catch(() => {});
