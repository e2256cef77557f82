// What is wrong with an object: the first finding with its command, and the others.
import type { JSX } from "preact";
import type { Finding } from "../net/findings";
import { Command } from "./Command";

interface Props {
  /** The code, or what failed. */
  title: string;
  text: string;
  evidence: readonly string[];
  commands: readonly string[];
  others: readonly Finding[];
}

export function Verdict({ title, text, evidence, commands, others }: Props): JSX.Element {
  return (
    <div class="verdict" id="verdict">
      <p><strong>{title}.</strong> {text}</p>
      {evidence.length > 0 && <pre class="evidence">{evidence.join("\n")}</pre>}
      {commands.length > 0 && <p class="type-this">Run:</p>}
      {commands.map((command) => <Command key={command} text={command} />)}
      {others.map(({ code, message }) => <p key={`${code} ${message}`}><strong>{code}.</strong> {message}</p>)}
    </div>
  );
}
