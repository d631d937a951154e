// One script and one style sheet, no code splitting: both are put into every page as they are.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

const license = readFileSync(new URL("./node_modules/preact/LICENSE", import.meta.url), "utf-8").trim();

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    outDir: "../src/regard/studio/static",
    emptyOutDir: true,
    cssCodeSplit: false,
    modulePreload: false,
    rollupOptions: {
      input: "src/main.tsx",
      output: {
        format: "iife",
        entryFileNames: "bundle.js",
        assetFileNames: "bundle[extname]",
        postBanner: `/*! Holds Preact.\n${license}\n*/`,
      },
    },
  },
});
