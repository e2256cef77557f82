"""What the tests with the PyPI client share: a client for the server under test, and a namespace for each test.

The server is named by the kubeconfig in WAYPOST_KUBECONFIG. Every refusal is checked as programs see it: an ApiException
with a status and a Status object in its body.
"""
import json
import os
import unittest
import uuid

from kubernetes import client, config, dynamic

# How long one request, or one watch, may last.
PATIENCE = 60


class Case(unittest.TestCase):
    """A test with a namespace of its own."""

    @classmethod
    def setUpClass(cls):
        cls.api_client = config.new_client_from_config(os.environ["WAYPOST_KUBECONFIG"])
        cls.core = client.CoreV1Api(cls.api_client)
        cls.discovery = client.DiscoveryV1Api(cls.api_client)
        cls.dynamic = dynamic.DynamicClient(cls.api_client)
        cls.services = cls.dynamic.resources.get(api_version="v1", kind="Service")

    @classmethod
    def tearDownClass(cls):
        cls.api_client.close()

    def setUp(self):
        self.namespace = "py-" + uuid.uuid4().hex[:12]
        self.core.create_namespace({"metadata": {"name": self.namespace}})

    def create(self, name, **spec):
        """Creates a Service."""
        return self.core.create_namespaced_service(self.namespace, service(name, **spec))

    def grant(self, role, account):
        """Binds a ClusterRole to a ServiceAccount in the namespace of the test."""
        group = "rbac.authorization.k8s.io"
        client.RbacAuthorizationV1Api(self.api_client).create_namespaced_role_binding(self.namespace, {
            "metadata": {"name": "%s-%s" % (account, role)},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        })

    def refused(self, status, reason, call, *arguments, **options):
        """Calls, expects a refusal, and answers its Status."""
        with self.assertRaises(client.ApiException) as caught:
            call(*arguments, **options)
        body = json.loads(caught.exception.body)
        self.assertEqual((caught.exception.status, body["kind"], body["code"]), (status, "Status", status), body)
        self.assertEqual((body["status"], body["reason"]), ("Failure", reason), body)
        return body


def service(name, **spec):
    """A Service with one port."""
    spec = {"ports": [{"name": "http", "port": 80}], "selector": {"app": name}, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
