// The routes and Ingresses that lead to a Service.
import type { JSX } from "preact";
import { gradeOf, words } from "../model/gateways";
import { routesTo } from "../net/gateways";
import { useFindings } from "./findings";
import { GradeSign } from "./glyphs";
import { objectHref } from "./router";

export function LeadingRoutes({ service }: { service: string }): JSX.Element | null {
  const { answer: routes } = useFindings(service, () => routesTo(service));
  if (!routes || routes.length === 0) return null;
  return (
    <section aria-labelledby="routes-title" id="routes">
      <h2 id="routes-title">Routes to this Service</h2>
      <ul class="leading">
        {routes.map((route) => (
          <li key={`${route.kind} ${route.key}`} class={`is-${gradeOf(route)}`} data-code={route.code}>
            <GradeSign grade={gradeOf(route)} /> <a href={objectHref(route)}>{route.kind} {route.key}</a>{" "}
            <span class="line">{route.hosts.join(", ")}</span> <span class="words">{words(route)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
