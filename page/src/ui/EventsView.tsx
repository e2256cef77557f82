// All Events, the newest first.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { aboutOf, newestFirst } from "../model/events";
import { EventTable } from "./EventTable";
import { useWorld } from "./state";

export function EventsView(): JSX.Element {
  const world = useWorld();
  const [text, setText] = useState("");
  const [warnings, setWarnings] = useState(false);
  const all = world.table("events");
  const events = useMemo(() => {
    const terms = text.trim().toLowerCase().split(/\s+/);
    return newestFirst(all.values()).filter((event) => {
      if (warnings && event.type !== "Warning") return false;
      const haystack = `${aboutOf(event)} ${event.reason ?? ""} ${event.message ?? ""}`.toLowerCase();
      return terms.every((term) => haystack.includes(term));
    });
  }, [world.version, text, warnings]);
  return (
    <section class="events" aria-labelledby="title">
      <div class="bar">
        <h1 id="title" tabIndex={-1}>Events</h1>
        <label class="field check">
          <input type="checkbox" checked={warnings} onChange={(event) => setWarnings(event.currentTarget.checked)} /> <span>warnings only</span>
        </label>
        <label class="field grow">
          <span>Filter <kbd>/</kbd></span>
          <input id="filter" type="search" autocomplete="off" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
      </div>
      <EventTable events={events} label="Events" empty={all.size > 0 ? "No Event fits the filter." : "There is no recent Event."} />
      <p class="count" role="status">{events.length} of {all.size} Events</p>
    </section>
  );
}
