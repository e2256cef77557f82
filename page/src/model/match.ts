// Which Pods a selector means, and what was probably meant when it means none.
import type { Pod } from "../net/types";

export type Labels = Record<string, string>;

export const selectorText = (selector: Labels): string =>
  Object.entries(selector).map(([key, value]) => `${key}=${value}`).join(",");

export const matches = (selector: Labels, pod: Pod): boolean =>
  Object.entries(selector).every(([key, value]) => pod.metadata.labels?.[key] === value);

export interface Near {
  selector: Labels;
  pods: number;
}

/**
 * Another selector that differs in one value and matches Pods, when it is clear that it was meant: it is in what the server said, or is
 * written almost the same, or is the only one.
 */
export function nearMiss(selector: Labels, pods: Iterable<Pod>, said = ""): Near | null {
  const found = candidates(selector, [...pods]);
  const named = found.find(({ key, value }) => said.includes(`${key}=${value}`));
  const alike = found.find(({ key, value }) => distance(selector[key] ?? "", value) <= 2);
  const best = named ?? alike ?? (found.length === 1 ? found[0] : undefined);
  return best ? { selector: { ...selector, [best.key]: best.value }, pods: best.pods } : null;
}

/** Each value that would match, those of most Pods first. */
function candidates(selector: Labels, all: readonly Pod[]): { key: string; value: string; pods: number }[] {
  const found: { key: string; value: string; pods: number }[] = [];
  for (const key of Object.keys(selector)) {
    const { [key]: _, ...others } = selector;
    const counts = new Map<string, number>();
    for (const pod of all) {
      const value = pod.metadata.labels?.[key];
      if (value !== undefined && matches(others, pod)) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    for (const [value, count] of counts) found.push({ key, value, pods: count });
  }
  return found.sort((a, b) => b.pods - a.pods || (a.value < b.value ? -1 : 1));
}

/** How many letters must be added, taken away or changed, upper and lower case aside. */
export function distance(from: string, to: string): number {
  const [a, b] = [from.toLowerCase(), to.toLowerCase()];
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const changed = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

/** Why a Pod is not ready, in its own words. */
export function whyNotReady(pod: Pod): string {
  if (pod.metadata.deletionTimestamp) return "it is being deleted";
  for (const status of pod.status?.containerStatuses ?? []) {
    const waiting = status.state?.waiting;
    if (waiting?.reason) return `container ${status.name}: ${waiting.reason}${waiting.message ? `: ${waiting.message}` : ""}`;
    const ended = status.state?.terminated;
    if (ended) return `container ${status.name} has ended${ended.reason ? `: ${ended.reason}` : ""}`;
  }
  const bad = (pod.status?.conditions ?? []).find((one) => one.status !== "True" && (one.message || one.reason));
  if (bad) return bad.message || bad.reason || bad.type;
  const phase = pod.status?.phase;
  if (phase && phase !== "Running") return `it is ${phase.toLowerCase()}`;
  return "its readiness has not been said";
}

export const isPodReady = (pod: Pod): boolean =>
  !pod.metadata.deletionTimestamp && (pod.status?.conditions ?? []).some((one) => one.type === "Ready" && one.status === "True");
