// The legend of the signs.
import type { JSX } from "preact";
import type { Dot } from "../model/summary";
import { DOT_TEXT, DotSign } from "./glyphs";

const DOTS: readonly Dot[] = ["ready", "unready", "terminating"];

export function Legend(): JSX.Element {
  return (
    <ul class="legend" aria-label="What the dots mean">
      {DOTS.map((dot) => <li key={dot}><DotSign dot={dot} /> {DOT_TEXT[dot]}</li>)}
    </ul>
  );
}
