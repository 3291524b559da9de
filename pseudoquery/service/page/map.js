// A document's pseudo queries, and the question, as points on a plane.

import {draw, percent} from "./elements.js";
import {colour} from "./passages.js";

const WIDTH = 460;
const HEIGHT = 340;
const MARGIN = {x: 52, y: 36};
const LABELLED = 8;
const QUESTION = "your question";
const LETTER = 6.6;
const LINE = 15;

/** Draw the map; it calls `point` with the number of the pseudo query under the mouse. */
export function drawMap({pseudo_queries: pseudoQueries, query}, {shown, point}) {
  const points = pseudoQueries.map((pseudoQuery) => pseudoQuery.point);
  const project = scale(query ? [...points, query] : points);
  const taken = pseudoQueries.map(
    (pseudoQuery) => around(project(pseudoQuery.point), radiusOf(pseudoQuery)),
  );
  if (query) taken.push(named(project(query), QUESTION));
  const dots = pseudoQueries.map(
    (pseudoQuery, number) => dot(pseudoQuery, number, {project, shown, point, taken}),
  );
  const drawing = draw(
    "svg",
    {
      class: "map",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "group",
      "aria-label": `Map of ${pseudoQueries.length} pseudo queries`,
    },
  );
  if (query) {
    const lines = pseudoQueries.slice(0, shown).map(
      (pseudoQuery) => line(project(pseudoQuery.point), project(query), pseudoQuery),
    );
    drawing.append(...lines);
  }
  // The points with the largest weights lie on top.
  drawing.append(...dots.reverse());
  if (query) drawing.append(question(project(query)));
  return drawing;
}

function dot(pseudoQuery, number, {project, shown, point, taken}) {
  const {label, weight} = pseudoQuery;
  const {x, y} = project(pseudoQuery.point);
  const radius = radiusOf(pseudoQuery);
  const name = label || "(the title)";
  const description = weight === null ? name : `${name}, ${percent(weight)}`;
  const free = number < Math.min(shown, LABELLED) ? roomFor(name, x, y, radius, taken) : null;
  const leave = () => point(null);
  const enter = () => point(number);
  return draw(
    "g",
    {
      class: `dot ${colour(number)}${number < shown ? "" : " faint"}`,
      tabindex: "0",
      role: "img",
      "aria-label": description,
      "data-number": number,
      on: {mouseenter: enter, focus: enter, mouseleave: leave, blur: leave},
    },
    draw("title", {}, description),
    draw("circle", {cx: x, cy: y, r: radius}),
    free ? draw("text", {x: free.x, y: free.y, "text-anchor": free.anchor}, name) : null,
  );
}

/** The larger the weight, the larger the point. */
function radiusOf({weight}) {
  return weight === null ? 7 : 4 + 14 * Math.sqrt(weight);
}

function around({x, y}, radius) {
  return {left: x - radius, right: x + radius, top: y - radius, bottom: y + radius};
}

/** Find room for a label beside its point, where it covers nothing else. */
function roomFor(name, x, y, radius, taken) {
  const width = name.length * LETTER;
  const options = [
    {x: x + radius + 5, y: y + 4, anchor: "start", left: x + radius + 3},
    {x: x - radius - 5, y: y + 4, anchor: "end", left: x - radius - 5 - width},
    {x, y: y - radius - 5, anchor: "middle", left: x - width / 2},
    {x, y: y + radius + LINE, anchor: "middle", left: x - width / 2},
  ];
  for (const option of options) {
    const right = option.left + width;
    const box = {left: option.left, right, top: option.y - 11, bottom: option.y + 3};
    const inside = box.left >= 2 && box.right <= WIDTH - 2 && box.top >= 0 && box.bottom <= HEIGHT;
    if (inside && !taken.some((other) => overlap(box, other))) {
      taken.push(box);
      return option;
    }
  }
  return null;
}

function overlap(box, other) {
  return box.left < other.right && other.left < box.right
    && box.top < other.bottom && other.top < box.bottom;
}

function line(from, to, {weight}) {
  const drawn = draw("line", {class: "tie", x1: from.x, y1: from.y, x2: to.x, y2: to.y});
  drawn.style.opacity = Math.max(0.15, weight);
  return drawn;
}

function question({x, y}) {
  return draw(
    "g",
    {class: "question"},
    draw("path", {d: `M ${x} ${y - 9} L ${x + 9} ${y} L ${x} ${y + 9} L ${x - 9} ${y} Z`}),
    draw("text", {x: within(x), y: y - 14, "text-anchor": "middle"}, QUESTION),
  );
}

/** The room that the question and its name take. */
function named({x, y}, name) {
  const half = name.length * LETTER / 2;
  return {left: within(x) - half, right: within(x) + half, top: y - 26, bottom: y + 10};
}

function within(x) {
  return Math.min(Math.max(x, MARGIN.x), WIDTH - MARGIN.x);
}

/** Fit points into the drawing, with one scale for both axes, so that distances compare. */
function scale(points) {
  const [xs, ys] = [points.map(({x}) => x), points.map(({y}) => y)];
  const middle = (values) => (Math.min(...values) + Math.max(...values)) / 2;
  const range = (values) => Math.max(...values) - Math.min(...values);
  const factor = Math.min(
    (WIDTH - 2 * MARGIN.x) / (range(xs) || 1), (HEIGHT - 2 * MARGIN.y) / (range(ys) || 1),
  );
  return ({x, y}) => ({
    x: WIDTH / 2 + (x - middle(xs)) * factor,
    y: HEIGHT / 2 - (y - middle(ys)) * factor,
  });
}
