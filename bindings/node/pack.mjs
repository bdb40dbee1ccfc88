// Makes the npm packages of a release, as files for `npm publish`.
//
//     node pack.mjs platform linux-x64-gnu MODULE FOLDER     the native module of one platform
//     node pack.mjs testkit linux-x64-gnu COMMAND FOLDER     the command `sluice` of one platform
//     node pack.mjs main FOLDER                              the JavaScript of both (`npm run build` first)
//
// Beside MODULE and COMMAND is THIRD-PARTY.txt, the licences of what is linked into them (`.ci/third-party`).
// The main packages name those of the platforms as optional: npm installs the one that fits.

import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";

const PLATFORMS = {
  "linux-x64-gnu": { os: ["linux"], cpu: ["x64"], libc: ["glibc"] },
  "linux-arm64-gnu": { os: ["linux"], cpu: ["arm64"], libc: ["glibc"] },
  "darwin-x64": { os: ["darwin"], cpu: ["x64"] },
  "darwin-arm64": { os: ["darwin"], cpu: ["arm64"] },
};

/** What is published of a manifest. */
function published(folder) {
  const {
    private: _,
    scripts: __,
    devDependencies: ___,
    ...manifest
  } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return { folder, manifest };
}

const SDK = published(import.meta.dirname);
const TESTKIT = published(join(import.meta.dirname, "testkit"));

/** Lays out a package, and packs it. */
function pack(of, fill, folder) {
  const work = mkdtempSync(join(tmpdir(), "sluice-npm-"));
  try {
    fill(work);
    cpSync(join(import.meta.dirname, "../../LICENSE"), join(work, "LICENSE"));
    writeFileSync(join(work, "package.json"), `${JSON.stringify(of, null, 2)}\n`);
    mkdirSync(folder, { recursive: true });
    const packed = spawnSync("npm", ["pack", "--silent", "--pack-destination", resolve(folder)], {
      cwd: work,
      stdio: ["ignore", "inherit", "inherit"],
    });
    process.exitCode ||= packed.status ?? 1;
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** What only one platform has: a file, as a package of its own. */
function platform({ manifest }, file, path, name, folder) {
  const { name: of, version, license, homepage, repository, engines } = manifest;
  const described = {
    name: `${of}-${name}`,
    version,
    description: `What ${of} needs on ${name}`,
    license,
    homepage,
    repository,
    engines,
    ...PLATFORMS[name],
    ...(file.endsWith(".node") && { main: file }),
    files: [file, "THIRD-PARTY.txt"],
  };
  const fill = (work) => {
    cpSync(path, join(work, file));
    chmodSync(join(work, file), 0o755);
    cpSync(join(dirname(path), "THIRD-PARTY.txt"), join(work, "THIRD-PARTY.txt"));
  };
  pack(described, fill, folder);
}

/** What is the same on every platform. */
function main({ folder: from, manifest }, folder) {
  const names = Object.keys(PLATFORMS).map((name) => [`${manifest.name}-${name}`, manifest.version]);
  const files = manifest.files.filter((file) => file !== "sluice.node");
  const fill = (work) => {
    for (const file of files) {
      cpSync(join(from, file), join(work, file), { recursive: true });
    }
    // npm shows it without the files beside it.
    const readme = spawnSync(join(import.meta.dirname, "../../.ci/guides"), ["readme", join(from, "README.md")]);
    if (readme.status !== 0) throw new Error(`${readme.error ?? readme.stderr}`);
    writeFileSync(join(work, "README.md"), readme.stdout);
  };
  pack({ ...manifest, files, optionalDependencies: Object.fromEntries(names) }, fill, folder);
}

const [, , kind, ...rest] = process.argv;
if (kind === "platform" && rest.length === 3 && rest[0] in PLATFORMS) {
  const [name, path, folder] = rest;
  platform(SDK, "sluice.node", path, name, folder);
} else if (kind === "testkit" && rest.length === 3 && rest[0] in PLATFORMS) {
  const [name, path, folder] = rest;
  platform(TESTKIT, "sluice", path, name, folder);
} else if (kind === "main" && rest.length === 1) {
  main(SDK, ...rest);
  main(TESTKIT, ...rest);
} else {
  console.error(
    `pack.mjs platform NAME MODULE FOLDER, pack.mjs testkit NAME COMMAND FOLDER, or pack.mjs main FOLDER; NAME is one of ${Object.keys(PLATFORMS)}`,
  );
  process.exitCode = 2;
}
