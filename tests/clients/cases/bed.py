"""The server under test, programs that run against it, and the report."""
import base64
import contextlib
import json
import pathlib
import shlex
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import yaml

HERE = pathlib.Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A case did not behave as it must; the text says how."""


def expect(condition, text):
    if not condition:
        raise Failed(text)


class Result:
    """How a program ended."""

    def __init__(self, command, done):
        self.command, self.code, self.out, self.err = command, done.returncode, done.stdout, done.stderr

    def __str__(self):
        return f"{shlex.join(map(str, self.command))}: exit status {self.code}\n{self.out[-1500:]}{self.err[-1500:]}"


def run(command, text="", code=0, env=None, timeout=180, cwd=None):
    """Runs a program to its end; any exit status but the expected one fails the case. `None` expects none."""
    try:
        done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True, timeout=timeout, env=env, cwd=cwd, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{shlex.join(map(str, command))}: still running after {timeout} s\n{error.stdout or ''}{error.stderr or ''}") from error
    result = Result(command, done)
    expect(code is None or result.code == code, str(result))
    return result


def until(condition, what, seconds=60):
    """Polls what happens in other processes and returns the first value that counts as true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise Failed(f"not after {seconds} s: {what}")


class Server:
    """`waypost server` or `waypost up` with a data directory of its own."""

    def __init__(self, bed, kind, name, *arguments):
        self.home = bed.scratch / name
        self.home.mkdir(mode=0o755)
        self.data = self.home / "data"
        self.command = [bed.waypost, kind, "--data-dir", self.data, "--listen", "127.0.0.1:17443", *arguments]
        if kind == "up":
            self.command += ["--node-name", "n1"]
        self.kind, self.waypost, self.process = kind, bed.waypost, None
        self.kubeconfig = self.data / "kubeconfig"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)
        if self.kind == "up":
            subprocess.run([self.waypost, "cleanup", "--data-dir", self.data], capture_output=True, check=False)

    def start(self):
        log = open(self.home / "log", "ab")
        self.process = subprocess.Popen(list(map(str, self.command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self.is_ready, f"the server is ready; see {self.home}/log", 60)

    def is_ready(self):
        expect(self.process.poll() is None, f"the server ended: {(self.home / 'log').read_text()[-2000:]}")
        try:
            return self.get("/readyz") == b"ok" and (self.kind != "up" or self.has_ready_node())
        except (OSError, urllib.error.URLError, ssl.SSLError):
            return False

    def has_ready_node(self):
        nodes = json.loads(self.get("/api/v1/nodes"))["items"]
        return any(one["type"] == "Ready" and one["status"] == "True" for node in nodes for one in node["status"].get("conditions", []))

    def get(self, path):
        context, address = self.trust()
        with urllib.request.urlopen(address + path, context=context, timeout=5) as response:
            return response.read()

    def trust(self):
        """TLS as the administrator, and the address of the server."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        parts = {"ca": cluster, "crt": user, "key": user}
        names = {"ca": "certificate-authority", "crt": "client-certificate", "key": "client-key"}
        paths = {}
        for part, holder in parts.items():
            paths[part] = self.home / f"admin.{part}"
            if names[part] in holder:
                paths[part] = holder[names[part]]
            else:
                paths[part].write_bytes(base64.b64decode(holder[names[part] + "-data"]))
        context = ssl.create_default_context(cafile=str(paths["ca"]))
        context.load_cert_chain(str(paths["crt"]), str(paths["key"]))
        return context, cluster["server"]

    def end(self, how=signal.SIGKILL):
        """Ends the server, by default as kill -9 does."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def restart(self):
        self.end()
        self.start()


class Bed:
    """Programs, scratch space and the report."""

    def __init__(self, waypost, programs, scratch):
        self.waypost, self.programs, self.scratch = waypost, programs, scratch
        self.rows = []

    def kubectl(self, server, minor="1.36"):
        """A function that runs kubectl: `kubectl("get pods", text="", code=0)`; words are split as a shell does."""
        program = self.programs / f"kubectl-{minor}"

        def call(line, text="", code=0, **options):
            words = line if isinstance(line, list) else shlex.split(line)
            cache = server.home / f"cache-{minor}"
            return run([program, "--kubeconfig", server.kubeconfig, "--cache-dir", cache, *words], text, code, **options)

        return call

    @contextlib.contextmanager
    def case(self, program, name):
        """One cell of the matrix. `note.append(…)` in its body adds figures."""
        begin, notes = time.monotonic(), []
        try:
            yield notes
            outcome = "ok"
        except Failed as error:
            outcome = "FAILED"
            notes = [str(error)]
        except Exception as error:  # A case that breaks is a failed case; the others go on.
            outcome = "FAILED"
            notes = [f"{type(error).__name__}: {error}"]
        seconds = time.monotonic() - begin
        self.rows.append((program, name, outcome, seconds, "; ".join(notes)))
        print(f"{outcome}\t{program}\t{name}\t{seconds:.1f} s\t{'; '.join(notes)}", flush=True)
