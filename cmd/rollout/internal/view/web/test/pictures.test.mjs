// Takes pictures of all pages into the folder SCREENSHOTS. With UPDATE, takes the pictures of the
// documentation again, in the folder PICTURES.
import assert from "node:assert/strict";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { close, loaded, open, page, settled, urls } from "./helpers.mjs";

const { SCREENSHOTS: shots, PICTURES: pictures, UPDATE: update } = process.env;

test("screenshots", { skip: !shots }, async () => {
  for (const [name, options] of Object.entries({
    light: { colorScheme: "light" },
    dark: { colorScheme: "dark" },
    phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true },
    wide: { viewport: { width: 2200, height: 1200 } },
  })) {
    for (const [part, path] of Object.entries({ overview: "", samples: "#/samples", sample: "#/sample/0", fork: "#/sample/9?row=1", failed: "#/sample/23", hostile: "#/sample/81", compare: "#/compare/0/2" })) {
      await open(urls.small + path, options);
      await loaded();
      await settled();
      if (part === "sample") await page.hover(".flow .span.assistant [data-i] >> nth=2");
      await page.screenshot({ path: `${shots}/${part}-${name}.png`, fullPage: part === "overview" });
      await close();
    }
  }
});

// size returns the width and the height of a PNG.
const size = (png) => [png.readUInt32BE(16), png.readUInt32BE(20)];

test("the pictures in the documentation are current", async () => {
  const take = async (name) => {
    const picture = await page.screenshot();
    if (update) writeFileSync(`${pictures}/${name}`, picture);
    // Fonts differ, so only the sizes are compared.
    assert.deepEqual(size(readFileSync(`${pictures}/${name}`)), size(picture), `${name}: UPDATE=1 make page takes it again`);
    await close();
    return name;
  };
  await open(urls.picture, { viewport: { width: 1216, height: 1392 } });
  await page.waitForSelector(".plot canvas");
  await settled();
  const names = [await take("report.png")];
  await open(urls.picture + "#/sample/11", { viewport: { width: 1216, height: 760 } });
  await page.waitForSelector(".flow [data-i]");
  await page.click(".reasoning summary");
  await page.hover(".flow .span.assistant [data-i] >> nth=12");
  names.push(await take("view.png"));
  assert.deepEqual(readdirSync(pictures).filter((f) => f.endsWith(".png")).sort(), names, "each picture is taken here");
});
