// Numbers as people read them.
const DASH = "–";
const SPANS = [[86400, "d"], [3600, "h"], [60, "min"]];

const minus = (text) => text.replace("-", "−");
const isKnown = (value) => value !== null && value !== undefined && Number.isFinite(value);

export function amount(value, unit = "") {
  if (!isKnown(value)) return DASH;
  const size = Math.abs(value);
  const isWhole = size >= 100 || Number.isInteger(value);
  const text = isWhole ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : size < 1e-3 ? value.toExponential(1) : value.toPrecision(3);
  return minus(text) + (unit && ` ${unit}`);
}

export function short(value) {
  if (!isKnown(value)) return DASH;
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= limit) return minus((value / (limit === 1e4 ? 1e3 : limit)).toPrecision(3)) + unit;
  }
  return amount(value);
}

export function span(seconds) {
  if (!isKnown(seconds)) return DASH;
  for (const [limit, unit] of SPANS) if (seconds >= 2 * limit) return `${(seconds / limit).toFixed(seconds >= 10 * limit ? 0 : 1).replace(".0", "")} ${unit}`;
  return amount(Math.round(seconds), "s");
}

export function ago(unixSeconds, nowSeconds) {
  if (!isKnown(unixSeconds)) return DASH;
  const seconds = Math.max(0, nowSeconds - unixSeconds);
  return seconds < 10 ? "just now" : `${span(seconds)} ago`;
}

export function moment(unixSeconds) {
  if (!isKnown(unixSeconds)) return DASH;
  const date = new Date(unixSeconds * 1000);
  return Number.isNaN(date.getTime()) ? DASH : date.toLocaleString("sv").slice(0, 16);
}

export function money(value) {
  if (!isKnown(value)) return DASH;
  const digits = Math.abs(value) >= 1 || value === 0 ? 2 : Math.abs(value) >= 0.1 ? 3 : 4;
  return `$${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

export const percent = (share) => (isKnown(share) ? `${Math.round(share * 100)} %` : DASH);
