// The build: one script, one style sheet, both named by their hash, and the table that the server's crate includes.
import { readdirSync, rmSync, writeFileSync } from "node:fs";
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

export default defineConfig(({ command }) => {
  if (command === "build") rmSync(out, { recursive: true, force: true });
  return {
    base: "/page/",
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    build: { outDir: out, emptyOutDir: false, target: "es2022", modulePreload: false, assetsInlineLimit: 0 },
    plugins: [table()],
  };
});
