// Elements out of names, classes and text. Text is only ever text: nothing here, or anywhere in the
// page, turns a string into HTML.

/** Make an element, such as make("p", {class: "note", on: {click}}, "text", another). */
export function make(tag, {on = {}, ...attributes} = {}, ...children) {
  const element = document.createElement(tag);
  return dress(element, attributes, on, children);
}

/** Make an element of a drawing. */
export function draw(tag, {on = {}, ...attributes} = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return dress(element, attributes, on, children);
}

/** Make a button that reads as a link, unless it is of another kind. */
export function button(name, click, kind = "link") {
  return make("button", {type: "button", class: kind, on: {click}}, name);
}

export function byId(id) {
  return document.getElementById(id);
}

/** A number as people write it: 1,234 or 0.57. */
export function figure(value, digits = 0) {
  return value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

/** Three digits that matter, whatever the size: ranks that were fused have tiny scores. */
export function significant(value) {
  return value.toLocaleString("en", {minimumSignificantDigits: 3, maximumSignificantDigits: 3});
}

export function percent(part) {
  return part > 0 && part < 0.01 ? "<1%" : `${Math.round(100 * part)}%`;
}

function dress(element, attributes, on, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== undefined) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  for (const [event, listener] of Object.entries(on)) {
    element.addEventListener(event, listener);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
