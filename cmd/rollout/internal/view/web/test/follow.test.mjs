// Tests the page of a run that is being collected. The test controls the collection: PAGE_CONTROL is
// the address of a server in TestBrowser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { forget, open, page, press, urls, waitForStatus } from "./helpers.mjs";

const collect = async (step) => {
  const reply = await fetch(process.env.PAGE_CONTROL + step, { method: "POST" });
  assert.equal(reply.status, 200, await reply.text());
};

// shown returns what the user sees of the list: the first whole row, its place, and the selected row.
const shown = () => page.evaluate(() => {
  const top = document.querySelector(".rows .head").getBoundingClientRect().bottom;
  const name = (row) => row?.querySelector("a").href;
  const first = [...document.querySelectorAll(".part .line")].find((row) => row.getBoundingClientRect().top >= top);
  return { first: name(first), y: Math.round(first.getBoundingClientRect().top), selected: name(document.querySelector("[aria-selected=true]")) };
});

test("a run that is being collected is followed", async () => {
  // The list keeps its place and its selection, although new samples are before and after them.
  await open(urls.growing + "#/samples?sort=reward&desc=1");
  await waitForStatus("60 samples");
  await press(..."j".repeat(30));
  await page.evaluate(() => (document.querySelector(".rows").scrollTop += 117));
  await page.waitForFunction(() => document.querySelector(".part .line:last-child").getBoundingClientRect().bottom > innerHeight); // the rows are drawn
  const before = await shown();
  assert.ok(before.selected, "the selected row is visible");
  const places = () => page.evaluate(() => document.querySelector(".rows").scrollTop);
  const scrolled = await places();
  await collect("samples");
  await waitForStatus("100 samples");
  await page.waitForFunction((n) => document.querySelector(".rows").scrollTop !== n, scrolled);
  assert.deepEqual(await shown(), before);

  // Samples that are only in the write-ahead log are counted.
  await collect("wait");
  await page.waitForSelector("text=Not listed: 3 samples in the write-ahead log.");

  // A search finds new samples, and the samples that it had found stay.
  await page.fill("#filter-q", "sparrow");
  await waitForStatus("1 of 100 samples");
  await collect("commit");
  await waitForStatus("4 of 103 samples");
  await page.waitForSelector("text=Not listed", { state: "detached" });

  // A sample that had failed succeeds, on its own page.
  await press("Escape");
  await page.goto(urls.growing + "#/samples?status=timeout_total");
  await waitForStatus("1 of");
  await press("Enter");
  await page.waitForSelector("text=The whole sample failed");
  await collect("retry");
  await page.waitForSelector(".conversation .assistant");
  assert.equal(await page.locator("text=The whole sample failed").count(), 0);

  // The state changes when the process ends, and the overview stays as it is.
  await press("g", "o");
  await page.waitForSelector(".badge >> text=running");
  await page.evaluate(() => scrollTo(0, 900));
  const y = await page.evaluate(() => scrollY);
  assert.ok(y > 0);
  await collect("end");
  await page.waitForSelector(".badge >> text=complete");
  assert.equal(await page.evaluate(() => scrollY), y);
  assert.match(await page.innerText(".tiles"), /committed\s+103/);

  // The page says that the program has ended.
  await collect("stop");
  await page.waitForSelector("[role=alert] >> text=rollout view does not answer");
  forget();
});
