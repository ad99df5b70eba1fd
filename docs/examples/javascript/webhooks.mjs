// An endpoint for events, from its making to its end. Usage: node webhooks.mjs URL, with MAILSTEAD_URL and MAILSTEAD_TOKEN set.
import { setTimeout as sleep } from "node:timers/promises";

const { MAILSTEAD_URL, MAILSTEAD_TOKEN } = process.env;

// api calls the API; an error is thrown with its message, which says what to do.
async function api(method, path, body) {
  const response = await fetch(MAILSTEAD_URL + path, {
    method,
    headers: { Authorization: `Bearer ${MAILSTEAD_TOKEN}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(60_000),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${answer.error.code}: ${answer.error.message}`);
  return answer;
}

// every yields the rows of a long list, page by page.
async function* every(path, query) {
  for (let cursor = ""; cursor !== null; ) {
    const page = await api("GET", `${path}?${new URLSearchParams({ ...query, cursor })}`);
    yield* page.data;
    cursor = page.pagination.cursor;
  }
}

// Make the endpoint. The receiver needs its secret.
const webhook = await api("POST", "/v1/webhooks", { url: process.argv[2], events: ["email.received", "email.bounced"] });
const path = `/v1/webhooks/${webhook.id}`;
console.log(`secret ${webhook.secret.slice(0, 6)}…`);

// Send it a test event and look how that went.
const { event_id } = await api("POST", `${path}/test`);
let attempts = [];
while (attempts.length === 0) {
  attempts = (await api("GET", `${path}/deliveries?event_id=${event_id}`)).data;
  if (attempts.length === 0) await sleep(1000);
}
console.log(`test ${attempts[0].outcome}`);

// Change the secret. For 24 hours deliveries carry a signature with each, so the receiver can change over at leisure.
const rotated = await api("POST", `${path}/rotate-secret`);
console.log(`rotated, old secret until ${rotated.previous_secret_expires_at}`);

// Events are kept for 30 days whether or not an endpoint took them.
for await (const event of every("/v1/events", { limit: 2 })) console.log(`event ${event.type}`);

console.log(`deleted ${(await api("DELETE", path)).deleted}`);
