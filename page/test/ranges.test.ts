import { describe, expect, it } from "vitest";
import { cells, formatIp, fullness, offsetIn, parseCidr, parseIp } from "../src/model/ranges";
import { parse, serviceHref } from "../src/ui/router";
import { tokenOf } from "../src/net/session";

describe("ranges", () => {
  it("reads and writes addresses of both families", () => {
    for (const text of ["10.96.0.1", "255.255.255.255", "fd00:10:96::a", "::1", "::", "fe80::1:2", "1:2:3:4:5:6:7:8", "2001:db8:0:1::"]) {
      const parsed = parseIp(text)!;
      expect(formatIp(parsed.value, parsed.v6)).toBe(text);
    }
    for (const text of ["", "10.96.0", "10.96.0.256", "1::2::3", "1:2:3:4:5:6:7:8:9", "g::1", "1:2:3:4:5:6:7"]) expect(parseIp(text), text).toBeNull();
  });

  it("knows where an address is", () => {
    const cidr = parseCidr("10.96.0.0/16")!;
    expect(cidr.size).toBe(65536n);
    expect(offsetIn(cidr, "10.96.1.2")).toBe(258n);
    expect([offsetIn(cidr, "10.97.0.0"), offsetIn(cidr, "fd00::1"), offsetIn(cidr, "None")]).toEqual([null, null, null]);
    expect([parseCidr("10.0.0.0/33"), parseCidr("x"), parseCidr("10.0.0.0/")]).toEqual([null, null, null]);
  });

  it("cuts any range into at most 256 cells that lose nobody", () => {
    const owners = [0n, 5n, 258n, 65535n].map((offset) => ({ offset, label: String(offset) }));
    const cut = cells(0n, 65536n, owners);
    expect(cut).toHaveLength(256);
    expect(cut.map((cell) => cell.owners.length).reduce((a, b) => a + b)).toBe(4);
    expect(cut[1]?.owners[0]?.label).toBe("258");
    const inner = cells(256n, 256n, owners);
    expect(inner[2]?.owners[0]?.label).toBe("258");
    expect(fullness(inner[2]!)).toBe(4);
    const ports = cells(0n, 2768n, [{ offset: 2767n, label: "last" }]);
    expect(ports.length).toBeLessThanOrEqual(256);
    expect(ports.reduce((sum, cell) => sum + cell.size, 0n)).toBe(2768n);
    expect(ports.at(-1)?.owners).toHaveLength(1);
    expect(cells(0n, 1n << 64n, [])).toHaveLength(256);
  });
});

describe("addresses of views", () => {
  it("lead where they say", () => {
    expect(parse(serviceHref("a/b"))).toEqual({ view: "service", namespace: "a", name: "b" });
    expect(parse("#/maps")).toEqual({ view: "maps" });
    expect(parse("#/service/only")).toEqual({ view: "overview" });
    expect(parse("#/service/%E0%A4%A/x")).toEqual({ view: "service", namespace: "%E0%A4%A", name: "x" });
    expect(tokenOf("#login=ab-_9")).toBe("ab-_9");
    expect([tokenOf("#/"), tokenOf("#login="), tokenOf("#login=a b")]).toEqual([null, null, null]);
  });
});
