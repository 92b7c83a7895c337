"""Two network namespaces joined by two veth pairs: `cluster0` and `other0`."""
import os
import pathlib
import shutil
import subprocess


def available():
    return os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("iptables") is not None


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class TwoNodes:
    def __init__(self):
        number = os.getpid() % 200
        self.names = [f"tutti-test-{os.getpid()}-{node}" for node in (1, 2)]
        self.addresses = {"cluster0": [f"10.233.{number}.1", f"10.233.{number}.2"],
                          "other0": [f"10.234.{number}.1", f"10.234.{number}.2"]}
        for name in self.names:
            ip("netns", "add", name)
        one, two = self.names
        for device, addresses in self.addresses.items():
            ip("-n", one, "link", "add", device, "type", "veth", "peer", "name", device, "netns", two)
            for name, address in zip(self.names, addresses):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
        for name in self.names:
            ip("-n", name, "link", "set", "lo", "up")

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def sent_bytes(self, node, device):
        path = f"/sys/class/net/{device}/statistics/tx_bytes"
        # `ip netns exec` mounts the namespace's own /sys.
        output = subprocess.run(["ip", "netns", "exec", self.names[node], "cat", path], check=True, capture_output=True, text=True)
        return int(output.stdout)

    def cut(self, device):
        ip("-n", self.names[1], "link", "set", device, "down")

    def mend(self, device):
        ip("-n", self.names[1], "link", "set", device, "up")

    def add_twin(self, device, address):
        """A device that leads nowhere, with the same address on both nodes, as container bridges have."""
        for name in self.names:
            ip("-n", name, "link", "add", device, "type", "veth", "peer", "name", device + "-end")
            ip("-n", name, "link", "set", device + "-end", "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")

    def swallow(self, device):
        """From now on node 2 hears nothing and is not heard, and nobody is told."""
        for chain, option in (("INPUT", "-i"), ("OUTPUT", "-o")):
            subprocess.run(["ip", "netns", "exec", self.names[1], "iptables", "-A", chain, option, device, "-j", "DROP"],
                           check=True, capture_output=True)


MODEL_SHAPE = {"layers": 12, "hidden": 576}  # of scripts/make_random_model.py


def smallest_payload(num_tokens):
    """Bytes that a rank of TP=2 cannot avoid to send: a half of one float32 hidden row for each layer and token."""
    return num_tokens * MODEL_SHAPE["layers"] * MODEL_SHAPE["hidden"] * 4 // 2


def real_model():
    """A real model: what TUTTI_TEST_MODEL names, or the one that the demo keeps; None when there is none."""
    kept = pathlib.Path.home() / ".cache" / "tutti" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    path = pathlib.Path(os.environ.get("TUTTI_TEST_MODEL", kept))
    return str(path) if path.exists() else None
