// Write times, sizes and bytes for people.

const FIRST_MS = 1e12;
const END_MS = 1e13;

/** Whether a time is of a wall clock, in milliseconds since 1970 (2001 to 2286). */
export const isDated = (time) => time >= FIRST_MS && time < END_MS;

/** Write a time: as a date where times are milliseconds, else as a number. */
export function time(value) {
  if (value == null) return "–";
  return isDated(value) ? new Date(value).toISOString().replace("T", " ") : value.toLocaleString("en");
}

/** Write a whole number. */
export const number = (value) => (value == null ? "–" : Math.round(value).toLocaleString("en"));

/** Write how many there are of what has a name: "1 row", "2 rows". */
export const counted = (value, one) => `${number(value)} ${one}${value === 1 ? "" : "s"}`;

/** Write a rate per second, or another small number. */
export function rate(value) {
  if (value == null) return "–";
  return value < 10 && value > 0 ? value.toPrecision(2) : number(value);
}

/** Write a duration in seconds. */
export function seconds(value) {
  if (value == null) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${value.toFixed(1)} s`;
  if (value < 7200) return `${(value / 60).toFixed(1)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86400).toFixed(1)} d`;
}

/** Write a number of bytes. */
export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; value >= 1000 && at < units.length - 1; at++) value /= 1000;
  return `${at ? value.toPrecision(3) : value} ${units[at]}`;
}

/**
 * Write bytes that are given in base64: as their text, or if they are none, in base64.  Those
 * that were `cut` may end within a character.
 */
export function content(base64, cut = false) {
  if (base64 == null) return "";
  const found = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(found, { stream: cut });
  } catch {
    return `base64 ${base64}`;
  }
}
