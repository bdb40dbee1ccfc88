// The sandbox of @sluice/sdk, with the command of this platform's package.

const { startSandbox: start } = require("@sluice/sdk/testkit");

/** The command of this platform's package; `undefined` if the package is missing. */
function installed() {
  const { platform, arch } = process;
  const name = `@sluice/testkit-${platform}-${arch}${platform === "linux" ? "-gnu" : ""}`;
  try {
    return require.resolve(`${name}/sluice`);
  } catch {
    return undefined;
  }
}

exports.startSandbox = async ({ command = process.env.SLUICE_COMMAND ?? installed(), ...options } = {}) =>
  start({ ...(command !== undefined && { command }), ...options });
