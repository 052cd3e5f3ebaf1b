// A fleet: its games with state, score, health and time left; incidents; the bill.
import { h } from "./dom.js";

export function showFleet(main) {
  main.append(h("p", {}, "no fleets yet"));
  return { close: () => {} };
}
