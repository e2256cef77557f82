// Live connections, as conntrack of each node counts them.
import type { JSX } from "preact";
import { type Report, flows, isUnavailable } from "../net/reports";

const number = (value: number | null): string => (value === null ? "not measured" : value.toLocaleString("en"));

export function Flows({ reports }: { reports: Report[] | null }): JSX.Element {
  const rows = flows(reports ?? []);
  return (
    <section aria-labelledby="flows-title">
      <h2 id="flows-title">Live connections</h2>
      {rows.length === 0 ? (
        <p class="empty">{emptyText(reports)}</p>
      ) : (
        <div class="scroll" tabIndex={0} role="group" aria-labelledby="flows-title">
          <table>
            <thead>
              <tr><th scope="col">Backend</th><th scope="col">Port</th><th scope="col">Node</th><th scope="col">Connections</th><th scope="col">Bytes</th></tr>
            </thead>
            <tbody>
              {rows.map((flow) => (
                <tr key={`${flow.node} ${flow.port} ${flow.backend}`}>
                  <th scope="row">{flow.backend}{flow.planned ? "" : " (draining)"}</th>
                  <td>{flow.port}</td>
                  <td>{flow.node}{flow.local ? " (same node)" : ""}</td>
                  <td class="number">{number(flow.connections)}</td>
                  <td class="number">{number(flow.bytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function emptyText(reports: Report[] | null): string {
  if (!reports) return "Not measured yet.";
  const available = reports.some((one) => !isUnavailable(one));
  return available ? "No node forwards connections of this Service." : "Not measured: no node reports.";
}
