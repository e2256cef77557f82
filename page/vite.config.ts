// The build: one script, one style sheet, both named by their hash, the table that the server's crate includes, and the digest of the sources.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { defineConfig, type Plugin } from "vite";

const out = resolve(import.meta.dirname, "../crates/rest/page");
const types: Record<string, string> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
};

/** Lists the files in the form of a Rust expression, so that the crate needs no build script. */
function table(): Plugin {
  return {
    name: "table",
    closeBundle() {
      const files = readdirSync(out, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile() && !entry.name.endsWith(".in"))
        .map((entry) => join(entry.parentPath, entry.name).slice(out.length + 1))
        .sort();
      const rows = files.map((file) => {
        const type = types[file.split(".").pop() ?? ""];
        if (!type) throw new Error(`${file} has no type`);
        return `    ("${file}", "${type}", include_bytes!("${file}")),\n`;
      });
      writeFileSync(join(out, "table.in"), `&[\n${rows.join("")}]\n`);
    },
  };
}

/** What the built files depend on, relative to this folder. */
const sources = ["index.html", "package.json", "package-lock.json", "public", "src", "tsconfig.json", "vite.config.ts"];

/** Records the digest of the sources, by which a test without Node notices that they changed and were not built again. */
function digest(): Plugin {
  return {
    name: "digest",
    closeBundle() {
      const here = import.meta.dirname;
      const hash = createHash("sha256");
      const files = readdirSync(here, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name).slice(here.length + 1))
        .filter((file) => sources.includes(file.split("/")[0] ?? ""))
        .sort();
      for (const file of files) {
        const bytes = readFileSync(join(here, file));
        hash.update(`${file} ${bytes.length}\n`).update(bytes);
      }
      writeFileSync(join(out, "sources.in"), `${hash.digest("hex")}\n`);
    },
  };
}

export default defineConfig(({ command }) => {
  if (command === "build") rmSync(out, { recursive: true, force: true });
  return {
    base: "/page/",
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    build: { outDir: out, emptyOutDir: false, target: "es2022", modulePreload: false, assetsInlineLimit: 0 },
    plugins: [table(), digest()],
  };
});
