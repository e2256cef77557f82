// The rungs from the address to an answer, and the first that is broken.
import type { JSX } from "preact";
import { type Rung, VERDICT_WORDS, broken } from "../model/ladder";
import { Command } from "./Command";
import { VerdictSign } from "./glyphs";

export function Ladder({ rungs }: { rungs: Rung[] }): JSX.Element {
  const failed = broken(rungs);
  return (
    <section class="ladder" aria-labelledby="ladder-title">
      <h2 id="ladder-title">The ladder</h2>
      {failed && (
        <div class="verdict" id="verdict">
          <p><strong>{failed.title}: {VERDICT_WORDS[failed.verdict]}.</strong> {failed.text}</p>
          {failed.commands.length > 0 && <p class="type-this">Type:</p>}
          {failed.commands.map((command) => <Command key={command} text={command} />)}
        </div>
      )}
      <ol>
        {rungs.map((rung) => (
          <li key={rung.id} data-rung={rung.id} data-verdict={rung.verdict} class={rung === failed ? "first-failed" : ""}>
            <VerdictSign verdict={rung.verdict} />
            <div>
              <h3>{rung.title} <span class={`tag verdict-${rung.verdict}`}>{VERDICT_WORDS[rung.verdict]}</span></h3>
              <p>{rung.text}</p>
              {rung !== failed && rung.commands.map((command) => <Command key={command} text={command} />)}
            </div>
          </li>
        ))}
      </ol>
    </section>
  );
}
