// Takes pictures of all pages into the folder SCREENSHOTS, and the pictures of the documentation into the
// folder PICTURES.
import { test } from "node:test";
import { close, loaded, open, page, urls } from "./helpers.mjs";

const { SCREENSHOTS: shots, PICTURES: pictures } = process.env;

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
      await page.waitForTimeout(200); // charts and lists are drawn when their size is known
      if (part === "sample") await page.hover(".flow .span.assistant [data-i] >> nth=2");
      await page.screenshot({ path: `${shots}/${part}-${name}.png`, fullPage: part === "overview" });
      await close();
    }
  }
});

test("the pictures in the documentation", { skip: !pictures }, async () => {
  const viewport = { width: 1216, height: 760 };
  await open(urls.picture, { viewport });
  const top = await page.locator("h2 >> text=Rewards").evaluate((e) => e.getBoundingClientRect().top);
  await page.setViewportSize({ width: 1216, height: Math.ceil(top) + 600 });
  await page.waitForTimeout(300); // the charts are drawn again
  await page.screenshot({ path: `${pictures}/report.png` });
  await close();
  await open(urls.picture + "#/sample/11", { viewport });
  await page.waitForSelector(".flow [data-i]");
  await page.click(".reasoning summary");
  await page.hover(".flow .span.assistant [data-i] >> nth=12");
  await page.screenshot({ path: `${pictures}/view.png` });
});
