// Hands the strokes of a drawing to Python after each of them: lists of points
// in a square of 100 x 100, y downwards.
const canvas = element.querySelector("canvas");
const pen = canvas.getContext("2d");
let strokes = [];

function clear() {
  strokes = [];
  pen.clearRect(0, 0, canvas.width, canvas.height);
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  return [
    (100 * (event.clientX - box.left)) / box.width,
    (100 * (event.clientY - box.top)) / box.height,
  ];
}

function drawTo(point) {
  const stroke = strokes.at(-1);
  const [x, y] = stroke.at(-1) ?? point;
  stroke.push(point);
  pen.lineWidth = canvas.width / 14;
  pen.lineCap = "round";
  pen.beginPath();
  pen.moveTo((x * canvas.width) / 100, (y * canvas.height) / 100);
  pen.lineTo(
    (point[0] * canvas.width) / 100, (point[1] * canvas.height) / 100);
  pen.stroke();
}

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  strokes.push([]);
  drawTo(place(event));
});
canvas.addEventListener("pointermove", (event) => {
  if (canvas.hasPointerCapture(event.pointerId)) drawTo(place(event));
});
canvas.addEventListener("lostpointercapture", () => {
  trigger("input", { strokes });
});
element.querySelector("button").addEventListener("click", () => {
  clear();
  trigger("input", { strokes });
});
