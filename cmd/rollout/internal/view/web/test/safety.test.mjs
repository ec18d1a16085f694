// Tests hostile text, accessibility and print.
import assert from "node:assert/strict";
import { test } from "node:test";
import { axe, close, loaded, open, page, samples, urls } from "./helpers.mjs";

test("hostile text does nothing", async () => {
  for (const path of ["", "#/samples?task=script", "#/sample/80", "#/sample/81", "#/compare/81/82"]) {
    for (const url of [urls.small, urls.file]) {
      await open(url + path);
      await loaded();
      assert.ok(!(await page.title()).includes("pwned"));
      assert.equal(await page.locator("main script, main img, main style, main iframe").count(), 0);
      const text = await page.innerText("body");
      assert.ok(!/[\u202a-\u202e\u200b\u001b]/.test(text), "a hidden character on " + path);
      if (path) assert.ok(text.includes("<script>"), "the text is shown on " + path);
      await close();
    }
  }
});

test("axe has no serious finding", async () => {
  for (const colorScheme of ["light", "dark"]) {
    for (const path of ["", "#/samples", "#/sample/9", "#/sample/23", "#/sample/80", "#/compare/0/1"]) {
      await open(urls.small + path, { colorScheme });
      await loaded();
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const bad = violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => `${colorScheme} ${path} ${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).join(" | ")}`);
      assert.deepEqual(bad, []);
      await close();
    }
  }
});

test("a page prints in light colors", async () => {
  await open(urls.small, { colorScheme: "dark" });
  await page.emulateMedia({ media: "print" });
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
  const pdf = await page.pdf({ format: "A4" });
  assert.ok(pdf.length > 20_000);
});
