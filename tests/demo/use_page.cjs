// SPDX-License-Identifier: Apache-2.0
// Uses the page of `cac-demo` as a person does, in Chromium.
//
//   node use_page.cjs CHROMIUM ADDRESS ORDERS
//
// ORDERS is JSON, a list of: {"draw": [[[x, y], ...], ...]}, strokes in a square
// of 100 x 100; {"slide": place}, from 0 to 1; {"choose": [kind, number]}, an
// example; {"upload": [path, ...]}; {"enroll": name}, the largest group of what was
// rejected; {"undo": true}. Prints, as JSON, what the page says after each, the
// hosts that were asked, and what axe finds wrong at the end with the parts of
// the page that are ours (the rest is Gradio's), on light and on dark ground.
const fs = require("fs");
const puppeteer = require("puppeteer-core");

const [chromium, address, orders] = process.argv.slice(2);
const hosts = new Set();

// Acts, and waits until the answer is another one and stays so.
async function said(page, act, id = "answer") {
  const read = () => page.$eval("#" + id, (answer) => answer.innerHTML);
  const before = await read();
  await act();
  const start = Date.now();
  let last = before, since = start;
  while (last === before || Date.now() - since < 800) {
    if (Date.now() - start > 20000) throw new Error("No answer came.");
    await new Promise((resolve) => setTimeout(resolve, 50));
    const now = await read();
    if (now !== last) [last, since] = [now, Date.now()];
  }
  const texts = await page.evaluate(() =>
    ["answer", "nearest", "neighbours", "version", "groups", "said"].map((id) =>
      [id, document.getElementById(id)?.innerText.trim() ?? ""]));
  return Object.fromEntries(texts);
}

async function tab(page, name) {
  const [button] = await page.$$(`xpath/.//button[@role="tab"][contains(., "${name}")]`);
  await button.click();
  await new Promise((resolve) => setTimeout(resolve, 300));
}

async function draw(page, strokes) {
  const canvas = await page.waitForSelector("#drawing canvas", { visible: true });
  await canvas.scrollIntoView();
  const box = await canvas.boundingBox();
  for (const stroke of strokes) {
    const points = stroke.map(([x, y]) =>
      [box.x + (box.width * x) / 100, box.y + (box.height * y) / 100]);
    await page.mouse.move(...points[0]);
    await page.mouse.down();
    for (const point of points) await page.mouse.move(...point, { steps: 3 });
    await page.mouse.up();
  }
}

async function slide(page, place) {
  await page.$eval("#threshold input[type=range]", (input, place) => {
    input.value = place * Number(input.max);
    input.dispatchEvent(new Event("input", { bubbles: true }));
    input.dispatchEvent(new Event("pointerup", { bubbles: true }));
  }, place);
}

async function main() {
  const browser = await puppeteer.launch({
    executablePath: chromium,
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  try {
    const page = await browser.newPage();
    await page.setViewport({ width: 1300, height: 1200 });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.protocol.startsWith("http")) hosts.add(url.host);
    });
    page.on("pageerror", (error) => console.error(String(error)));
    await page.goto(address);
    await page.waitForSelector("#examples-unknown img");
    const found = [];
    for (const order of JSON.parse(fs.readFileSync(orders, "utf-8"))) {
      const [[kind, value]] = Object.entries(order);
      if (kind === "draw") {
        await said(page, () => page.click("#drawing button"));
        found.push(await said(page, () => draw(page, value)));
      } else if (kind === "slide") {
        found.push(await said(page, () => slide(page, value)));
      } else if (kind === "choose") {
        const images = await page.$$(`#examples-${value[0]} button img`);
        found.push(await said(page, () => images[value[1]].click()));
      } else if (kind === "upload") {
        await tab(page, "Photo");
        const id = value.length > 1 ? "photos" : "photo";
        const input = await page.$(`#${id} input[type=file]`);
        found.push(await said(page, () => input.uploadFile(...value)));
      } else if (kind === "enroll") {
        await tab(page, "What was rejected");
        await page.waitForSelector("#groups table");
        await page.type("#name textarea, #name input", value);
        found.push(await said(page, () => page.click("#enroll"), "said"));
      } else if (kind === "undo") {
        found.push(await said(page, () => page.click("#undo"), "said"));
      }
      if (process.env.SCREENSHOT)
        await page.screenshot({ path: `${process.env.SCREENSHOT}${found.length}.png`, fullPage: true });
    }
    await page.addScriptTag({ path: require.resolve("axe-core") });
    const violations = [];
    for (const isDark of [false, true]) {
      const axe = await page.evaluate(async (isDark) => {
        document.body.classList.toggle("dark", isDark);
        await new Promise((resolve) => setTimeout(resolve, 500));
        const include = ["#answer", "#nearest", "#drawing", "#rejected"].map((one) => [one]);
        return window.axe.run({ include });
      }, isDark);
      violations.push(...axe.violations.map((one) =>
        one.id + ": " + one.nodes.map((node) => node.html).join(" | ")));
    }
    console.log(JSON.stringify({ found, hosts: [...hosts], violations }));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
