/** Paths into a JSON value, written as `vestige body --path` reads them. */

/** `$.messages[0].content`, `$["odd key"]`. */
export function pathOf(parent: string, key: string | number): string {
  if (typeof key === "number") return `${parent}[${key}]`;
  return /^[A-Za-z_]\w*$/.test(key) ? `${parent}.${key}` : `${parent}[${JSON.stringify(key)}]`;
}
