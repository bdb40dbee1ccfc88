import { join } from "node:path";

/** @type {import("next").NextConfig} */
export default {
  // The SDK has a native module, which no bundler can take in.
  serverExternalPackages: ["@sluice/sdk"],
  // Only here, where the SDK is in another folder of the repository.
  outputFileTracingRoot: join(import.meta.dirname, "../.."),
};
