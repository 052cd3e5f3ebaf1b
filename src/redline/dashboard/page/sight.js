// What the charts of a page share: axis, zoom, logarithmic axes and hidden lines. All of it stands in the address.
import * as address from "./address.js";
import { h } from "./dom.js";

export const AXES = { minutes: "minutes", steps: "steps", cpu_s: "CPU seconds" };

export function axisButtons(choose) {
  const buttons = Object.entries(AXES).map(([name, words]) => h("button", { type: "button", value: name, onclick: () => choose(name) }, words));
  const box = h("div", { class: "chips", role: "group", ariaLabel: "charts against" }, h("span", { class: "under" }, "against"), buttons);
  return { box, show: (chosen) => buttons.forEach((button) => (button.ariaPressed = String(button.value === chosen))) };
}

const list = (name) => address.get(name).split(",").filter(Boolean);
const number = (name) => (address.get(name) === "" ? NaN : Number(address.get(name)));

export class Sight {
  constructor(usualAxis, onZoom) {
    this.usualAxis = usualAxis;
    this.zoom = (begin, end) => {
      const isPart = begin !== null && end > begin;
      address.set({ from: isPart ? Number(begin.toPrecision(7)) : null, to: isPart ? Number(end.toPrecision(7)) : null });
      onZoom();
    };
  }

  get axis() {
    return Object.hasOwn(AXES, address.get("axis")) ? address.get("axis") : this.usualAxis;
  }

  setAxis(name) {
    address.set({ axis: name === this.usualAxis ? null : name, from: null, to: null });
  }

  window() {
    const [from, to] = [number("from"), number("to")];
    return Number.isFinite(from) && Number.isFinite(to) && from < to ? [from, to] : null;
  }

  isLog(name) {
    return list("log").includes(name);
  }

  setLog(name, isLog) {
    address.set({ log: [...list("log").filter((one) => one !== name), ...(isLog ? [name] : [])].join(",") });
  }

  hidden(name) {
    return list("hide").filter((one) => one.startsWith(`${name}.`)).map((one) => Number(one.slice(name.length + 1)));
  }

  hide(name, key, isHidden) {
    const told = `${name}.${key}`;
    address.set({ hide: [...list("hide").filter((one) => one !== told), ...(isHidden ? [told] : [])].join(",") });
  }
}
