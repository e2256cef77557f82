// Ranges of addresses and ports as numbers, divided into at most 256 cells. Pure.

export interface Cidr {
  text: string;
  base: bigint;
  size: bigint;
  v6: boolean;
}

/** Parses an address; null if it is invalid. */
export function parseIp(text: string): { value: bigint; v6: boolean } | null {
  if (!text.includes(":")) {
    const parts = text.split(".");
    if (parts.length !== 4 || !parts.every((part) => /^\d{1,3}$/.test(part) && Number(part) < 256)) return null;
    return { value: parts.reduce((sum, part) => sum * 256n + BigInt(part), 0n), v6: false };
  }
  const [head = "", tail, more] = text.split("::");
  if (more !== undefined) return null;
  const words = (part: string): string[] => (part === "" ? [] : part.split(":"));
  const [left, right] = [words(head), words(tail ?? "")];
  const missing = 8 - left.length - right.length;
  if (tail === undefined ? missing !== 0 : missing < 1) return null;
  const all = [...left, ...Array<string>(tail === undefined ? 0 : missing).fill("0"), ...right];
  if (!all.every((word) => /^[\da-f]{1,4}$/i.test(word))) return null;
  return { value: all.reduce((sum, word) => sum * 65536n + BigInt(`0x${word}`), 0n), v6: true };
}

export function formatIp(value: bigint, v6: boolean): string {
  if (!v6) return [24n, 16n, 8n, 0n].map((shift) => String((value >> shift) & 255n)).join(".");
  const words = Array.from({ length: 8 }, (_, at) => Number((value >> BigInt(112 - at * 16)) & 65535n));
  let [start, length] = [-1, 1];
  for (let at = 0; at < 8; at += 1) {
    let end = at;
    while (end < 8 && words[end] === 0) end += 1;
    if (end - at > length) [start, length] = [at, end - at];
  }
  const hex = (part: number[]): string => part.map((word) => word.toString(16)).join(":");
  return start < 0 ? hex(words) : `${hex(words.slice(0, start))}::${hex(words.slice(start + length))}`;
}

export function parseCidr(text: string): Cidr | null {
  const [ip = "", length = ""] = text.split("/");
  const parsed = parseIp(ip);
  const bits = parsed?.v6 ? 128 : 32;
  if (!parsed || !/^\d+$/.test(length) || Number(length) > bits) return null;
  const size = 1n << BigInt(bits - Number(length));
  return { text, base: (parsed.value / size) * size, size, v6: parsed.v6 };
}

/** The offset of an address in a range; null if it is outside. */
export function offsetIn(cidr: Cidr, ip: string): bigint | null {
  const parsed = parseIp(ip);
  if (!parsed || parsed.v6 !== cidr.v6) return null;
  const offset = parsed.value - cidr.base;
  return offset >= 0n && offset < cidr.size ? offset : null;
}

export interface Owner {
  offset: bigint;
  label: string;
  href?: string;
}

export interface Cell {
  start: bigint;
  size: bigint;
  owners: Owner[];
}

export const MOST_CELLS = 256n;

/** Divides a part of a range into cells; `owners` is in the order of offsets. */
export function cells(start: bigint, size: bigint, owners: readonly Owner[]): Cell[] {
  let each = 1n;
  while (each * MOST_CELLS < size) each *= 2n;
  const out: Cell[] = [];
  for (let at = 0n; at < size; at += each) {
    out.push({ start: start + at, size: at + each > size ? size - at : each, owners: [] });
  }
  for (const owner of owners) {
    const offset = owner.offset - start;
    if (offset >= 0n && offset < size) out[Number(offset / each)]?.owners.push(owner);
  }
  return out;
}

/** How full a cell is, from 0 (empty) to 4 (full). */
export function fullness(cell: Cell): 0 | 1 | 2 | 3 | 4 {
  const taken = BigInt(cell.owners.length);
  if (taken === 0n) return 0;
  if (taken >= cell.size) return 4;
  if (taken * 2n >= cell.size) return 3;
  return taken * 8n >= cell.size ? 2 : 1;
}
