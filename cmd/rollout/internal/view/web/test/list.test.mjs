// Tests the overview and the list of samples.
import assert from "node:assert/strict";
import { test } from "node:test";
import { cells, close, loaded, open, page, samples, settled, status, urls, waitForStatus } from "./helpers.mjs";

test("the overview shows the report", async () => {
  await open(urls.small);
  const text = await page.innerText("main");
  for (const want of ["run1", "complete", "Coverage", "timeout_total", "Mean reward over time", "Tasks, hardest first", "all equal", "Rows by grade", "Slowest samples"]) {
    assert.ok(text.includes(want), want);
  }
  assert.ok(!text.includes("\u00b1"), "a standard deviation as an error bar");
  const titles = await page.$$eval("figcaption", (all) => all.map((f) => f.innerText));
  assert.ok(titles.length >= 4, titles.join());
  titles.forEach((t) => assert.match(t, /run1$/));
  assert.equal(await page.title(), "run1 \u2013 rollout");
  await page.click("text=timeout_total >> nth=0");
  await waitForStatus("1 of 96 samples");
});

test("the table of tasks shows more tasks on request", async () => {
  await open(urls.small);
  const rows = page.locator("table", { hasText: "mean sampled tokens" }).first().locator("tbody tr");
  await page.waitForSelector("text=The 20 hardest of 24 tasks");
  assert.equal(await rows.count(), 20);
  await page.click("text=Show 4 more tasks");
  assert.equal(await rows.count(), 24);
  await page.click("text=Show fewer tasks");
  assert.equal(await rows.count(), 20);
});

test("a fleet shows nothing that only the spools of its workers contain", async () => {
  await open(urls.fleet);
  const text = await page.innerText("main");
  for (const want of ["8 tasks in 2 partitions", "incomplete", "The logs are in the spools of the workers.", "Retries are unknown.", "rollout work", "does not support --retry-failed"]) assert.ok(text.includes(want), want);
  for (const wrong of ["The run has no logs", "write-ahead log", "duplicates dropped", "--resume", "undefined", "NaN"]) assert.ok(!text.includes(wrong), wrong);
});

test("every filter", async () => {
  await samples();
  assert.match(await status(), /^96 samples/);
  const set = async (name, value, want) => {
    await page.fill("#filter-" + name, value);
    await waitForStatus(want);
    await page.click("text=Clear filters");
    await waitForStatus("96 samples");
  };
  await set("task", "KM-002", "0 of");
  await set("task", "gsm8k-002", "4 of");
  await set("q", "needle in", "1 of");
  await set("q", "longer than 5m", "1 of");
  await set("min", "1", "16 of");
  await set("max", "0.4", "77 of");
  await set("short", "3000", "1 of");
  await set("long", "50", "2 of");
  for (const [name, value, want] of [["status", "max_steps", "1 of"], ["status", "timeout_total", "1 of"], ["grade", "unverified", "1 of"], ["flag", "reattached", "1 of"]]) {
    await page.selectOption("#filter-" + name, value);
    await waitForStatus(want);
    await page.click("text=Clear filters");
    await waitForStatus("96 samples");
  }
  // Filters combine, and they are in the URL.
  await page.fill("#filter-task", "gsm8k-00");
  await page.fill("#filter-min", "1");
  await page.waitForFunction(() => location.hash.includes("task=gsm8k-00") && location.hash.includes("min=1"));
  const before = await status();
  await page.reload();
  await page.waitForSelector(".part .line");
  assert.equal(await status(), before);
  // They stay when the user comes back from a sample.
  await page.click(".part .line");
  await page.waitForSelector(".flow [data-i]");
  await page.click("nav >> text=Samples");
  await page.waitForSelector(".part .line");
  assert.equal(await status(), before);
});

test("the cells of a sample are in one line, below their titles", async () => {
  for (const width of [375, 900, 1400, 2200]) {
    await open(urls.small + "#/samples", { viewport: { width, height: 900 } });
    await page.waitForSelector(".part .line");
    const found = await page.evaluate(() => {
      const boxes = (line) => [...line.children].map((c) => c.getBoundingClientRect()).filter((b) => b.width > 0);
      const [head, line] = [document.querySelector(".head"), document.querySelector(".part .line")];
      const row = line.getBoundingClientRect();
      return { titles: boxes(head).map((b) => b.left), cells: boxes(line).map((b) => b.left), inside: boxes(line).every((b) => b.top >= row.top - 1 && b.bottom <= row.bottom + 1) };
    });
    assert.ok(found.inside, `at ${width} pixels, cells are outside of their line`);
    assert.deepEqual(found.cells, found.titles);
    assert.equal(found.cells.length, width < 760 ? 5 : 11);
    await close();
  }
});

test("a row opens its sample, and a key opens it in another tab", async () => {
  await samples();
  const [tab] = await Promise.all([page.context().waitForEvent("page"), page.click(".part .line >> nth=2 >> a", { modifiers: ["ControlOrMeta"] })]);
  await tab.waitForURL(/sample\/2$/);
  assert.match(page.url(), /#\/samples/);
  await page.click(".part .line >> nth=3");
  assert.match(page.url(), /sample\/3$/);
});

test("on a phone, the ends of the names of tasks are visible", async () => {
  await open(urls.picture + "#/samples", { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  await page.waitForSelector(".part .line");
  const names = await page.$$eval(".part .line a", (all) => all.map((a) => ({ text: a.innerText, title: a.title, fits: a.parentNode.scrollWidth <= a.parentNode.clientWidth })));
  for (const { text, title, fits } of names) assert.ok(fits && text.slice(-3) === title.slice(-3), `${text} of ${title}`);
});

test("every column sorts in both directions", async () => {
  await samples();
  const parse = (t) => (/^[\d.,]+(\u00a0s)?$/.test(t) ? Number.parseFloat(t.replaceAll(",", "")) : t);
  const titles = await page.$$eval("[role=columnheader] button", (all) => all.map((b) => b.innerText));
  assert.equal(titles.length, 11);
  for (const [i, title] of titles.entries()) {
    await page.click(`[role=columnheader] button >> nth=${i}`);
    await page.waitForSelector(`[role=columnheader]:nth-child(${i + 1})[aria-sort=ascending]`);
    const up = (await cells(i)).map(parse);
    await page.click(`[role=columnheader] button >> nth=${i}`);
    await page.waitForSelector(`[role=columnheader]:nth-child(${i + 1})[aria-sort=descending]`);
    const down = (await cells(i)).map(parse);
    if (title === "flags") continue; // sets of flags have no order that a person expects
    const order = (a, b) => (a === b ? 0 : a < b ? -1 : 1);
    const valued = (list) => list.filter((v) => v !== "\u2013");
    assert.deepEqual(valued(up), [...valued(up)].sort(order), title);
    assert.deepEqual(valued(down), [...valued(down)].sort((a, b) => order(b, a)), title);
    assert.ok(order(down[0], up[0]) >= 0, `${title}: ${down[0]} is first in descending order`);
  }
});

test("the file has the same pages", async () => {
  await open(urls.file);
  await page.click("nav >> text=Samples");
  await page.waitForSelector(".part .line");
  await page.fill("#filter-q", "needle in");
  await waitForStatus("1 of 96");
  await page.click(".part .line");
  await page.waitForSelector(".flow [data-i]");
  assert.match(await page.innerText(".conversation"), /needle in this answer/);
});

test("phone width needs no sideways scrolling", async () => {
  for (const path of ["", "#/samples", "#/sample/9", "#/compare/0/1"]) {
    await open(urls.small + path, { viewport: { width: 375, height: 740 }, hasTouch: true, isMobile: true });
    await loaded();
    await settled();
    const [have, need] = await page.evaluate(() => [innerWidth, document.documentElement.scrollWidth]);
    assert.ok(need <= have, `${path}: ${need} pixels, but the phone has ${have}`);
    await close();
  }
});
