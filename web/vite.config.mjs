// One script and one style sheet, no code splitting: both are put into every page as they are.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

const held = ["preact", "d3-array"]; // what the script holds of others, whose licences go with it
const license = (name) => `${name}\n${readFileSync(new URL(`./node_modules/${name}/LICENSE`, import.meta.url), "utf-8").trim()}`;

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
        postBanner: `/*! Holds:\n${held.map(license).join("\n\n")}\n*/`,
      },
    },
  },
});
