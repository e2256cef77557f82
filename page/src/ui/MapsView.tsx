// Maps of allocations: cluster IPs, node ports and Pod addresses, with their owners.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Cidr, type Owner, formatIp, offsetIn, parseCidr } from "../model/ranges";
import type { World } from "../model/world";
import { keyOf } from "../net/types";
import { RangeMap } from "./RangeMap";
import { serviceHref } from "./router";
import { useShared, useWorld } from "./state";

export function MapsView(): JSX.Element {
  const world = useWorld();
  const { session } = useShared();
  const cidrs = [...world.table("cidrs").values()].flatMap((one) => one.spec.cidrs ?? []);
  const ranges = cidrs.map(parseCidr).filter((cidr): cidr is Cidr => cidr !== null);
  const { first, last } = session.nodePorts;
  return (
    <section class="maps" aria-labelledby="title">
      <div class="bar"><h1 id="title" tabIndex={-1}>Maps</h1><p class="line">Each square is an address, a port, or a block of them. Arrow keys move, Enter zooms in.</p></div>
      <div class="grids">
        {ranges.map((cidr) => (
          <RangeMap key={cidr.text} title={`Cluster IPs ${cidr.text}`} size={cidr.size} owners={clusterIps(world, cidr)} what="address" plural="addresses" name={namer(cidr)} />
        ))}
        {ranges.length === 0 && <p class="empty">There is no ServiceCIDR.</p>}
        <RangeMap title={`Node ports ${first}–${last}`} size={BigInt(last - first + 1)} owners={nodePorts(world, first, last)} what="port" plural="ports" name={(offset) => String(BigInt(first) + offset)} />
        <Pools world={world} />
      </div>
      <Outside world={world} />
    </section>
  );
}

const namer = (cidr: Cidr) => (offset: bigint): string => formatIp(cidr.base + offset, cidr.v6);
const byOffset = (a: Owner, b: Owner): number => (a.offset < b.offset ? -1 : a.offset > b.offset ? 1 : 0);

function clusterIps(world: World, cidr: Cidr): Owner[] {
  const out: Owner[] = [];
  for (const [key, service] of world.table("services")) {
    for (const ip of service.spec.clusterIPs ?? []) {
      const offset = offsetIn(cidr, ip);
      if (offset !== null) out.push({ offset, label: key, href: serviceHref(key) });
    }
  }
  return out.sort(byOffset);
}

function nodePorts(world: World, first: number, last: number): Owner[] {
  const out: Owner[] = [];
  for (const [key, service] of world.table("services")) {
    const ports = (service.spec.ports ?? []).map((port) => ({ number: port.nodePort ?? 0, label: port.name ? `${key} (${port.name})` : key }));
    if (service.spec.healthCheckNodePort) ports.push({ number: service.spec.healthCheckNodePort, label: `${key} (health checks)` });
    for (const { number, label } of ports) {
      if (number >= first && number <= last) out.push({ offset: BigInt(number - first), label, href: serviceHref(key) });
    }
  }
  return out.sort(byOffset);
}

/** Addresses of Pods, from the podCIDR of each Node. */
function Pools({ world }: { world: World }): JSX.Element {
  const [chosen, setChosen] = useState("");
  const pools = [...world.table("nodes").values()].flatMap((node) =>
    (node.spec?.podCIDRs ?? []).map((text) => ({ node: keyOf(node), cidr: parseCidr(text) })),
  );
  const known = pools.filter((pool): pool is { node: string; cidr: Cidr } => pool.cidr !== null);
  const pool = known.find(({ cidr }) => cidr.text === chosen) ?? known[0];
  if (!pool) return <section class="map" aria-labelledby="pools-title"><h2 id="pools-title">Pools of Pod addresses</h2><p class="empty">No Node has a range for Pods.</p></section>;
  const owners: Owner[] = [];
  for (const [key, pod] of world.table("pods")) {
    if (pod.spec?.hostNetwork) continue;
    for (const { ip } of pod.status?.podIPs ?? []) {
      const offset = offsetIn(pool.cidr, ip);
      if (offset !== null) owners.push({ offset, label: `Pod ${key}` });
    }
  }
  return (
    <RangeMap key={pool.cidr.text} title={`Pool of node ${pool.node} ${pool.cidr.text}`} size={pool.cidr.size} owners={owners.sort(byOffset)} what="address" plural="addresses" name={namer(pool.cidr)}>
      {known.length > 1 && (
        <label class="field">
          <span>Pool</span>
          <select value={pool.cidr.text} onChange={(event) => setChosen(event.currentTarget.value)}>
            {known.map(({ node, cidr }) => <option key={cidr.text} value={cidr.text}>{node}: {cidr.text}</option>)}
          </select>
        </label>
      )}
    </RangeMap>
  );
}

/** Load-balancer addresses and external IPs, which have no range to draw. */
function Outside({ world }: { world: World }): JSX.Element {
  const rows: { address: string; key: string; kind: string }[] = [];
  for (const [key, service] of world.table("services")) {
    for (const one of service.status?.loadBalancer?.ingress ?? []) rows.push({ address: one.ip ?? one.hostname ?? "", key, kind: "load balancer" });
    for (const ip of service.spec.externalIPs ?? []) rows.push({ address: ip, key, kind: "external IP" });
  }
  rows.sort((a, b) => (a.address < b.address ? -1 : 1));
  return (
    <section aria-labelledby="outside-title">
      <h2 id="outside-title">Addresses from outside</h2>
      {rows.length === 0 ? (
        <p class="empty">No Service has an address of a load balancer or an external IP.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="group" aria-labelledby="outside-title">
          <table>
            <thead><tr><th scope="col">Address</th><th scope="col">Kind</th><th scope="col">Service</th></tr></thead>
            <tbody>
              {rows.map(({ address, key, kind }) => (
                <tr key={`${address} ${key}`}><th scope="row">{address}</th><td>{kind}</td><td><a href={serviceHref(key)}>{key}</a></td></tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
