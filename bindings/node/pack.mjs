// Makes the npm packages of a release, as files for `npm publish`.
//
//     node pack.mjs platform linux-x64-gnu MODULE FOLDER    the native module of one platform
//     node pack.mjs main FOLDER                             the JavaScript (`npm run build` first)
//
// The main package names those of the platforms as optional: npm installs the one that fits.

import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const PLATFORMS = {
  "linux-x64-gnu": { os: ["linux"], cpu: ["x64"], libc: ["glibc"] },
  "linux-arm64-gnu": { os: ["linux"], cpu: ["arm64"], libc: ["glibc"] },
  "darwin-x64": { os: ["darwin"], cpu: ["x64"] },
  "darwin-arm64": { os: ["darwin"], cpu: ["arm64"] },
};

const source = import.meta.dirname;
const {
  private: _,
  scripts: __,
  devDependencies: ___,
  ...manifest
} = JSON.parse(readFileSync(join(source, "package.json"), "utf8"));

/** Lays out a package, and packs it. */
function pack(of, fill, folder) {
  const work = mkdtempSync(join(tmpdir(), "sluice-npm-"));
  try {
    fill(work);
    writeFileSync(join(work, "package.json"), `${JSON.stringify(of, null, 2)}\n`);
    mkdirSync(folder, { recursive: true });
    const packed = spawnSync("npm", ["pack", "--silent", "--pack-destination", resolve(folder)], {
      cwd: work,
      stdio: ["ignore", "inherit", "inherit"],
    });
    process.exitCode = packed.status ?? 1;
  } finally {
    rmSync(work, { recursive: true });
  }
}

function platform(name, module, folder) {
  const { version, license, engines } = manifest;
  const of = {
    name: `${manifest.name}-${name}`,
    version,
    description: `The native module of ${manifest.name} for ${name}`,
    license,
    engines,
    ...PLATFORMS[name],
    main: "sluice.node",
    files: ["sluice.node"],
  };
  pack(of, (work) => cpSync(module, join(work, "sluice.node")), folder);
}

function main(folder) {
  const names = Object.keys(PLATFORMS).map((name) => [`${manifest.name}-${name}`, manifest.version]);
  const files = manifest.files.filter((file) => file !== "sluice.node");
  const fill = (work) => {
    for (const file of [...files, "README.md"]) {
      cpSync(join(source, file), join(work, file), { recursive: true });
    }
  };
  pack({ ...manifest, files, optionalDependencies: Object.fromEntries(names) }, fill, folder);
}

const [, , kind, ...rest] = process.argv;
if (kind === "platform" && rest.length === 3 && rest[0] in PLATFORMS) {
  platform(...rest);
} else if (kind === "main" && rest.length === 1) {
  main(...rest);
} else {
  console.error(
    `pack.mjs platform NAME MODULE FOLDER, or pack.mjs main FOLDER; NAME is one of ${Object.keys(PLATFORMS)}`,
  );
  process.exitCode = 2;
}
