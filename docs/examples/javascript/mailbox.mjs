// From a domain to a message that was read. Usage: node mailbox.mjs DOMAIN, with MAILSTEAD_URL and MAILSTEAD_TOKEN set.
import { setTimeout as sleep } from "node:timers/promises";

const { MAILSTEAD_URL, MAILSTEAD_TOKEN } = process.env;

// api calls the API; an error is thrown with its message, which says what to do.
async function api(method, path, body, headers) {
  const response = await fetch(MAILSTEAD_URL + path, {
    method,
    headers: { Authorization: `Bearer ${MAILSTEAD_TOKEN}`, "Content-Type": "application/json", ...headers },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(60_000),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${answer.error.code}: ${answer.error.message}`);
  return answer;
}

// wait waits until a job has ended: each request does for 30 seconds at most.
async function wait(jobID) {
  for (;;) {
    const job = await api("GET", `/v1/jobs/${jobID}?wait=30`);
    if (job.completed_at) return job;
  }
}

const domain = process.argv[2];
const address = `ann@${domain}`;

// Connect the domain. Delegate it to connected.nameservers, then have the delegation checked: a job sets it up.
const connected = await api("POST", "/v1/domains/connect", { domains: [domain] });
const checked = await api("POST", "/v1/domains/check-ns", { domains: [domain] });
if (!checked.all_verified) throw new Error(checked.domains[0].message);
const { job_id } = await api("GET", `/v1/domains/${connected.domains[0].domain_id}`);
console.log(`domain ${domain}: ${(await wait(job_id)).status}`);

// Create a mailbox. With a key the request can be repeated without making a second one. The password is shown only here.
const mailbox = await api("POST", "/v1/email-users", { email: address, name: "Ann" }, { "Idempotency-Key": `create-${address}` });
const inbox = `/v1/email-users/${mailbox.user_id}/inbox`;
console.log(`mailbox ${mailbox.email}`);

// Send a message, here to herself, and wait until it is there.
await api("POST", `${inbox}/send`, { to: address, subject: "Hello", text: "It works." });
let messages = [];
while (messages.length === 0) {
  messages = (await api("GET", inbox)).data;
  if (messages.length === 0) await sleep(1000);
}

// Read it, mark it as read, delete it.
const path = `${inbox}/${messages[0].uid}`;
const message = await api("GET", path);
console.log(`message ${message.subject}: ${message.text.trim()}`);
await api("PATCH", path, { is_read: true });
await api("DELETE", path);
