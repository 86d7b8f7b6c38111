"""The program never touches kernel memory but by the operations that may: with a back end whose memory the host cannot
read (tests/device) every kind of run works, and ends with the same bits.

SPOTLIGHT_GUARDED names that program.
"""

import os
import unittest

import spotlight_run as sr

GUARDED = os.environ["SPOTLIGHT_GUARDED"]
ADAPTER = {"lora__rank": 4, "sampler__guidance": 2.0, "sampler__negative_prompt": "a photo of a", "train__kl_beta": 0.01}
CACHED = {"explore__cache": "tea", "explore__cache_threshold": 0.1, "train__ema_decay": 0.9, "model__recompute": "true"}
SHARDED = {"ranks__trainers": 2, "train__shard_weights": "true", "model__precision": "bf16", "train__micro_batch": 4}


class DeviceMemory(sr.RunTest):
    def train_guarded(self, name, ranks, **settings):
        usual, sr.BINARY = sr.BINARY, GUARDED
        try:
            result = sr.train(self.folder / name, ranks=ranks, run__iterations=2, **settings)
        finally:
            sr.BINARY = usual
        self.assert_code(sr.FINISHED, result)

    def compare(self, ranks=0, **settings):
        self.train_guarded("guarded", ranks, **settings)
        self.assert_code(sr.FINISHED, sr.train(self.folder / "usual", ranks=ranks, run__iterations=2, **settings))
        self.assert_same_run(self.folder / "guarded", self.folder / "usual")

    def test_one_process(self):
        self.compare()

    def test_adapter_guidance_and_kl(self):
        self.compare(**ADAPTER)

    def test_cached_exploration_average_and_recomputation(self):
        self.compare(**CACHED)

    def test_groups_of_explorers(self):
        self.compare(ranks=4, ranks__explorer_sp=2)

    def test_two_trainers_with_shared_out_weights(self):
        self.compare(ranks=3, **SHARDED)

    def test_trainers_that_share_a_pass(self):
        self.compare(ranks=3, ranks__trainers=2, ranks__trainer_sp=2)


if __name__ == "__main__":
    unittest.main()
