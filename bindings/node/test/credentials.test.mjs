// Credentials that a program has are those of the requests.

import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { Client, CredentialsError } from "@sluice/sdk";
import { DAYS, declare, requests } from "./support.mjs";

// A DynamoDB that notes who asks it: it passes requests on to the sandbox.
const seen = [];
const proxy = createServer((asked, reply) => {
  const [, key, region] = /Credential=([^/]+)\/\d+\/([^/]+)\//.exec(asked.headers.authorization);
  seen.push({ key, region, token: asked.headers["x-amz-security-token"] });
  const { method, headers } = asked;
  const passed = request(process.env.SLUICE_ENDPOINT_URL, { method, headers }, (answer) => {
    reply.writeHead(answer.statusCode, answer.headers);
    answer.pipe(reply);
  });
  asked.pipe(passed);
});

const endpoint = () => `http://127.0.0.1:${proxy.address().port}`;

before(() => new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve)));
after(() => {
  proxy.closeAllConnections();
  proxy.close();
});

/** Takes one request in a client with these settings, and returns who asked since then. */
async function asks(settings) {
  const client = Client.fromEnv({ endpoint: endpoint(), ...settings });
  const rpm = await declare(requests(10, DAYS));
  seen.length = 0;
  try {
    assert.equal((await client.acquire(rpm)).granted, true);
    return seen[0];
  } finally {
    await client.close(1_000);
  }
}

test("credentials and region of the program sign the requests", async () => {
  const credentials = { accessKeyId: "AKIDOBJECT", secretAccessKey: "secret" };
  assert.deepEqual(await asks({ credentials, region: "eu-west-3" }), {
    key: "AKIDOBJECT",
    region: "eu-west-3",
    token: undefined,
  });
  const session = { ...credentials, sessionToken: "token", expiration: new Date(Date.now() + 3_600_000) };
  assert.deepEqual(await asks({ credentials: () => session, region: "eu-west-3" }), {
    key: "AKIDOBJECT",
    region: "eu-west-3",
    token: "token",
  });
  assert.equal((await asks({})).key, "sandbox");
});

test("credentials and region of a client of the AWS SDK are handed over", async () => {
  const { config } = new DynamoDBClient({
    credentials: { accessKeyId: "AKIDSDK", secretAccessKey: "secret", sessionToken: "token" },
    region: "eu-west-3",
  });
  assert.deepEqual(await asks({ credentials: config.credentials, region: await config.region() }), {
    key: "AKIDSDK",
    region: "eu-west-3",
    token: "token",
  });
});

test("a provider is asked once, and again when its credentials end", async () => {
  const take = async (lastsMs) => {
    let asked = 0;
    const credentials = async () => {
      asked += 1;
      await sleep(10);
      return { accessKeyId: `AKID${asked}`, secretAccessKey: "s", expiration: new Date(Date.now() + lastsMs) };
    };
    const client = Client.fromEnv({ endpoint: endpoint(), credentials });
    const rpm = await declare(requests(100, DAYS));
    seen.length = 0;
    for (let call = 0; call < 3; call += 1) {
      assert.equal((await client.acquire(rpm)).granted, true);
    }
    await client.close(1_000);
    return new Set(seen.map(({ key }) => key));
  };
  assert.deepEqual(await take(3_600_000), new Set(["AKID1"]));
  const keys = await take(1_000);
  assert(keys.size >= 3 && keys.has("AKID1") && keys.has("AKID3"), `${[...keys]}`);
});

test("the error of a provider is the error of the request", async () => {
  for (const [credentials, text] of [
    [() => Promise.reject(new Error("no profile of this name")), /no profile of this name/],
    [
      () => {
        throw "a text";
      },
      /a text/,
    ],
    [() => undefined, /accessKeyId/],
    [() => ({ accessKeyId: "AKID", secretAccessKey: undefined }), /secret access key/],
    [{ accessKeyId: "", secretAccessKey: "s" }, /access key ID/],
  ]) {
    await assert.rejects(asks({ credentials }), (error) => {
      assert(error instanceof CredentialsError, error.stack);
      assert.match(error.message, text);
      return true;
    });
  }
});

test("a provider that is slower than a request waits is not asked anew", async () => {
  let asked = 0;
  let load;
  const loaded = new Promise((resolve) => {
    load = resolve;
  });
  const credentials = async () => {
    asked += 1;
    await loaded;
    return { accessKeyId: "AKIDSLOW", secretAccessKey: "s" };
  };
  const client = Client.fromEnv({ endpoint: endpoint(), credentials });
  const rpm = await declare(requests(10, DAYS));
  seen.length = 0;
  await assert.rejects(client.acquire(rpm), CredentialsError);
  const second = client.acquire(rpm);
  await sleep(100);
  load();
  assert.equal((await second).granted, true);
  assert.deepEqual([asked, seen[0].key], [1, "AKIDSLOW"]);
  await client.close(1_000);
});
