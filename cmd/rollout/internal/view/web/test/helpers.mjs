// Opens the page in a real browser. TestBrowser in package view makes the runs and sets their
// addresses in the environment.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, afterEach, before } from "node:test";
import { chromium } from "playwright-core";

const { env } = process;

// urls are the addresses of the runs. A run is served, except file, which is a page in a file.
export const urls = { small: env.PAGE_SMALL, file: env.PAGE_FILE, many: env.PAGE_MANY, growing: env.PAGE_GROWING, fleet: env.PAGE_FLEET, picture: env.PAGE_PICTURES };

// axe is the source of axe-core.
export const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// browser is the browser of all tests in a file, and page is the page that the last call of open opened.
export let browser;
export let page;
let problems;
before(async () => {
  browser = await chromium.launch({ executablePath: env.ROLLOUT_BROWSER, args: ["--no-sandbox", "--disable-gpu"] });
});
after(() => browser.close());
afterEach(async () => {
  await close();
  assert.deepEqual(problems, [], "errors, violations of the policy, or requests to other addresses");
});

// open opens a page, and collects its errors.
export async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  page = await context.newPage();
  problems = [];
  page.on("pageerror", (e) => problems.push(String(e)));
  page.on("console", (m) => m.type() === "error" && problems.push(m.text()));
  page.on("dialog", (d) => (problems.push("a dialog: " + d.message()), d.dismiss()));
  const own = new URL(url).origin;
  page.on("request", (r) => new URL(r.url()).origin === own || problems.push("a request to " + r.url()));
  await page.goto(url);
  await page.waitForSelector("main h1", { state: "attached" });
  return page;
}

// forget removes the errors so far, which the test has expected.
export const forget = () => (problems = []);

// close closes the page.
export async function close() {
  await page?.context().close();
  page = undefined;
}

// loaded waits until the page has its data.
export const loaded = () => page.waitForFunction(() => !document.querySelector("main [role=status]")?.innerText.startsWith("Reading"));

// settled waits until charts and lists are drawn. They know their sizes only then.
export const settled = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done)))));

// press presses keys, one after the other.
export const press = async (...keys) => {
  for (const k of keys) await page.keyboard.press(k);
};

// samples opens the list of samples.
export async function samples(url = urls.small) {
  await open(url + "#/samples");
  await page.waitForSelector(".part .line");
}
// status returns the line above the list, and waitForStatus waits until it begins with a text.
export const status = () => page.locator("main.samples [role=status]").innerText();
export const waitForStatus = (want) => page.waitForFunction((w) => document.querySelector("main.samples [role=status]")?.innerText.startsWith(w), want);
// cells returns the texts of a column of the list.
export const cells = (column) => page.$$eval(".part .line", (rows, c) => rows.map((r) => r.children[c].innerText), column);
