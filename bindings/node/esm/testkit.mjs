export * from "../dist/testkit.js";
