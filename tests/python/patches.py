"""JSON, merge and strategic patches, server-side apply, and patches of the status."""
import unittest

from support import Case, service

MERGE = "application/merge-patch+json"


class Patches(Case):
    def test_a_list_is_a_json_patch(self):
        self.create("web")
        patch = [
            {"op": "test", "path": "/spec/type", "value": "ClusterIP"},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
            {"op": "add", "path": "/spec/ports/-", "value": {"name": "https", "port": 443}},
            {"op": "replace", "path": "/spec/selector", "value": {"app": "other"}},
        ]
        patched = self.core.patch_namespaced_service("web", self.namespace, patch)
        self.assertEqual([port.port for port in patched.spec.ports], [80, 443])
        self.assertEqual((patched.metadata.labels, patched.spec.selector), ({"a": "b"}, {"app": "other"}))
        wrong = [{"op": "test", "path": "/spec/type", "value": "NodePort"}]
        self.refused(422, "Invalid", self.core.patch_namespaced_service, "web", self.namespace, wrong)

    def test_a_strategic_patch_merges_ports_by_their_number(self):
        self.create("web", ports=[{"name": "http", "port": 80}, {"name": "https", "port": 443}])
        patch = {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}
        patched = self.core.patch_namespaced_service("web", self.namespace, patch)
        self.assertEqual({port.port: port.target_port for port in patched.spec.ports}, {80: 8080, 443: 443})
        patch = {"spec": {"ports": [{"port": 443, "$patch": "delete"}]}}
        patched = self.core.patch_namespaced_service("web", self.namespace, patch)
        self.assertEqual([port.name for port in patched.spec.ports], ["http"])
        same = self.core.patch_namespaced_service("web", self.namespace, {"spec": {"type": "ClusterIP"}})
        self.assertEqual(same.metadata.resource_version, patched.metadata.resource_version)

    def test_a_merge_patch_replaces_lists_and_removes_nulls(self):
        self.create("web", ports=[{"name": "http", "port": 80}, {"name": "https", "port": 443}])
        body = {"spec": {"ports": [{"port": 81}], "selector": None}}
        patched = self.services.patch(name="web", namespace=self.namespace, body=body, content_type=MERGE)
        self.assertEqual([port.port for port in patched.spec.ports], [81])
        self.assertIsNone(patched.spec.selector)

    def test_the_status_is_a_part_of_its_own(self):
        made = self.create("web", type="LoadBalancer")
        body = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
        patched = self.core.patch_namespaced_service_status("web", self.namespace, body)
        self.assertEqual(patched.status.load_balancer.ingress[0].ip_mode, "VIP")
        self.assertEqual(patched.spec, made.spec)
        read = self.core.read_namespaced_service_status("web", self.namespace)
        self.assertEqual(read.status.load_balancer.ingress[0].ip, "192.0.2.1")

    def test_server_side_apply(self):
        def apply(port, manager, **options):
            body = service("applied", ports=[{"name": "p%d" % port, "port": port}], selector={"app": manager})
            return self.services.server_side_apply(
                namespace=self.namespace, body=body, field_manager=manager, **options)

        made = apply(80, "first")
        self.assertEqual([field.manager for field in made.metadata.managedFields], ["first"])
        again = apply(80, "first")
        self.assertEqual(again.metadata.resourceVersion, made.metadata.resourceVersion)
        status = self.refused(409, "Conflict", apply, 81, "second")
        self.assertEqual(status["message"], 'Apply failed with 1 conflict: conflict with "first": .spec.selector')
        self.assertEqual([cause["reason"] for cause in status["details"]["causes"]], ["FieldManagerConflict"])
        forced = apply(81, "second", force_conflicts=True)
        self.assertEqual(sorted(port.port for port in forced.spec.ports), [80, 81])
        self.assertEqual(forced.spec.selector.app, "second")


if __name__ == "__main__":
    unittest.main()
