"""Watches with the PyPI client: changes in order, selectors, bookmarks, and a clean end."""
import unittest

from kubernetes import watch

from support import PATIENCE, Case


class Watches(Case):
    def events(self, count, **options):
        """The first events of a watch on the namespace: types and names."""
        watcher, seen = watch.Watch(), []
        stream = watcher.stream(
            self.core.list_namespaced_service, self.namespace, timeout_seconds=PATIENCE, **options)
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == count:
                watcher.stop()
        return seen

    def test_a_watch_from_a_revision_sees_what_came_after(self):
        self.create("before")
        version = self.core.list_namespaced_service(self.namespace).metadata.resource_version
        self.create("web")
        self.core.patch_namespaced_service("web", self.namespace, {"metadata": {"labels": {"a": "b"}}})
        self.core.delete_namespaced_service("web", self.namespace)
        expected = [("ADDED", "web"), ("MODIFIED", "web"), ("DELETED", "web")]
        self.assertEqual(self.events(3, resource_version=version), expected)

    def test_a_watch_without_a_revision_begins_with_what_is_there(self):
        self.create("a")
        self.create("b")
        self.assertEqual(self.events(2), [("ADDED", "a"), ("ADDED", "b")])

    def test_a_watch_goes_on_while_others_write(self):
        self.create("first")
        watcher, seen = watch.Watch(), []
        stream = watcher.stream(self.core.list_namespaced_service, self.namespace, timeout_seconds=PATIENCE)
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) < 5:
                self.create("next-%d" % len(seen))
            else:
                watcher.stop()
        self.assertEqual(seen, [("ADDED", "first")] + [("ADDED", "next-%d" % number) for number in range(1, 5)])

    def test_selectors_on_watches(self):
        version = self.core.list_namespaced_service(self.namespace).metadata.resource_version
        self.create("a")
        self.create("b")
        for label in ["front", "back"]:
            self.core.patch_namespaced_service("a", self.namespace, {"metadata": {"labels": {"tier": label}}})
        self.core.patch_namespaced_service("b", self.namespace, {"metadata": {"labels": {"tier": "front"}}})
        seen = self.events(3, resource_version=version, label_selector="tier=front")
        self.assertEqual(seen, [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")])
        seen = self.events(2, resource_version=version, field_selector="metadata.name=b")
        self.assertEqual(seen, [("ADDED", "b"), ("MODIFIED", "b")])

    def test_a_watch_ends_when_its_time_is_over(self):
        self.create("a")
        stream = watch.Watch().stream(self.core.list_namespaced_service, self.namespace, timeout_seconds=1)
        self.assertEqual([event["type"] for event in stream], ["ADDED"])

    def test_bookmarks_come_when_they_are_allowed(self):
        version = self.core.list_namespaced_service(self.namespace).metadata.resource_version
        self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": "elsewhere"}})
        stream = watch.Watch().stream(
            self.core.list_namespaced_service, self.namespace, resource_version=version, timeout_seconds=4,
            allow_watch_bookmarks=True)
        seen = [(event["type"], event["raw_object"]["metadata"]["resourceVersion"]) for event in stream]
        self.assertEqual([kind for kind, _ in seen], ["BOOKMARK"])
        self.assertGreater(int(seen[0][1]), int(version))


if __name__ == "__main__":
    unittest.main()
