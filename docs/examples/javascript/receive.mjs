// Receives events. It listens on 127.0.0.1:PORT (8000), behind a proxy that does HTTPS; MAILSTEAD_SECRET is the secret.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const { MAILSTEAD_SECRET, PORT = "8000" } = process.env;

// genuine says whether a delivery comes from Mailstead: body is what came, byte for byte, before anything reads it.
function genuine(secret, timestamp, signatures, body) {
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= 300)) return false;
  const mac = createHmac("sha256", secret).update(`${timestamp}.`).update(body).digest("hex");
  const want = Buffer.from(`v1=${mac}`);
  const given = signatures.split(",").map((s) => Buffer.from(s));
  return given.some((s) => s.length === want.length && timingSafeEqual(s, want));
}

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const { "x-service-timestamp": timestamp = "", "x-service-signature": signatures = "" } = request.headers;
  if (!genuine(MAILSTEAD_SECRET, timestamp, signatures, body)) {
    response.writeHead(400).end();
    return;
  }
  const event = JSON.parse(body);
  console.log(event.type, event.id); // An id may come twice: remember those that are done.
  response.writeHead(204).end();
}).listen(Number(PORT), "127.0.0.1");
