"""kube-apiserver with etcd, for answers to compare with. It uses the keys and the kubeconfig of a `waypost server` that ran before."""
import subprocess

from .bed import Server, until


class Reference(Server):
    """The same as a Server to its users."""

    def __init__(self, bed, name):
        super().__init__(bed, "server", name)
        self.peers, self.etcd = bed.peers, None

    def start(self):
        super().start()
        self.end()  # Its data directory has the keys now.
        keys = self.data / "pki"
        log = open(self.home / "reference.log", "ab")
        self.etcd = subprocess.Popen([str(self.peers / "etcd"), "--data-dir", str(self.home / "etcd"), "--log-level=error"], stdout=log, stderr=log)
        self.process = subprocess.Popen([
            str(self.peers / "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1", "--secure-port=17443",
            f"--tls-cert-file={keys}/server.crt", f"--tls-private-key-file={keys}/server.key", f"--client-ca-file={keys}/ca.crt",
            f"--service-account-key-file={keys}/server.crt", f"--service-account-signing-key-file={keys}/server.key",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none", "--advertise-address=198.51.100.7",
        ], stdout=log, stderr=log)
        until(self.is_ready, f"kube-apiserver is ready; see {self.home}/reference.log", 180)

    def __exit__(self, *_):
        self.end()
        if self.etcd is not None:
            self.etcd.kill()
            self.etcd.wait()
