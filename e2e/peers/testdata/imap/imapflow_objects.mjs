// Reads the ids of folders and messages with imapflow, and follows deletions: HOST PORT USER PASSWORD. It prints what it has read.
// Without QRESYNC on the server, deletions are told by sequence numbers, and none of those that happened meanwhile.
import assert from "node:assert";
import { ImapFlow } from "imapflow";

const [host, port, user, pass] = process.argv.slice(2);
const options = { host, port: Number(port), secure: false, auth: { user, pass }, logger: false };
const client = new ImapFlow({ ...options, qresync: true });
await client.connect();
const synced = client.enabled.has("QRESYNC");
assert.equal(synced, client.capabilities.has("QRESYNC"));

await client.mailboxOpen("INBOX");
const folder = client.mailbox.mailboxId;
const read = async () => {
  const list = [];
  for await (const m of client.fetch("1:*", { uid: true, threadId: true })) list.push({ uid: String(m.uid), email_id: m.emailId, thread_id: m.threadId ?? "" });
  return list;
};
const messages = await read();
for (const m of messages) {
  assert.ok((await client.search({ emailId: m.email_id }, { uid: true })).includes(Number(m.uid)));
  if (m.thread_id) assert.ok((await client.search({ threadId: m.thread_id }, { uid: true })).includes(Number(m.uid)));
}
const made = await client.mailboxCreate("Work");
await client.messageCopy("1", "Work");
await client.messageMove("3", "Work", { uid: true });
await client.mailboxOpen("Work");
assert.equal(client.mailbox.mailboxId, made.mailboxId);
assert.notEqual(made.mailboxId, folder);
assert.deepEqual((await read()).map((m) => m.email_id), [messages[0].email_id, messages[2].email_id]);

// Another session deletes a message while this one idles, and another one after it has closed the folder.
await client.mailboxOpen("INBOX");
const other = new ImapFlow(options);
await other.connect();
await other.mailboxOpen("INBOX");
const told = new Promise((resolve) => client.once("expunge", resolve));
const idling = client.idle();
await other.messageDelete("2", { uid: true });
const gone = await told;
assert.equal(gone.vanished, synced);
assert.equal(gone.vanished ? gone.uid : gone.seq, 2);
const known = { uidValidity: client.mailbox.uidValidity, changedSince: client.mailbox.highestModseq };
await client.mailboxClose();
await idling.catch(() => {});
await other.messageDelete("1", { uid: true });
await other.logout();
const earlier = [];
client.on("expunge", (e) => earlier.push(e.uid));
await client.mailboxOpen("INBOX", known);
if (synced) assert.ok(earlier.includes(1), `told of ${earlier}`);
else assert.deepEqual(earlier, []);
assert.equal(client.mailbox.exists, messages.length - 3);
await client.logout();
console.log(JSON.stringify({ folder, made: made.mailboxId, messages }));
