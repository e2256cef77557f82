// The generated rules of a Service on a node, read on demand.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { rules } from "../net/reports";

export function Rules({ service, nodes }: { service: string; nodes: readonly string[] }): JSX.Element {
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState("");
  const [answer, setAnswer] = useState<{ text: string } | { unavailable: string } | null>(null);
  const node = nodes.includes(chosen) ? chosen : (nodes[0] ?? "");
  useEffect(() => {
    setAnswer(null);
    if (!open || !node) return;
    let over = false;
    void rules(node, service).then((read) => !over && setAnswer(read));
    return () => {
      over = true;
    };
  }, [open, node, service]);
  return (
    <section aria-labelledby="rules-title">
      <h2 id="rules-title">Generated rules</h2>
      {nodes.length === 0 ? (
        <p class="empty">Not measured: there is no Node.</p>
      ) : (
        <>
          <div class="bar">
            <label class="field">
              <span>Node</span>
              <select value={node} onChange={(event) => setChosen(event.currentTarget.value)}>
                {nodes.map((name) => <option key={name} value={name}>{name}</option>)}
              </select>
            </label>
            <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide rules" : "Show rules"}</button>
          </div>
          {open && !answer && <p class="empty" role="status">Reading rules of {node}…</p>}
          {open && answer && "unavailable" in answer && <p class="empty" role="status">Not measured: node {node}: {answer.unavailable}.</p>}
          {open && answer && "text" in answer && (
            <pre class="scroll" tabIndex={0} role="group" aria-label={`Rules on ${node}`}>{answer.text || "This node has no rule for the Service."}</pre>
          )}
        </>
      )}
    </section>
  );
}
