// Where the person is: the part of the address behind the `#`.
import { useEffect, useState } from "preact/hooks";

export type Place =
  | { view: "overview" }
  | { view: "service"; namespace: string; name: string }
  | { view: "maps" }
  | { view: "gateways" }
  | { view: "object"; kind: string; namespace: string; name: string }
  | { view: "events" };

export function parse(hash: string): Place {
  const [first, second, third, fourth] = hash.replace(/^#\/?/, "").split("/").map(decode);
  if (first === "service" && second && third) return { view: "service", namespace: second, name: third };
  if (first === "object" && second && third && fourth) return { view: "object", kind: second, namespace: third, name: fourth };
  if (first === "gateways" || first === "maps" || first === "events") return { view: first };
  return { view: "overview" };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const serviceHref = (key: string): string => `#/service/${key.split("/").map(encodeURIComponent).join("/")}`;

/** The view of an object of layer 7. */
export const objectHref = ({ kind, key }: { kind: string; key: string }): string =>
  `#/object/${encodeURIComponent(kind)}/${key.split("/").map(encodeURIComponent).join("/")}`;

export function usePlace(): Place {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = (): void => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}
