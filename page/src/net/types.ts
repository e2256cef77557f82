// The members of Kubernetes objects that the page uses. Everything that a server may omit is optional.

export interface Meta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  managedFields?: unknown;
}

export interface Obj {
  metadata: Meta;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
}

export interface ServicePort {
  name?: string;
  protocol?: string;
  port: number;
  targetPort?: number | string;
  nodePort?: number;
}

export interface Service extends Obj {
  spec: {
    type?: string;
    clusterIP?: string;
    clusterIPs?: string[];
    externalIPs?: string[];
    externalName?: string;
    selector?: Record<string, string>;
    ports?: ServicePort[];
    healthCheckNodePort?: number;
    publishNotReadyAddresses?: boolean;
    externalTrafficPolicy?: string;
  };
  status?: {
    conditions?: Condition[];
    loadBalancer?: { ingress?: { ip?: string; hostname?: string }[] };
  };
}

export interface Ref {
  kind?: string;
  name?: string;
  namespace?: string;
}

export interface Endpoint {
  addresses: string[];
  conditions?: { ready?: boolean; serving?: boolean; terminating?: boolean };
  nodeName?: string;
  zone?: string;
  targetRef?: Ref;
}

export interface Slice extends Obj {
  addressType: string;
  endpoints?: Endpoint[] | null;
  ports?: { name?: string; protocol?: string; port?: number }[] | null;
}

export interface Pod extends Obj {
  spec?: { hostNetwork?: boolean };
  status?: { podIPs?: { ip: string }[] };
}

export interface Node extends Obj {
  spec?: { podCIDRs?: string[]; podCIDR?: string };
  status?: { conditions?: Condition[]; addresses?: { type: string; address: string }[] };
}

export interface KubeEvent extends Obj {
  involvedObject: Ref;
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string | null;
  lastTimestamp?: string | null;
  eventTime?: string | null;
  series?: { count?: number; lastObservedTime?: string };
}

export interface ServiceCidr extends Obj {
  spec: { cidrs?: string[] };
}

/** `namespace/name`, or the name of a cluster-scoped object. */
export const keyOf = (object: Obj): string =>
  object.metadata.namespace ? `${object.metadata.namespace}/${object.metadata.name}` : object.metadata.name;
