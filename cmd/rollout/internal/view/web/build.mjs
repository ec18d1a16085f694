// Bundles the page into dist: page.js, page.css, and the licenses of the libraries in page.js.
// The output depends only on the sources and on package-lock.json.
import { build } from "esbuild";
import { mkdir, readFile, writeFile } from "node:fs/promises";

const here = (path) => new URL(path, import.meta.url);
const out = process.argv[2] ? new URL(`file://${process.argv[2]}/`) : here("dist/");
await mkdir(out, { recursive: true });

const bundle = await build({
  entryPoints: [here("src/main.js").pathname],
  absWorkingDir: here(".").pathname,
  bundle: true,
  minify: true,
  charset: "ascii", // the page is correct whatever its encoding
  format: "iife",
  target: "es2022",
  legalComments: "none", // LICENSES.txt has them all
  metafile: true,
  write: false,
});
await writeFile(new URL("page.js", out), bundle.outputFiles[0].text);

const css = await build({
  stdin: {
    contents: '@import "uplot/dist/uPlot.min.css"; @import "./src/page.css"; @import "./src/sample.css";',
    resolveDir: here(".").pathname,
    loader: "css",
  },
  bundle: true,
  minify: true,
  charset: "ascii",
  legalComments: "none",
  write: false,
});
await writeFile(new URL("page.css", out), css.outputFiles[0].text);

const packages = new Set();
for (const path of Object.keys(bundle.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
  if (found) packages.add(found[1]);
}
let licenses = "";
for (const name of [...packages].sort()) {
  const { version, license } = JSON.parse(await readFile(here(`node_modules/${name}/package.json`)));
  const text = await readFile(here(`node_modules/${name}/LICENSE`), "utf8");
  licenses += `${"=".repeat(80)}\nnpm ${name} ${version} (${license})\n\n--- LICENSE\n${text.trim()}\n\n`;
}
await writeFile(new URL("LICENSES.txt", out), licenses.trimEnd() + "\n");
