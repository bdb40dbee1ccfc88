export { startSandbox } from "./index.js";
