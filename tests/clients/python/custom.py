"""Custom resources with the PyPI client: the definition, its objects, a watch, subresources and a refusal."""
import unittest

from kubernetes import client, watch

from support import Case

GROUP, VERSION, PLURAL = "python.example.com", "v1", "jobs"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP, "scope": "Namespaced", "names": {"plural": PLURAL, "singular": "job", "kind": "Job"},
        "versions": [{
            "name": VERSION, "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 10, "default": 1}}},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
            }}},
        }],
    },
}


class Custom(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.extensions = client.ApiextensionsV1Api(cls.api_client)
        cls.custom = client.CustomObjectsApi(cls.api_client)
        cls.extensions.create_custom_resource_definition(DEFINITION)
        name = DEFINITION["metadata"]["name"]
        for event in watch.Watch().stream(cls.extensions.list_custom_resource_definition, field_selector=f"metadata.name={name}", timeout_seconds=30):
            conditions = event["object"].status.conditions or [] if event["object"].status else []
            if any(one.type == "Established" and one.status == "True" for one in conditions):
                return
        raise AssertionError("not established")

    @classmethod
    def tearDownClass(cls):
        cls.extensions.delete_custom_resource_definition(DEFINITION["metadata"]["name"])
        super().tearDownClass()

    def make(self, name, **spec):
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        return self.custom.create_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, body)

    def test_an_object_is_defaulted_read_patched_listed_and_deleted(self):
        self.assertEqual(self.make("a")["spec"], {"size": 1})
        self.custom.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, "a", {"spec": {"size": 3}})
        listed = self.custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)
        self.assertEqual([(one["metadata"]["name"], one["spec"]["size"]) for one in listed["items"]], [("a", 3)])
        self.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, "a")
        self.refused(404, "NotFound", self.custom.get_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL, "a")

    def test_the_status_is_written_by_itself(self):
        self.make("a", size=2)
        body = {"spec": {"size": 9}, "status": {"phase": "Done"}}
        self.custom.patch_namespaced_custom_object_status(GROUP, VERSION, self.namespace, PLURAL, "a", body)
        found = self.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, "a")
        self.assertEqual((found["spec"], found["status"]), ({"size": 2}, {"phase": "Done"}))

    def test_a_wrong_object_is_refused(self):
        refused = self.refused(422, "Invalid", self.make, "a", size=11)
        self.assertEqual(refused["details"]["causes"][0]["field"], "spec.size")

    def test_a_watch_sees_changes(self):
        self.make("a")
        seen, watcher = [], watch.Watch()
        for event in watcher.stream(self.custom.list_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL, timeout_seconds=30):
            seen.append((event["type"], event["object"]["metadata"]["name"]))
            if len(seen) == 1:
                self.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, "a")
            if seen[-1][0] == "DELETED":
                watcher.stop()
        self.assertEqual(seen, [("ADDED", "a"), ("DELETED", "a")])

    def test_the_dynamic_client_finds_the_kind(self):
        resource = self.dynamic.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Job")
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Job", "metadata": {"name": "b"}, "spec": {"size": 4}}
        resource.server_side_apply(body=body, namespace=self.namespace, field_manager="python")
        self.assertEqual(resource.get(name="b", namespace=self.namespace).spec.size, 4)


if __name__ == "__main__":
    unittest.main()
