"""A TCP proxy between a joined job and the coordinator, which can be cut, delayed and throttled.

A cut direction takes no more bytes and closes nothing: both ends see a peer that is silent, as behind a dead switch.
"""

import random
import selectors
import socket
import threading
import time


class Proxy:
    """From a port of its own to the port `target`, both of the loop-back interface."""

    def __init__(self, target, seed):
        self.target = target
        self.random = random.Random(seed)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.cut_up = self.cut_down = False  # to the coordinator, and from it
        self.delay, self.rate = 0.0, 0.0  # seconds, bytes a second (0: any)
        self.bytes = 0
        self.done = False
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def cut(self, up, down):
        self.cut_up, self.cut_down = up, down

    def accept(self):
        self.listener.settimeout(0.1)
        while not self.done:
            try:
                client, _ = self.listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for source, sink, up in ((client, server, True), (server, client, False)):
                thread = threading.Thread(target=self.pass_on, args=(source, sink, up), daemon=True)
                thread.start()
                self.threads.append(thread)

    def pass_on(self, source, sink, up):
        selector = selectors.DefaultSelector()
        selector.register(source, selectors.EVENT_READ)
        try:
            while not self.done:
                if (self.cut_up if up else self.cut_down) or not selector.select(0.05):
                    time.sleep(0.01 if self.cut_up or self.cut_down else 0)
                    continue
                data = source.recv(65536)
                if not data:
                    break
                if self.delay:
                    time.sleep(self.delay * self.random.uniform(0.5, 1.5))
                if self.rate:
                    time.sleep(len(data) / self.rate)
                sink.sendall(data)
                self.bytes += len(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.done = True
        self.listener.close()
        for thread in self.threads:
            thread.join(timeout=5)
