// The threshold in the histogram: a line to drag, counts, pictures beside it.
(function () {
  const told = document.getElementById("threshold");
  const data = JSON.parse(document.getElementById("scores").textContent);
  const plot = told.querySelector(".plot");
  const line = told.querySelector(".line");
  const slider = told.querySelector("input");
  const axis = data.axis;
  const PICTURES = 6;
  const TILE = 48;

  const onAxis = (score) =>
    axis.logarithmic ? Math.log(Math.max(score, axis.low)) : score;
  const low = onAxis(axis.low);
  const width = onAxis(axis.high) - low;

  // The place of a score on the axis, 0 to 1, and the other way round.
  function placeOf(score) {
    return Math.min(1, Math.max(0, (onAxis(score) - low) / width));
  }
  function scoreAt(place) {
    const value = low + place * width;
    return axis.logarithmic ? Math.exp(value) : value;
  }

  // How many of ascending scores are accepted.
  function accepted(scores, theta) {
    let from = 0, to = scores.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (scores[middle] <= theta) from = middle + 1; else to = middle;
    }
    return from;
  }

  function share(part, whole) {
    return whole ? (100 * part / whole).toFixed(1) + " %" : "–";
  }

  function picture(tile) {
    const shown = document.createElement("div");
    shown.className = "shown";
    const image = document.createElement("div");
    image.className = "tile-picture" + (tile.known ? "" : " unknown");
    const column = tile.index % data.columns;
    const row = Math.floor(tile.index / data.columns);
    image.style.backgroundSize = TILE * data.columns + "px auto";
    image.style.backgroundPosition =
      -TILE * column + "px " + -TILE * row + "px";
    shown.append(image, tile.truth + " → " + tile.answer);
    shown.title = "score " + tile.score;
    return shown;
  }

  const tiles = data.tiles
    .map((tile, index) => ({ ...tile, index }))
    .sort((one, other) => one.score - other.score);

  function show(theta) {
    const place = placeOf(theta);
    const left = axis.left + place * (axis.right - axis.left);
    line.style.left = 100 * left + "%";
    slider.value = 1000 * place;
    told.querySelector(".value").textContent = Number(theta.toPrecision(4));
    const known = accepted(data.known, theta);
    const right = accepted(data.right, theta);
    const unknown = accepted(data.unknown, theta);
    let text = "Known: " + known + " of " + data.known.length + " accepted (" +
      share(known, data.known.length) + "), " + (data.known.length - known) +
      " rejected; of the accepted ones " + share(right, known) +
      " are given their own class.";
    if (data.unknown.length) {
      const rejected = data.unknown.length - unknown;
      text += " Unknown: " + rejected + " of " + data.unknown.length +
        " rejected (" + share(rejected, data.unknown.length) + "), " +
        unknown + " accepted.";
    }
    told.querySelector(".counts").textContent = text;
    const border = accepted(tiles.map((tile) => tile.score), theta);
    const below = tiles.slice(Math.max(0, border - PICTURES), border);
    const above = tiles.slice(border, border + PICTURES);
    told.querySelector(".accepted").replaceChildren(...below.map(picture));
    told.querySelector(".rejected").replaceChildren(...above.map(picture));
  }

  function dragged(event) {
    const box = plot.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width - axis.left) /
      (axis.right - axis.left);
    show(scoreAt(Math.min(1, Math.max(0, place))));
  }

  line.style.top = 100 * axis.top + "%";
  line.style.height = 100 * (axis.bottom - axis.top) + "%";
  plot.addEventListener("pointerdown", (event) => {
    plot.setPointerCapture(event.pointerId);
    dragged(event);
  });
  plot.addEventListener("pointermove", (event) => {
    if (plot.hasPointerCapture(event.pointerId)) dragged(event);
  });
  slider.addEventListener("input", () => show(scoreAt(slider.value / 1000)));
  show(data.theta);
})();
