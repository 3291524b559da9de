// The theme: light, dark, or the system's.

import {byId} from "./elements.js";

const KEY = "pseudoquery-theme";
const NAMES = {auto: "System", light: "Light", dark: "Dark"};
const SIGNS = {auto: "◐", light: "☀", dark: "☾"};

export function startTheme() {
  const button = byId("theme");
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = SIGNS[theme];
    button.setAttribute("aria-label", `Colours: ${NAMES[theme]}`);
    button.title = `Colours: ${NAMES[theme]}`;
  };
  show(NAMES[localStorage.getItem(KEY)] ? localStorage.getItem(KEY) : "auto");
  button.addEventListener("click", () => {
    const names = Object.keys(NAMES);
    const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    localStorage.setItem(KEY, next);
    show(next);
  });
}
