// The threshold of a report: a line to drag, and all that follows from it.
(function () {
  const root = document.getElementById("threshold");
  const data = JSON.parse(document.getElementById("scores").textContent);
  const at = (selector) => root.querySelector(selector);
  const { axis, classes, unknown_classes: others } = data;
  const N = classes.length;
  const PICTURES = 6;
  const TILE = 64;
  const LARGEST_MATRIX = 30;

  // ---- from a threshold to numbers ----------------------------------------

  // Counts by true class (those of unknown classes after the N known ones) and
  // by answer (N: unknown).
  function answersAt(thresholds) {
    const counts = [...classes, ...others].map(() => Array(N + 1).fill(0));
    data.score.forEach((score, i) => {
      const answer = data.answer[i];
      counts[data.truth[i]][score <= thresholds[answer] ? answer : N] += 1;
    });
    return counts;
  }

  const sum = (values) => values.reduce((total, value) => total + value, 0);

  function summaryOf(counts) {
    const known = counts.slice(0, N), unknown = counts.slice(N);
    const accepted = (rows) => sum(rows.map((row) => sum(row.slice(0, N))));
    return {
      known: sum(known.map(sum)), unknown: sum(unknown.map(sum)),
      knownAccepted: accepted(known), unknownAccepted: accepted(unknown),
      right: sum(known.map((row, index) => row[index])),
    };
  }

  // Wilson's 95 % interval, as in the page's first sentence.
  function share(part, whole) {
    if (!whole) return "–";
    const z = 1.959964, p = part / whole, denominator = 1 + z * z / whole;
    const center = (p + z * z / (2 * whole)) / denominator;
    const half = z * Math.sqrt(p * (1 - p) / whole + z * z /
      (4 * whole * whole)) / denominator;
    const percent = (value) =>
      (100 * Math.min(1, Math.max(0, value))).toFixed(whole < 1000 ? 0 : 1);
    return percent(p) + " % [" + percent(center - half) + "-" +
      percent(center + half) + "]";
  }

  function sentenceOf(counts) {
    const taken = Array(N).fill(0);
    counts.forEach((row, truth) => row.slice(0, N).forEach((count, answer) => {
      if (truth !== answer) taken[answer] += count;
    }));
    const wrong = sum(taken), most = Math.max(...taken);
    if (!wrong) return "No input was accepted as a class that is not its own.";
    const answer = taken.indexOf(most);
    const column = counts.map((row, truth) =>
      truth === answer ? 0 : row[answer]);
    const truth = column.indexOf(Math.max(...column));
    return "Of " + wrong + " inputs accepted as a class that is not their " +
      "own, " + most + " are taken for " + classes[answer] +
      ", most often those of " + [...classes, ...others][truth] + " (" +
      column[truth] + ").";
  }

  // ---- the axis of the scores ---------------------------------------------

  const onAxis = (score) =>
    axis.logarithmic ? Math.log(Math.max(score, axis.low)) : score;
  const low = onAxis(axis.low), width = onAxis(axis.high) - low;
  const placeOf = (score) =>
    Math.min(1, Math.max(0, (onAxis(score) - low) / width));
  function scoreAt(place) {
    const value = low + Math.min(1, Math.max(0, place)) * width;
    return axis.logarithmic ? Math.exp(value) : value;
  }

  // ---- what is drawn ------------------------------------------------------

  const frames = {};
  root.querySelectorAll(".plot").forEach((plot) => {
    frames[plot.dataset.name] = { plot, ...JSON.parse(plot.dataset.axes) };
  });

  // x and y: shares of the axes' width and height.
  function put(name, x, y) {
    const { plot, left, right, top, bottom } = frames[name];
    const mark = plot.querySelector(".line, .point");
    mark.style.left = 100 * (left + x * (right - left)) + "%";
    mark.style.top = 100 * (bottom - y * (bottom - top)) + "%";
    mark.style.height = mark.className === "line" ?
      100 * (bottom - top) + "%" : "";
  }

  function putPoint(name, x, y) {
    if (!frames[name]) return;
    const part = (value, [from, to]) => (value - from) / (to - from);
    put(name, part(x, frames[name].x), part(y, frames[name].y));
  }

  function element(kind, text, className) {
    const made = document.createElement(kind);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function header(text, scope) {
    const cell = element("th", text);
    cell.scope = scope;
    return cell;
  }

  function rowOf(truth, counts) {
    const row = element("tr"), all = sum(counts);
    const name = truth < N ? classes[truth] : others[truth - N];
    row.append(header(name + " (" + all + ")", "row"));
    row.firstChild.className = truth < N ? "known" : "unknown";
    const isRight = (answer) => answer === (truth < N ? truth : N);
    let cells = counts.map((count, answer) => [count, isRight(answer)]);
    if (N > LARGEST_MATRIX) {
      const own = truth < N ? counts[truth] : 0;
      cells = [[own, true], [sum(counts.slice(0, N)) - own, false], cells[N]];
    }
    for (const [count, right] of cells) {
      const cell = element("td", count);
      // At most half covered: the text stays readable.
      const covered = all ? 50 * count / all : 0;
      cell.style.background = "color-mix(in srgb, var(--" +
        (right ? "known" : "unknown") + ") " + covered + "%, transparent)";
      row.append(cell);
    }
    const accepted = all - counts[N];
    row.append(element("td",
      all ? (100 * accepted / all).toFixed(0) + " %" : "–"));
    return row;
  }

  const answered = N > LARGEST_MATRIX ?
    ["own class", "another class"] : classes;
  const head = element("tr");
  head.append(...["true class", ...answered, "unknown", "accepted"]
    .map((name) => header(name, "col")));
  at(".answers thead").append(head);

  const short = (score) => String(Number(score.toPrecision(4)));

  function pictureOf(tile) {
    const shown = element("div", undefined, "picture");
    const cut = element("div", undefined,
      "cut" + (tile.known ? "" : " of-unknown"));
    const column = tile.index % data.columns;
    cut.style.backgroundSize = TILE * data.columns + "px auto";
    cut.style.backgroundPosition = -TILE * column + "px " +
      -TILE * Math.floor(tile.index / data.columns) + "px";
    const said = tile.truth + " → " + classes[tile.answer];
    cut.setAttribute("role", "img");
    cut.setAttribute("aria-label", "test image of " + tile.truth);
    const text = element("span", said, tile.known ? "known" : "unknown");
    // Without a sheet of pictures, inputs are no images.
    shown.append(...(data.columns ? [cut, said] : [text]), element("br"),
      tile.name || "");
    shown.title = "score " + tile.score;
    return shown;
  }

  const tiles = data.tiles.map((tile, index) => ({ ...tile, index }));

  // Those that `thresholds` accept and reject, the nearest to their own threshold last
  // and first. A picture is accepted as in answersAt.
  function tilesBeside(thresholds) {
    const marginOf = (tile) => tile.score - thresholds[tile.answer];
    const sorted = [...tiles].sort((one, other) =>
      marginOf(one) - marginOf(other) || one.score - other.score);
    const border = sorted.filter((tile) =>
      tile.score <= thresholds[tile.answer]).length;
    return [sorted.slice(Math.max(0, border - PICTURES), border),
      sorted.slice(border, border + PICTURES)];
  }

  // ---- everything ---------------------------------------------------------

  // `thresholds`: one for each class; `threshold`: where the line is.
  function show(thresholds, threshold) {
    const counts = answersAt(thresholds), all = summaryOf(counts);
    const isByClass = new Set(thresholds).size > 1;
    // The command sets the threshold to the last digit; people read four.
    const text = isByClass ? "per class" : short(threshold);
    const knownShare = share(all.knownAccepted, all.known);
    const unknownShare = share(all.unknownAccepted, all.unknown);
    const tell = (selector, said) => { at(selector).textContent = said; };
    at("input").value = 1000 * placeOf(threshold);
    at("input").setAttribute("aria-valuetext", "threshold " + text +
      ": accepts " + knownShare + " of known and " + unknownShare +
      " of unknown inputs");
    tell("output", text);
    tell(".known-accepted", knownShare);
    tell(".unknown-accepted", unknownShare);
    tell(".right", share(all.right, all.known));
    tell(".threshold", text);
    tell(".counts", "Known: " + all.knownAccepted + " of " + all.known +
      " accepted, " + all.right + " of them as their own class. Unknown: " +
      (all.unknown - all.unknownAccepted) + " of " + all.unknown +
      " rejected.");
    // No flag sets a threshold for each class.
    at(".export").hidden = isByClass;
    tell(".command", "cac-export --model=" + data.model + " --threshold=" +
      threshold + " --output_dir=serving_" + threshold);
    tell(".copied", "");
    put("histogram", placeOf(threshold), 1);
    const falsePositives = all.unknownAccepted / Math.max(all.unknown, 1);
    putPoint("roc", falsePositives, all.knownAccepted / all.known);
    putPoint("oscr", falsePositives, all.right / all.known);
    const [below, above] = tilesBeside(thresholds);
    at(".accepted").replaceChildren(...below.map(pictureOf));
    at(".rejected").replaceChildren(...above.map(pictureOf));
    at(".answers tbody").replaceChildren(
      ...counts.map((row, truth) => rowOf(truth, row)));
    tell(".sentence", sentenceOf(counts));
  }

  // Rounded first: the numbers are those of the threshold that is shown.
  function showOne(exactly) {
    const threshold = Number(exactly.toPrecision(4));
    show(Array(N).fill(threshold), threshold);
  }
  const showOwn = () => show(data.thresholds, data.threshold);

  const { plot, left, right } = frames.histogram;
  function dragged(event) {
    const box = plot.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width;
    showOne(scoreAt((x - left) / (right - left)));
  }
  plot.addEventListener("pointerdown", (event) => {
    plot.setPointerCapture(event.pointerId);
    dragged(event);
  });
  plot.addEventListener("pointermove", (event) => {
    if (plot.hasPointerCapture(event.pointerId)) dragged(event);
  });
  at("input").addEventListener("input", (event) =>
    showOne(scoreAt(event.target.value / 1000)));
  at(".own").addEventListener("click", showOwn);
  at(".copy").addEventListener("click", async () => {
    const command = at(".command");
    // Selected too, for browsers that do not let a file copy.
    getSelection().selectAllChildren(command);
    try {
      await navigator.clipboard.writeText(command.textContent);
      at(".copied").textContent = "copied";
    } catch {
      at(".copied").textContent = "selected: copy it with Ctrl+C";
    }
  });

  root.querySelectorAll("[data-script]").forEach((part) => {
    part.hidden = false;
  });
  showOwn();
})();
