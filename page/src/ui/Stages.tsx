// The stages from the address to a connection, and the first finding.
import type { JSX } from "preact";
import { STATUS_TEXT, type Stage, firstFailed } from "../model/stages";
import type { Finding } from "../net/findings";
import { Command } from "./Command";
import { Verdict } from "./Verdict";
import { StatusSign } from "./glyphs";

interface Failure {
  title: string;
  text: string;
  commands: string[];
}

function verdictOf(findings: readonly Finding[], failed: Stage | undefined): Failure | null {
  const [finding] = findings;
  if (finding) return { title: finding.code, text: finding.message, commands: [finding.fix] };
  return failed ? { title: `${failed.title}: ${STATUS_TEXT[failed.status]}`, text: failed.text, commands: failed.commands } : null;
}

export function Stages({ stages, findings }: { stages: Stage[]; findings: readonly Finding[] }): JSX.Element {
  const failed = firstFailed(stages);
  const verdict = verdictOf(findings, failed);
  return (
    <section class="stages" aria-labelledby="stages-title">
      <h2 id="stages-title">Checks</h2>
      {verdict && (
        <Verdict {...verdict} evidence={findings[0]?.evidence ?? []} others={findings.slice(1)} />
      )}
      <ol>
        {stages.map((stage) => (
          <li key={stage.id} data-stage={stage.id} data-status={stage.status} class={stage === failed ? "first-failed" : ""}>
            <StatusSign status={stage.status} />
            <div>
              <h3>{stage.title} <span class={`tag status-${stage.status}`}>{STATUS_TEXT[stage.status]}</span></h3>
              <p>{stage.code && <strong>{stage.code}: </strong>}{stage.text}</p>
              {stage.commands.filter((command) => !verdict?.commands.includes(command)).map((command) => <Command key={command} text={command} />)}
            </div>
          </li>
        ))}
      </ol>
    </section>
  );
}
