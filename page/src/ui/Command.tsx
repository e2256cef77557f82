// A command to type, with a button that copies it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

export function Command({ text }: { text: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch {
      // The text can be selected all the same.
    }
  };
  return (
    <p class="command">
      <code>{text}</code>
      <button type="button" class="quiet" onClick={() => void copy()} aria-label={`Copy ${text}`}>{copied ? "Copied" : "Copy"}</button>
    </p>
  );
}
