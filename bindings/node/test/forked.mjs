// A process that a test forks: it holds a slot until its parent answers.

import { once } from "node:events";
import { Client } from "@sluice/sdk";

const client = Client.fromEnv();
await client.slot(process.argv[2], async () => {
  process.send("holds");
  await once(process, "message");
});
await client.close();
process.disconnect();
