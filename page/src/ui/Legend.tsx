// What the signs of the picture mean.
import type { JSX } from "preact";
import type { Dot } from "../model/judge";
import { DOT_WORDS, DotSign } from "./glyphs";

const DOTS: readonly Dot[] = ["ready", "unready", "ending"];

export function Legend(): JSX.Element {
  return (
    <ul class="legend" aria-label="What the dots mean">
      {DOTS.map((dot) => <li key={dot}><DotSign dot={dot} /> {DOT_WORDS[dot]}</li>)}
    </ul>
  );
}
