// Tests the page in a real browser. TestBrowser in package view makes the runs and sets the
// addresses: PAGE_SMALL and PAGE_MANY are served, PAGE_GROWING with --follow, PAGE_FILE is a file.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, afterEach, before, test } from "node:test";
import { chromium } from "playwright-core";

const { PAGE_SMALL: small, PAGE_FILE: file, PAGE_MANY: many, PAGE_GROWING: growing, ROLLOUT_BROWSER: executablePath, SCREENSHOTS: shots, PICTURES: pictures, PAGE_PICTURES: nice } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let browser;
let page;
let problems;
before(async () => {
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
});
after(() => browser.close());
afterEach(async () => {
  await page?.context().close();
  assert.deepEqual(problems, [], "errors, violations of the policy, or requests to other addresses");
});

// open opens a page. It collects errors of the page.
async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, bypassCSP: false, ...options });
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

const status = () => page.locator("main.samples [role=status]").innerText();
const waitForStatus = (want) => page.waitForFunction((w) => document.querySelector("main.samples [role=status]")?.innerText.startsWith(w), want);
const cells = (column) => page.$$eval(".part .line", (rows, c) => rows.map((r) => r.children[c].innerText), column);

async function samples(url = small) {
  await open(url + "#/samples");
  await page.waitForSelector(".part .line");
}

test("the overview shows the report", async () => {
  await open(small);
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
});

test("the cells of a sample are in one line, below their titles", async () => {
  for (const width of [375, 1400, 2200]) {
    await open(small + "#/samples", { viewport: { width, height: 900 } });
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
    await page.context().close();
  }
  page = undefined;
});

test("sorting", async () => {
  await samples();
  await page.click("role=columnheader[name=/tokens/] >> button");
  const up = (await cells(5)).map((t) => Number(t.replaceAll(",", "")));
  assert.deepEqual(up, [...up].sort((a, b) => a - b));
  await page.click("role=columnheader[name=/tokens/] >> button");
  await page.waitForSelector("[role=columnheader][aria-sort=descending]");
  assert.match((await cells(5))[0], /^\d+,\d+$/, "the longest sample is first");
});

test("hover shows what is known about a token", async () => {
  await open(small + "#/sample/0");
  await page.waitForSelector(".flow [data-i]");
  await page.hover(".flow .span.assistant [data-i] >> nth=2");
  const text = await page.innerText(".tip");
  for (const want of [/^token/m, /^id/m, /text\s+"/, /log-probability\s+-\d/, /loss mask\s+1, trained/, /span\s+1, assistant/, /call\s+0 of this row/, /finish reason\s+stop/, /step\s+step-1/, /policy version\s+3/]) {
    assert.match(text.replaceAll("\n", " ").replace(/^/, ""), new RegExp(want.source.replace("^", ""), ""));
  }
  await page.hover(".flow .span.prompt [data-i] >> nth=0");
  assert.match(await page.innerText(".tip"), /0, context/);
});

test("the arrows move over tokens", async () => {
  await open(small + "#/sample/0");
  await page.waitForSelector(".flow [data-i]");
  await page.focus(".flow");
  for (let i = 0; i < 4; i++) await page.keyboard.press("ArrowRight");
  assert.match((await page.innerText(".tip")).replace(/\s+/g, " "), /^token 3 of/);
  await page.keyboard.press("ArrowLeft");
  assert.match((await page.innerText(".tip")).replace(/\s+/g, " "), /^token 2 of/);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".tip").count(), 0);
  assert.match(page.url(), /sample\/0/);
});

test("the conversation has blocks, and reasoning is folded", async () => {
  await open(small + "#/sample/0");
  await page.waitForSelector(".conversation .block");
  const kinds = await page.$$eval(".conversation .block", (all) => all.map((b) => b.className.split(" ")[1]));
  assert.deepEqual(kinds, ["system", "user", "reasoning", "call", "return", "assistant"]);
  assert.equal(await page.locator(".conversation details[open]").count(), 0);
  assert.match(await page.innerText(".conversation .call"), /tool call\s+add\s+\{\s+"a": 2/);
  assert.match(await page.innerText(".conversation .assistant"), /The answer is 0\./);
  assert.equal(await page.locator(".conversation .mono").first().innerText().then((t) => t.includes("<tool_call>")), false);
});

test("a fork is shown side by side with the point of divergence", async () => {
  await open(small + "#/sample/9");
  await page.waitForSelector(".tabs");
  await page.click(".tabs >> text=Row 1");
  assert.match(await page.innerText("section[aria-label=Divergence]"), /diverged from the previous row at token [\d,]+: in the text between two outputs/);
  assert.equal(await page.locator(".pair .fork").count(), 2);
  const [left, right] = await page.$$eval(".pair .flow", (all) => all.map((f) => {
    const mark = f.querySelector(".fork");
    return [Number(mark.nextElementSibling.dataset.i), mark.nextElementSibling.innerText];
  }));
  assert.equal(left[0], right[0]);
  assert.notEqual(left[1], right[1]);
  const said = Number(/The rows diverge at token ([\d,]+)/.exec(await page.innerText(".beside"))[1].replaceAll(",", ""));
  assert.equal(said, left[0]);
  assert.match((await page.innerText(".facts")).replace(/\s+/g, " "), /server runs run-/);
  assert.match(await page.innerText("pre"), /"correct": 0.5/);
  await page.click(".tabs label");
  await page.waitForSelector(".conversation");
});

test("two samples of a group are aligned by their common prefix", async () => {
  await open(small + "#/sample/0");
  await page.waitForSelector(".group");
  await page.click("[aria-label='compare with sample 2']");
  await page.waitForSelector(".beside");
  assert.match(page.url(), /compare\/0\/2/);
  assert.match(await page.innerText(".beside"), /The first [\d,]+ tokens are equal/);
  const shown = await page.locator(".pair .flow >> nth=0 >> [data-i]").count();
  await page.click("text=Show the equal tokens");
  await page.waitForFunction((n) => document.querySelector(".pair .flow").querySelectorAll("[data-i]").length > n, shown);
});

test("the keyboard is enough", async () => {
  await open(small);
  const press = async (...keys) => {
    for (const k of keys) await page.keyboard.press(k);
  };
  await press("g", "s");
  await page.waitForSelector(".part .line");
  await press("j", "j", "k");
  assert.equal(await page.getAttribute("#row1", "aria-selected"), "true");
  await press("Enter");
  await page.waitForSelector(".flow [data-i]");
  assert.match(page.url(), /sample\/1$/);
  await press("j");
  await page.waitForURL(/sample\/2$/);
  await press("[");
  await page.waitForURL(/sample\/1$/);
  await page.waitForSelector(".flow [data-i]");
  await press("c");
  await page.waitForURL(/compare\/1\/2$/);
  await page.waitForSelector(".beside");
  await press("Escape");
  await page.waitForURL(/sample\/1$/);
  await press("g", "s");
  await page.waitForSelector(".part .line");
  await press("/");
  await page.keyboard.type("needle");
  await waitForStatus("1 of 96");
  await press("Escape");
  await press("Shift+?");
  await page.waitForSelector("dialog[open]");
  await press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  await press("g", "o");
  await page.waitForSelector(".tiles");
});

test("hostile text does nothing", async () => {
  for (const path of ["", "#/samples?task=script", "#/sample/80", "#/sample/81", "#/compare/81/82"]) {
    for (const url of [small, file]) {
      await open(url + path);
      await page.waitForFunction(() => !document.querySelector("main [role=status]")?.innerText.startsWith("Reading"));
      assert.ok(!(await page.title()).includes("pwned"));
      assert.equal(await page.locator("main script, main img, main style, main iframe").count(), 0);
      const text = await page.innerText("body");
      assert.ok(!/[\u202a-\u202e\u200b\u001b]/.test(text), "a hidden character on " + path);
      if (path) assert.ok(text.includes("<script>"), "the text is shown on " + path);
      await page.context().close();
    }
  }
  page = undefined;
});

test("the file has the same pages", async () => {
  await open(file);
  await page.click("nav >> text=Samples");
  await page.waitForSelector(".part .line");
  await page.fill("#filter-q", "needle in");
  await waitForStatus("1 of 96");
  await page.click(".part .line");
  await page.waitForSelector(".flow [data-i]");
  assert.match(await page.innerText(".conversation"), /needle in this answer/);
});

test("a run that is collected is followed", async () => {
  await open(growing);
  assert.match(await page.innerText("nav"), /following/);
});

test("phone width needs no sideways scrolling", async () => {
  for (const path of ["", "#/samples", "#/sample/9", "#/compare/0/1"]) {
    await open(small + path, { viewport: { width: 375, height: 740 }, hasTouch: true, isMobile: true });
    await page.waitForTimeout(200);
    const [have, need] = await page.evaluate(() => [innerWidth, document.documentElement.scrollWidth]);
    assert.ok(need <= have, `${path}: ${need} pixels, but the phone has ${have}`);
    await page.context().close();
  }
  page = undefined;
});

test("axe has no serious finding", async () => {
  for (const colorScheme of ["light", "dark"]) {
    for (const path of ["", "#/samples", "#/sample/9", "#/sample/23", "#/sample/80", "#/compare/0/1"]) {
      await open(small + path, { colorScheme });
      await page.waitForFunction(() => !document.querySelector("main [role=status]")?.innerText.startsWith("Reading"));
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const bad = violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => `${colorScheme} ${path} ${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).join(" | ")}`);
      assert.deepEqual(bad, []);
      await page.context().close();
    }
  }
  page = undefined;
});

test("a page prints in light colors", async () => {
  await open(small, { colorScheme: "dark" });
  await page.emulateMedia({ media: "print" });
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
  const pdf = await page.pdf({ format: "A4" });
  assert.ok(pdf.length > 20_000);
});

test("100,000 samples: first paint, filters and scrolling", async () => {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
  page = await context.newPage();
  problems = [];
  const began = performance.now();
  await page.goto(many + "#/samples");
  await page.waitForSelector(".part .line");
  const rows = performance.now() - began;
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
  console.log(`first paint after ${paint.toFixed(0)} ms, rows after ${rows.toFixed(0)} ms`);
  assert.ok(paint < 2000 && rows < 2000, `first paint after ${paint} ms, rows after ${rows} ms`);
  const scroll = () => page.evaluate(async () => {
    const box = document.querySelector(".rows");
    const frames = [];
    const began = performance.now();
    await new Promise((done) => {
      const step = (now) => {
        frames.push(now);
        box.scrollTop += 400 + 40 * (frames.length % 7);
        if (now - began < 1500) requestAnimationFrame(step);
        else done();
      };
      requestAnimationFrame(step);
    });
    return (1000 * (frames.length - 1)) / (frames.at(-1) - frames[0]);
  });
  // The frame rate is the best of several tries, because other processes run too. If the machine is
  // too busy for any try, the processor time that the page needs for a frame decides.
  const session = await context.newCDPSession(page);
  await session.send("Performance.enable");
  const spent = async () => (await session.send("Performance.getMetrics")).metrics.find((m) => m.name === "ThreadTime").value * 1000;
  let rate = 0;
  let cost = Infinity;
  for (let tries = 0; tries < 5 && rate < 50; tries++) {
    const before = await spent();
    const now = await scroll();
    rate = Math.max(rate, now);
    cost = Math.min(cost, (await spent() - before) / (1.5 * now));
  }
  console.log(`${rate.toFixed(1)} frames/s, ${cost.toFixed(1)} ms of processor time for a frame`);
  assert.ok(rate >= 50 || cost <= 12, `${rate} frames/s, ${cost} ms for a frame`);
  const filtered = performance.now();
  await page.fill("#filter-min", "1");
  await page.waitForFunction(() => /^[\d,]+ of 100,000/.test(document.querySelector("main.samples [role=status]").innerText));
  console.log(`a filter after ${(performance.now() - filtered).toFixed(0)} ms`);
  await page.keyboard.press("Escape");
  await page.keyboard.press("End");
  await page.waitForFunction(() => /task-0124\d\d/.test(document.querySelector("[aria-selected=true]")?.innerText ?? ""));
});

test("screenshots", { skip: !shots }, async () => {
  for (const [name, options] of Object.entries({
    light: { colorScheme: "light" },
    dark: { colorScheme: "dark" },
    phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true },
    wide: { viewport: { width: 2200, height: 1200 } },
  })) {
    for (const [part, path] of Object.entries({ overview: "", samples: "#/samples", sample: "#/sample/0", fork: "#/sample/9?row=1", failed: "#/sample/23", hostile: "#/sample/81", compare: "#/compare/0/2" })) {
      await open(small + path, options);
      await page.waitForTimeout(300);
      if (part === "sample") await page.hover(".flow .span.assistant [data-i] >> nth=2");
      await page.screenshot({ path: `${shots}/${part}-${name}.png`, fullPage: part === "overview" });
      await page.context().close();
    }
  }
  page = undefined;
});

test("the pictures in the documentation", { skip: !pictures }, async () => {
  const viewport = { width: 1216, height: 760 };
  await open(nice, { viewport });
  const top = await page.locator("h2 >> text=Rewards").evaluate((e) => e.getBoundingClientRect().top);
  await page.setViewportSize({ width: 1216, height: Math.ceil(top) + 600 });
  await page.waitForTimeout(300);
  await page.screenshot({ path: `${pictures}/report.png` });
  await page.context().close();
  await open(nice + "#/sample/11", { viewport });
  await page.waitForSelector(".flow [data-i]");
  await page.click(".reasoning summary");
  await page.hover(".flow .span.assistant [data-i] >> nth=12");
  await page.screenshot({ path: `${pictures}/view.png` });
});
