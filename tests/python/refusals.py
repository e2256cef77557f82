"""The bodies of refusals: what a program can read in them."""
import unittest

from kubernetes import client

from support import Case, service


class Refusals(Case):
    def create_refused(self, status, reason, body):
        return self.refused(status, reason, self.core.create_namespaced_service, self.namespace, body)

    def test_not_found(self):
        status = self.refused(404, "NotFound", self.core.read_namespaced_service, "none", self.namespace)
        self.assertEqual(status["message"], 'services "none" not found')
        self.assertEqual(status["details"], {"name": "none", "kind": "services"})
        status = self.refused(404, "NotFound", self.core.create_namespaced_service, "nowhere", service("x"))
        self.assertEqual(status["details"]["kind"], "namespaces")
        status = self.refused(404, "NotFound", self.discovery.read_namespaced_endpoint_slice, "none", self.namespace)
        self.assertEqual(status["details"]["group"], "discovery.k8s.io")

    def test_already_there(self):
        self.create("web")
        status = self.create_refused(409, "AlreadyExists", service("web"))
        self.assertEqual(status["message"], 'services "web" already exists')

    def test_every_wrong_field_is_a_cause(self):
        ports = [{"port": 80, "name": "123_abc"}, {"port": 81, "name": "-web", "protocol": "ICMP"}]
        status = self.create_refused(422, "Invalid", service("wrong", clusterIP="None", ports=ports))
        causes = {cause["field"]: cause["reason"] for cause in status["details"]["causes"]}
        self.assertEqual(causes, {
            "spec.ports[0].name": "FieldValueInvalid",
            "spec.ports[1].name": "FieldValueInvalid",
            "spec.ports[1].protocol": "FieldValueNotSupported",
        })
        self.assertTrue(status["message"].startswith('Service "wrong" is invalid: [spec.ports[0].name: Invalid value'))

    def test_an_address_that_is_taken_or_out_of_range(self):
        address = self.create("first").spec.cluster_ip
        status = self.create_refused(422, "Invalid", service("second", clusterIP=address))
        self.assertIn("provided IP is already allocated", status["message"])
        status = self.create_refused(422, "Invalid", service("third", clusterIP="192.0.2.1"))
        self.assertEqual(status["details"]["causes"][0]["field"], "spec.clusterIPs")

    def test_a_body_that_is_not_what_it_should_be(self):
        status = self.create_refused(400, "BadRequest", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}})
        self.assertIn("cannot be handled as a Service", status["message"])
        odd = {**service("x"), "frob": 1}
        with self.assertRaises(client.ApiException) as caught:
            self.services.create(body=odd, namespace=self.namespace, query_params=[("fieldValidation", "Strict")])
        self.assertEqual(caught.exception.status, 400)
        self.assertIn('unknown field', str(caught.exception.body))

    def test_a_delete_whose_precondition_does_not_hold(self):
        self.create("web")
        options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="someone-else"))
        delete = self.core.delete_namespaced_service
        status = self.refused(409, "Conflict", delete, "web", self.namespace, body=options)
        self.assertIn("does not match the UID in record", status["message"])

    def test_no_credentials_and_not_enough_of_them(self):
        anonymous = client.Configuration()
        known = self.api_client.configuration
        anonymous.host, anonymous.ssl_ca_cert = known.host, known.ssl_ca_cert
        with client.ApiClient(anonymous) as nobody:
            status = self.refused(403, "Forbidden", client.CoreV1Api(nobody).list_namespaced_service, self.namespace)
        self.assertIn('User "system:anonymous" cannot list resource "services"', status["message"])
        with client.ApiClient(anonymous, "authorization", "Bearer nonsense") as stranger:
            self.refused(401, "Unauthorized", client.CoreV1Api(stranger).list_namespaced_service, self.namespace)
        self.core.create_namespaced_service_account(self.namespace, {"metadata": {"name": "robot"}})
        request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
        answer = self.core.create_namespaced_service_account_token("robot", self.namespace, request)
        with client.ApiClient(anonymous, "authorization", "Bearer " + answer.status.token) as robot:
            core = client.CoreV1Api(robot)
            self.refused(403, "Forbidden", core.list_namespaced_service, self.namespace)
            self.grant("view", "robot")
            self.assertEqual(core.list_namespaced_service(self.namespace).items, [])
            status = self.refused(403, "Forbidden", core.create_namespaced_service, self.namespace, service("x"))
        user = "system:serviceaccount:%s:robot" % self.namespace
        self.assertIn('User "%s" cannot create resource "services"' % user, status["message"])


if __name__ == "__main__":
    unittest.main()
