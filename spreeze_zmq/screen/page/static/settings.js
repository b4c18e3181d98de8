// The settings that may move while a run trains, as they are, and a field for another value of each.

import { element, plain } from "./format.js";

export class Settings {
  /** `ask` sends what somebody wishes to the run, whose broker grants or refuses it; it returns whether it could. */
  constructor(card, run, ask) {
    Object.assign(this, { card, run, ask, now: new Map() });
  }

  /** Another run, or the same one anew: make its rows. */
  begin() {
    const moves = Object.entries(this.run.about.moves);
    this.card.hidden = !moves.length;
    this.now = new Map(moves.map(([name]) => [name, element("td", { class: "number" })]));
    this.card.querySelector("table").replaceChildren(...moves.map(([name, bounds]) => this.row(name, bounds)));
  }

  draw() {
    const { about, ended, status } = this.run;
    for (const [name, cell] of this.now) cell.textContent = String(status?.values?.[name] ?? about.moves[name].stated ?? "none");
    if (ended) this.card.hidden = true;
  }

  /** Ask for what is in a field; it stays there where nobody hears. */
  send(name, field) {
    if (this.ask({ option: name, value: field.valueAsNumber })) field.value = "";
  }

  /** Whether the buttons can be pressed: only while somebody hears. */
  allow(connected) {
    for (const button of this.card.querySelectorAll("button")) button.disabled = !connected;
  }

  row(name, { minimum, above, maximum }) {
    const field = element("input", { type: "number", step: "any", min: above ?? minimum, max: maximum, required: "", "aria-label": `another ${plain(name)}` });
    // the bound itself is no value, which the attribute cannot say; a refusal of the broker's would be shown only once
    field.addEventListener("input", () => field.setCustomValidity(field.valueAsNumber <= above ? `expected a number above ${above}` : ""));
    const form = element("form", {}, field, element("button", {}, "set"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send(name, field);
    });
    return element("tr", { "data-name": name }, element("th", { scope: "row" }, plain(name)), this.now.get(name), element("td", {}, form));
  }
}

