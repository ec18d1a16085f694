// Tests the page of a sample, the comparison, and the keyboard.
import assert from "node:assert/strict";
import { test } from "node:test";
import { open, page, press, samples, urls, waitForStatus } from "./helpers.mjs";

test("hover shows what is known about a token", async () => {
  await open(urls.small + "#/sample/0");
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
  await open(urls.small + "#/sample/0");
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
  await open(urls.small + "#/sample/0");
  await page.waitForSelector(".conversation .block");
  const kinds = await page.$$eval(".conversation .block", (all) => all.map((b) => b.className.split(" ")[1]));
  assert.deepEqual(kinds, ["system", "user", "reasoning", "call", "return", "assistant"]);
  assert.equal(await page.locator(".conversation details[open]").count(), 0);
  assert.match(await page.innerText(".conversation .call"), /tool call\s+add\s+\{\s+"a": 2/);
  assert.match(await page.innerText(".conversation .assistant"), /The answer is 0\./);
  assert.equal(await page.locator(".conversation .mono").first().innerText().then((t) => t.includes("<tool_call>")), false);
});

test("a fork is shown side by side with the point of divergence", async () => {
  await open(urls.small + "#/sample/9");
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
  await open(urls.small + "#/sample/0");
  await page.waitForSelector(".group");
  await page.click("[aria-label='compare with sample 2']");
  await page.waitForSelector(".beside");
  assert.match(page.url(), /compare\/0\/2/);
  assert.match(await page.innerText(".beside"), /The first [\d,]+ tokens are equal/);
  const shown = await page.locator(".pair .flow >> nth=0 >> [data-i]").count();
  await page.click("text=Show the equal tokens");
  await page.waitForFunction((n) => document.querySelector(".pair .flow").querySelectorAll("[data-i]").length > n, shown);
});

// All keys of the list of keys, without a pause in between: no key goes to the page before.
test("the keyboard is enough", async () => {
  await open(urls.small);
  const selected = () => page.locator("[aria-selected=true]").getAttribute("id");
  await press("g", "s");
  await page.waitForSelector(".part .line");
  await press("j", "j", "k");
  assert.equal(await selected(), "row1");
  await press("ArrowDown", "PageDown");
  assert.equal(await selected(), "row17");
  await press("PageUp", "ArrowUp", "End");
  assert.equal(await selected(), "row95");
  assert.ok(await page.locator("#row95").isVisible());
  await press("Home", "j", "Enter");
  await page.waitForURL(/sample\/1$/);
  await press("j", "j", "k");
  await page.waitForURL(/sample\/2$/);
  await press("]", "[", "[");
  await page.waitForURL(/sample\/1$/);
  await page.waitForSelector(".flow [data-i]");
  await press("c");
  await page.waitForURL(/compare\/1\/2$/);
  await press("x");
  await page.waitForURL(/compare\/2\/1$/);
  await page.waitForSelector(".beside");
  await press("Escape");
  await page.waitForURL(/compare\/1\/2$/);
  await press("g", "s");
  await page.waitForSelector(".part .line");
  assert.equal(await selected(), "row2", "the cursor is at the sample that was shown last");
  await press("/");
  await page.keyboard.type("needle");
  await waitForStatus("1 of 96");
  await press("Escape", "Shift+?");
  await page.waitForSelector("dialog[open]");
  await press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  await press("g", "o");
  await page.waitForSelector(".tiles");
});
