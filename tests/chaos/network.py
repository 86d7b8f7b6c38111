"""Scenarios with a network of its own for a joined job: a namespace at the end of a cable (a pair of veth devices) that
is pulled, loses one direction, or is thin. The job calls the coordinator at the near end, as from another machine.
Delays and random losses want the kernel's netem; where it is missing, proxy.py plays the delays."""

import os
import subprocess
import time

from disk_and_network import end_with_jobs, wait_until
from scenario import scenario


def call(*words):
    return subprocess.run([str(word) for word in words], stderr=subprocess.DEVNULL, check=False).returncode == 0


class Cable:
    """Two ends, `near` here and `far` in the namespace. `usable` is False where there is no right to make them."""

    def __init__(self):
        number = os.getpid() % 250
        self.name = f"chaos{os.getpid()}"
        self.near, self.far = f"n{os.getpid()}", f"f{os.getpid()}"
        self.near_address, self.far_address = f"10.77.{number}.1", f"10.77.{number}.2"
        self.inside = ["nsenter", f"--net=/run/netns/{self.name}"]
        self.usable = (
            call("ip", "netns", "add", self.name)
            and call("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns", self.name)
            and call("ip", "address", "add", f"{self.near_address}/30", "dev", self.near)
            and call("ip", "link", "set", self.near, "up")
            and call(*self.inside, "ip", "address", "add", f"{self.far_address}/30", "dev", self.far)
            and call(*self.inside, "ip", "link", "set", self.far, "up")
            and call(*self.inside, "ip", "link", "set", "lo", "up")
        )

    def pull(self, pulled=True):
        call("ip", "link", "set", self.near, "down" if pulled else "up")

    def lose(self, to_far):
        """What one end sends goes to nobody: its neighbour's address is wrong."""
        inside, device, address = self.ends()[0 if to_far else 1]
        call(*inside, "ip", "neighbour", "replace", address, "lladdr", "02:00:00:00:00:99", "dev", device)

    def heal(self):
        for inside, device, address in self.ends():
            call(*inside, "ip", "neighbour", "delete", address, "dev", device)

    def throttle(self):
        """1 Mbit/s in both directions, and a queue that is soon full: what finds no room is lost."""
        for inside, device, _ in self.ends():
            words = "root tbf rate 1mbit burst 4kb limit 8kb".split()
            call(*inside, "tc", "qdisc", "replace", "dev", device, *words)

    def ends(self):
        """(command, device, address of the other end): the near end, the far end."""
        return ([], self.near, self.far_address), (self.inside, self.far, self.near_address)

    def remove(self):
        call("ip", "link", "delete", self.near)
        call("ip", "netns", "delete", self.name)


def over_cable(run, disturb):
    cable = Cable()
    try:
        if not cable.usable:
            print("skipped: no right to make a network namespace")
            return
        run.start(3, ranks__host=cable.near_address)
        run.wait_rows(1)
        line = (run.directory / "join").read_text(encoding="utf-8").strip()
        run.check(line.startswith(f"tcp://{cable.near_address}:"), f"the join file does not name the near end: {line}")
        run.join(1, where=line, inside=cable.inside)
        wait_until(run, lambda: "groups 1000" in run.log_text())
        run.pause(0, 0.3)
        disturb(cable)
        end_with_jobs(run)
    finally:
        cable.remove()


@scenario("P1-cable", "a job's cable is pulled for 3 s, and put back", {"run/iterations": 30})
def pulled(run):
    def disturb(cable):
        cable.pull()
        time.sleep(3)
        cable.pull(False)

    over_cable(run, disturb)


@scenario("P1-away", "a job's cable is pulled for 15 s, longer than a silence may last", {"run/iterations": 100})
def pulled_long(run):
    def disturb(cable):
        cable.pull()
        time.sleep(15)
        cable.pull(False)

    over_cable(run, disturb)


@scenario("P2-cable", "packets of one direction are lost for 2 s; then 1 Mbit/s with losses", {"run/iterations": 30})
def one_way_lost(run):
    def disturb(cable):
        cable.lose(run.random.random() < 0.5)
        time.sleep(2)
        cable.heal()
        cable.throttle()

    over_cable(run, disturb)


@scenario("P3-cable", "a job's cable is pulled and stays so")
def pulled_for_good(run):
    over_cable(run, lambda cable: cable.pull())
