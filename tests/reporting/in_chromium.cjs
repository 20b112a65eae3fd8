// SPDX-License-Identifier: Apache-2.0
// Opens a page in Chromium, acts as its reader does, and prints, as JSON, what
// the page then says.
//
//   node in_chromium.cjs PAGE OPTIONS
//
// OPTIONS is JSON: `width` of the window, `scheme` ("light" or "dark"),
// `media` ("screen" or "print"), `script` (false: the page's scripts are off),
// `canCopy` (whether the browser lets the page write to the clipboard), `picture` (a PNG file of the
// page to write) and `moves`: a number from 0 to 1000, where the slider is put;
// ["drag", x], where the line is dragged to, x from 0 to 1 across the plot;
// ["press", key] on the slider; or ["click", selector].
const path = require("path");
const puppeteer = require("puppeteer-core");

const options = { width: 1200, scheme: "light", media: "screen", script: true,
                  canCopy: true, moves: [], ...JSON.parse(process.argv[3] || "{}") };

// What the part with the threshold says; runs in the page.
function said() {
  const root = document.getElementById("threshold");
  const text = (selector) => root.querySelector(selector).textContent;
  const all = (selector) => [...root.querySelectorAll(selector)];
  const placeOf = (name, kind) => {
    const plot = root.querySelector(`.plot[data-name="${name}"]`);
    if (!plot) return null;
    const style = plot.querySelector(kind).style;
    return [parseFloat(style.left), parseFloat(style.top)];
  };
  return {
    value: Number(text("output")),
    own: text(".own"),
    commandIsShown: root.querySelector(".command").offsetParent !== null,
    copied: text(".copied"),
    selected: String(getSelection()),
    clipboard: window.written,
    spoken: root.querySelector("input").getAttribute("aria-valuetext"),
    counts: text(".counts"),
    sentence: text(".sentence"),
    command: text(".command"),
    tiles: all(".tile b").map((tile) => tile.textContent),
    answers: all(".answers tbody tr").map((row) =>
      [...row.querySelectorAll("td")].map((cell) => cell.textContent)),
    accepted: all(".accepted .picture").map((p) => p.title),
    rejected: all(".rejected .picture").map((p) => p.title),
    alts: all(".cut").map((cut) =>
      cut.getAttribute("role") + ": " + cut.getAttribute("aria-label")),
    histogram: placeOf("histogram", ".line"),
    roc: placeOf("roc", ".point"),
    oscr: placeOf("oscr", ".point"),
  };
}

async function move(page, step) {
  if (typeof step === "number") {
    await page.$eval("#threshold-slider", (slider, value) => {
      slider.value = value;
      slider.dispatchEvent(new Event("input"));
    }, step);
    return;
  }
  const [kind, value] = step;
  if (kind === "press") {
    await page.focus("#threshold-slider");
    await page.keyboard.press(value);
  } else if (kind === "click") {
    await page.click(value);
    await new Promise((done) => setTimeout(done, 100));
  } else {
    const plot = await page.$(".drag");
    await plot.scrollIntoView();
    const box = await plot.boundingBox();
    const y = box.y + box.height / 2;
    await page.mouse.move(box.x + box.width / 2, y);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * value, y);
    await page.mouse.up();
    await page.mouse.move(box.x + 1, y);  // Not dragged any more.
  }
}

(async () => {
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => {
    if (/^https?:/.test(request.url())) errors.push(request.url());
  });
  // Stands for the clipboard, which belongs to the machine.
  await page.evaluateOnNewDocument((canCopy) => {
    Object.defineProperty(navigator, "clipboard", { value: {
      writeText: async (text) => {
        if (!canCopy) throw new Error("not allowed");
        window.written = text;
      } } });
  }, options.canCopy);
  await page.setViewport({ width: options.width, height: 900 });
  // Both at once: puppeteer's functions for each undo the other.
  await (await page.createCDPSession()).send("Emulation.setEmulatedMedia", {
    media: options.media,
    features: [{ name: "prefers-color-scheme", value: options.scheme }],
  });
  await page.setJavaScriptEnabled(options.script);
  await page.goto("file://" + path.resolve(process.argv[2]));
  const found = { states: [], errors };
  const followsThreshold = options.script && await page.$("#threshold");
  if (followsThreshold) found.states.push(await page.evaluate(said));
  for (const step of options.moves) {
    await move(page, step);
    found.states.push(await page.evaluate(said));
  }
  found.text = await page.$eval("body", (body) => body.innerText);
  found.isShown = Object.fromEntries(await page.evaluate(() =>
    ["button", "#threshold-slider", ".tiles", ".answers", ".figures img"].map((selector) =>
      [selector, [...document.querySelectorAll(selector)].some((one) =>
        one.offsetParent !== null)])));
  found.isTooWide = await page.evaluate(() =>
    document.documentElement.scrollWidth > window.innerWidth);
  if (options.script) {
    await page.addScriptTag({ path: require.resolve("axe-core") });
    const axe = await page.evaluate(() => window.axe.run());
    found.violations = axe.violations.map((one) =>
      one.id + ": " + one.nodes.map((node) => node.html).join(" | "));
  }
  if (options.picture) {
    await page.screenshot({ path: options.picture, fullPage: true });
  }
  await browser.close();
  console.log(JSON.stringify(found));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
