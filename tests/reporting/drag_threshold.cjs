// SPDX-License-Identifier: Apache-2.0
// Opens a report as a browser does and moves its threshold.
//
//   node drag_threshold.cjs REPORT PLACES
//
// PLACES is JSON: numbers from 0 to 1000, where the slider is put; or pairs
// ["drag", x], where the line is dragged to, x from 0 to 1 across the plot.
// Prints, as JSON, what the page says before the first and after each.
const fs = require("fs");
const { JSDOM } = require("jsdom");

const dom = new JSDOM(fs.readFileSync(process.argv[2], "utf-8"), {
  runScripts: "dangerously",
});
const { document, MouseEvent, Event } = dom.window;
const told = document.getElementById("threshold");
const plot = told.querySelector(".plot");
// What jsdom does not have: a layout, and the capture of pointers.
plot.getBoundingClientRect = () => ({ left: 100, width: 500 });
let captured = false;
plot.setPointerCapture = () => { captured = true; };
plot.hasPointerCapture = () => captured;

const text = (selector) => told.querySelector(selector).textContent;
const scores = (selector) =>
  [...told.querySelectorAll(selector + " .shown")].map((shown) =>
    Number(shown.title.replace("score ", "")));
const said = () => ({
  value: Number(text(".value")),
  counts: text(".counts"),
  accepted: scores(".accepted"),
  rejected: scores(".rejected"),
  line: parseFloat(told.querySelector(".line").style.left),
});

function move(place) {
  if (typeof place === "number") {
    const slider = told.querySelector("input");
    slider.value = place;
    slider.dispatchEvent(new Event("input"));
    return said();
  }
  const at = (type, x) =>
    plot.dispatchEvent(new MouseEvent(type, { clientX: 100 + 500 * x }));
  at("pointerdown", 0.5);
  at("pointermove", place[1]);
  captured = false;
  at("pointermove", 0.1);  // Not dragged any more.
  return said();
}

const before = said();
const after = JSON.parse(process.argv[3]).map(move);
console.log(JSON.stringify([before, ...after]));
