// A line of the Gateways view: a Gateway, a listener, a rule with its backends, or an object that is attached to none.
import type { ComponentChildren, JSX } from "preact";
import { type Line, gradeOf, judgementOf, shareText, words } from "../model/gateways";
import { GRADE_TEXT } from "../model/summary";
import type { World } from "../model/world";
import type { Rule, Share } from "../net/gateways";
import { GradeSign } from "./glyphs";
import { objectHref, serviceHref } from "./router";

const MOST_BACKENDS = 3;

interface Props {
  line: Line;
  world: World;
  tabIndex: 0 | -1;
}

export function GatewayLine({ line, world, tabIndex }: Props): JSX.Element {
  const judgement = judgementOf(line);
  const grade = gradeOf(judgement);
  const link = (href: string | null, children: ComponentChildren): JSX.Element =>
    href ? <a class="name" href={href} data-row tabIndex={tabIndex}>{children}</a> : <span class="name" data-row tabIndex={tabIndex}>{children}</span>;
  return (
    <div class={`row line-${line.type} is-${grade}`} data-grade={grade} data-code={judgement.code}>
      <span class="who">
        <GradeSign grade={grade} />
        <span class="names">
          {link(hrefOf(line), <Name line={line} />)}
          <span class="line"><Facts line={line} /></span>
          <span class="words" title={words(judgement)}>{line.type === "rule" && line.rule.says ? `${line.rule.says}. ` : ""}{judgement.code ? <b>{judgement.code} </b> : null}{words(judgement)}</span>
          {judgement.fix && <code class="fix" title={judgement.fix}>{judgement.fix}</code>}
        </span>
      </span>
      {line.type === "rule" && <Backends rule={line.rule} world={world} tabIndex={tabIndex} />}
    </div>
  );
}

function hrefOf(line: Line): string | null {
  switch (line.type) {
    case "gateway":
    case "listener": {
      const { gateway } = line;
      if (line.type === "listener" && line.listener.set) return objectHref({ kind: "ListenerSet", key: line.listener.set });
      return gateway.kind === "Gateway" ? objectHref(gateway) : null;
    }
    case "rule":
      return objectHref(line.rule.route);
    default:
      return objectHref(line.apart);
  }
}

/** `name` and namespace of a key. */
function Key({ of }: { of: string }): JSX.Element {
  const [namespace, name] = of.includes("/") ? of.split("/") : ["", of];
  return <>{name} <small>{namespace}</small></>;
}

function Name({ line }: { line: Line }): JSX.Element {
  switch (line.type) {
    case "gateway":
      return <Key of={line.gateway.key} />;
    case "listener":
      return <>{line.listener.name} <small>{line.listener.set ? `of ListenerSet ${line.listener.set}` : "listener"}</small></>;
    case "rule":
      return <>{line.rule.host === "*" ? "all hosts" : line.rule.host} <span class="condition">{line.rule.condition}</span></>;
    default:
      return <Key of={line.apart.key} />;
  }
}

function Facts({ line }: { line: Line }): JSX.Element {
  switch (line.type) {
    case "gateway": {
      const { kind, class: name, addresses } = line.gateway;
      const facts = [name && `class ${name}`, addresses.join(", ") || "no address"].filter(Boolean);
      return <><span class="type">{kind}</span> {facts.join(" · ")}</>;
    }
    case "listener": {
      const { protocol, port, host, routes } = line.listener;
      const attached = routes === 1 ? "1 route" : `${routes} routes`;
      return <><span class="type">{protocol} {port}</span> {[host === "*" ? "all hosts" : host, attached].join(" · ")}</>;
    }
    case "rule": {
      const { route, rule, listeners } = line.rule;
      const by = listeners.length > 0 ? ` · ${listeners.join(", ")}` : "";
      return <><span class="type">{route.kind}</span> {route.key} rule {rule}{by}</>;
    }
    default:
      return <><span class="type">{line.apart.kind}</span> {line.apart.hosts.join(", ") || "attached to no Gateway"}</>;
  }
}

/** The backends of a rule, each with its share and the state of its Service. */
function Backends({ rule, world, tabIndex }: { rule: Rule; world: World; tabIndex: 0 | -1 }): JSX.Element {
  const more = rule.backends.length - MOST_BACKENDS;
  return (
    <ul class="backends" aria-label="Backends">
      {rule.backends.slice(0, MOST_BACKENDS).map((share, at) => (
        <li key={at}><Backend share={share} all={rule.backends} world={world} tabIndex={tabIndex} /></li>
      ))}
      {more > 0 && <li class="more">+{more} backends</li>}
    </ul>
  );
}

function Backend({ share, all, world, tabIndex }: { share: Share; all: readonly Share[]; world: World; tabIndex: 0 | -1 }): JSX.Element {
  const part = shareText(share, all);
  if (!share.service) {
    const [sign, text] = share.why ? (["failing", `none: ${share.why}`] as const) : (["unknown", "unknown"] as const);
    return <span class={`backend none grade-${sign}`} title={text}><GradeSign grade={sign} /> <span>{text}</span> <small>{part}</small></span>;
  }
  const grade = world.summary(share.service)?.grade ?? "unknown";
  return (
    <a class="backend" href={serviceHref(share.service)} tabIndex={tabIndex} title={`Service ${share.service}: ${GRADE_TEXT[grade]}`}>
      <GradeSign grade={grade} /> <span>{share.service.split("/")[1]}:{share.port}</span> <small>{part}</small>
      <span class="voice">, Service {GRADE_TEXT[grade]}</span>
    </a>
  );
}
