"""Create, read, update, delete and list with the PyPI client."""
import unittest

from kubernetes import client, watch

from support import PATIENCE, Case, service


class Crud(Case):
    def test_a_typed_service_is_created_read_replaced_and_deleted(self):
        wanted = client.V1Service(
            metadata=client.V1ObjectMeta(name="web", labels={"tier": "front"}),
            spec=client.V1ServiceSpec(
                selector={"app": "web"},
                ports=[client.V1ServicePort(port=80, target_port="http-web", app_protocol="http")],
                session_affinity="ClientIP",
            ),
        )
        made = self.core.create_namespaced_service(self.namespace, wanted)
        self.assertTrue(made.spec.cluster_ip.startswith("10.96."))
        self.assertEqual(made.spec.ports[0].target_port, "http-web")
        self.assertEqual(made.spec.session_affinity_config.client_ip.timeout_seconds, 10800)
        self.assertEqual(self.core.read_namespaced_service("web", self.namespace), made)

        made.metadata.labels["tier"] = "back"
        replaced = self.core.replace_namespaced_service("web", self.namespace, made)
        self.assertEqual(replaced.metadata.labels, {"tier": "back"})
        self.assertNotEqual(replaced.metadata.resource_version, made.metadata.resource_version)
        status = self.refused(409, "Conflict", self.core.replace_namespaced_service, "web", self.namespace, made)
        self.assertIn("the object has been modified", status["message"])

        gone = self.core.delete_namespaced_service("web", self.namespace)
        self.assertEqual(gone.metadata.uid, made.metadata.uid)
        self.refused(404, "NotFound", self.core.read_namespaced_service, "web", self.namespace)

    def test_endpoints_and_slices(self):
        endpoints = client.V1Endpoints(
            metadata=client.V1ObjectMeta(name="db"),
            subsets=[client.V1EndpointSubset(
                addresses=[client.V1EndpointAddress(ip="192.0.2.42")],
                ports=[client.CoreV1EndpointPort(port=9376)],
            )],
        )
        made = self.core.create_namespaced_endpoints(self.namespace, endpoints)
        self.assertEqual(made.subsets[0].ports[0].protocol, "TCP")
        self.assertEqual(self.core.read_namespaced_endpoints("db", self.namespace).subsets, made.subsets)

        piece = client.V1EndpointSlice(
            metadata=client.V1ObjectMeta(name="db-1", labels={"kubernetes.io/service-name": "other"}),
            address_type="IPv6",
            endpoints=[client.V1Endpoint(addresses=["2001:db8::1"], conditions=client.V1EndpointConditions(ready=True))],
            ports=[client.DiscoveryV1EndpointPort(name="", port=5432)],
        )
        made = self.discovery.create_namespaced_endpoint_slice(self.namespace, piece)
        self.assertEqual((made.address_type, made.endpoints[0].addresses), ("IPv6", ["2001:db8::1"]))
        found = self.discovery.list_namespaced_endpoint_slice(
            self.namespace, label_selector="kubernetes.io/service-name=other")
        self.assertEqual([one.metadata.name for one in found.items], ["db-1"])
        self.discovery.delete_namespaced_endpoint_slice("db-1", self.namespace)

    def test_lists_with_selectors(self):
        self.create("a", type="NodePort")
        self.create("b")
        self.create("c", clusterIP="None")
        label = {"metadata": {"labels": {"tier": "front"}}}
        self.core.patch_namespaced_service("b", self.namespace, label)

        def names(**options):
            listed = self.core.list_namespaced_service(self.namespace, **options)
            return [one.metadata.name for one in listed.items]

        self.assertEqual(names(), ["a", "b", "c"])
        self.assertEqual(names(label_selector="tier in (front, back)"), ["b"])
        self.assertEqual(names(label_selector="!tier"), ["a", "c"])
        self.assertEqual(names(label_selector="tier!=front"), ["a", "c"])
        self.assertEqual(names(field_selector="metadata.name!=a"), ["b", "c"])
        self.assertEqual(names(field_selector="spec.clusterIP=None"), ["c"])
        self.assertEqual(names(field_selector="spec.type=NodePort,metadata.name=a"), ["a"])
        everywhere = self.core.list_service_for_all_namespaces(field_selector="metadata.namespace=" + self.namespace)
        self.assertEqual(len(everywhere.items), 3)

    def test_pages_are_of_one_moment(self):
        for number in range(7):
            self.create("web-%d" % number)
        first = self.core.list_namespaced_service(self.namespace, limit=3)
        self.assertEqual(first.metadata.remaining_item_count, 4)
        self.create("web-9")
        self.core.delete_namespaced_service("web-6", self.namespace)
        names, page = [], first
        for _ in range(10):
            names += [one.metadata.name for one in page.items]
            self.assertEqual(page.metadata.resource_version, first.metadata.resource_version)
            if not page.metadata._continue:
                break
            page = self.core.list_namespaced_service(self.namespace, limit=3, _continue=page.metadata._continue)
        self.assertEqual(names, ["web-%d" % number for number in range(7)])
        self.refused(400, "BadRequest", self.core.list_namespaced_service, self.namespace, limit=3, _continue="frob")

    def test_dry_runs_generated_names_and_deletions_of_many(self):
        dry = self.core.create_namespaced_service(self.namespace, service("dry"), dry_run="All")
        self.assertEqual(dry.metadata.name, "dry")
        named = service("x")
        named["metadata"] = {"generateName": "gen-", "labels": {"made": "so"}}
        made = [self.core.create_namespaced_service(self.namespace, named).metadata.name for _ in range(3)]
        self.assertEqual(len(set(made)), 3)
        self.assertTrue(all(name.startswith("gen-") for name in made), made)
        self.create("stays")
        self.core.delete_collection_namespaced_service(self.namespace, label_selector="made=so")
        left = self.core.list_namespaced_service(self.namespace)
        self.assertEqual([one.metadata.name for one in left.items], ["stays"])

    def test_a_namespace_that_is_going_takes_nothing_in_and_goes_when_it_is_finalized(self):
        self.create("web")
        held = self.core.read_namespace(self.namespace)
        held.spec.finalizers.append("example.com/audit")
        self.core.replace_namespace_finalize(self.namespace, held)
        version = self.core.list_namespace().metadata.resource_version
        self.core.delete_namespace(self.namespace)
        create = self.core.create_namespaced_service
        status = self.refused(403, "Forbidden", create, self.namespace, service("late"))
        self.assertEqual(status["details"]["causes"][0]["reason"], "NamespaceTerminating")
        watcher, seen = watch.Watch(), []
        stream = watcher.stream(
            self.core.list_namespace, field_selector="metadata.name=" + self.namespace, resource_version=version,
            timeout_seconds=PATIENCE)
        for event in stream:
            going = event["object"]
            seen.append((event["type"], going.status.phase))
            if event["type"] == "DELETED":
                watcher.stop()
            elif going.spec.finalizers == ["example.com/audit"]:
                self.assertEqual(self.core.list_namespaced_service(self.namespace).items, [])
                going.spec.finalizers = []
                self.core.replace_namespace_finalize(self.namespace, going)
        self.assertEqual((seen[0], seen[-1]), (("MODIFIED", "Terminating"), ("DELETED", "Terminating")))

    def test_the_dynamic_client_finds_kinds_by_itself(self):
        self.assertTrue(self.dynamic.version["kubernetes"]["gitVersion"].startswith("v1."))
        made = self.services.create(body=service("dyn"), namespace=self.namespace)
        self.assertEqual(made.spec.type, "ClusterIP")
        slices = self.dynamic.resources.get(api_version="discovery.k8s.io/v1", kind="EndpointSlice")
        self.assertEqual(slices.get(namespace=self.namespace, label_selector="none=here").items, [])
        groups = [group.name for group in client.ApisApi(self.api_client).get_api_versions().groups]
        self.assertIn("networking.k8s.io", groups)
        self.assertTrue(client.VersionApi(self.api_client).get_code().git_version.startswith("v1."))


if __name__ == "__main__":
    unittest.main()
