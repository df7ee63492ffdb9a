import { defineConfig } from "vite";

// One script and one style, under fixed names: hatch_build.py puts both into the page.
export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 100_000,
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: "app.js",
        assetFileNames: "app[extname]",
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8642" } },
});
