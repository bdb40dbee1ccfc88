export { type Sandbox, type SandboxOptions, startSandbox } from "@sluice/sdk/testkit";
