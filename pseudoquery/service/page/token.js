// The dialog that asks for a token.

import {byId} from "./elements.js";

/** Ask for a token; null if the user would rather not. */
export function askForToken(reason) {
  const dialog = byId("token");
  byId("token-reason").textContent = reason;
  byId("token-value").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const given = (event) => {
      event.preventDefault();
      dialog.close(byId("token-value").value.trim());
    };
    const cancel = () => dialog.close("");
    byId("token-form").addEventListener("submit", given);
    byId("token-cancel").addEventListener("click", cancel);
    dialog.addEventListener("close", () => {
      byId("token-form").removeEventListener("submit", given);
      byId("token-cancel").removeEventListener("click", cancel);
      resolve(dialog.returnValue || null);
    }, {once: true});
  });
}
