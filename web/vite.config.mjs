// One script and one style sheet without code splitting: every page contains both.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

const bundled = ["preact", "d3-array"]; // their licenses are part of the script
const license = (name) =>
  `${name}\n${readFileSync(new URL(`./node_modules/${name}/LICENSE`, import.meta.url), "utf-8").trim()}`;

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    outDir: "../src/regard/server/static",
    emptyOutDir: true,
    cssCodeSplit: false,
    modulePreload: false,
    rollupOptions: {
      input: "src/main.tsx",
      output: {
        format: "iife",
        entryFileNames: "bundle.js",
        assetFileNames: "bundle[extname]",
        postBanner: `/*! Contains:\n${bundled.map(license).join("\n\n")}\n*/`,
      },
    },
  },
});
