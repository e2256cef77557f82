// Light, dark, or the preference of the system; stored in the browser.

export type Theme = "auto" | "light" | "dark";

const KEY = "waypost-theme";
const ORDER: readonly Theme[] = ["auto", "light", "dark"];

export function chosen(): Theme {
  const kept = read();
  return ORDER.find((theme) => theme === kept) ?? "auto";
}

export function apply(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
}

export const next = (theme: Theme): Theme => ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length] ?? "auto";

function read(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
