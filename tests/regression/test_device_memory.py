"""The program never touches kernel memory but by the operations that may: with a back end whose memory the host cannot
read, and whose copies to the host come late (tests/device), every kind of run works, and ends with the same bits.

SPOTLIGHT_GUARDED names that program.
"""

import os
import unittest

import spotlight_run as sr
import test_spot

GUARDED = os.environ["SPOTLIGHT_GUARDED"]
ADAPTER = {"lora__rank": 4, "sampler__guidance": 2.0, "sampler__negative_prompt": "a photo of a", "train__kl_beta": 0.01}
CACHED = {"explore__cache": "tea", "explore__cache_threshold": 0.1, "train__ema_decay": 0.9, "model__recompute": "true"}
SHARDED = {"ranks__trainers": 2, "train__shard_weights": "true", "model__precision": "bf16", "train__micro_batch": 4}


class DeviceMemory(sr.RunTest):
    def run_guarded(self, settings, ranks, **options):
        usual, sr.BINARY = sr.BINARY, GUARDED
        try:
            result = sr.run([sr.INPUT, "-d", self.folder / "guarded"], settings, ranks, **options)
        finally:
            sr.BINARY = usual
        self.assert_code(sr.FINISHED, result)

    def compare(self, ranks=0, **settings):
        changed = {key.replace("__", "/"): value for key, value in settings.items()}
        self.run_guarded({**sr.TINY, "run/iterations": 2, **changed}, ranks)
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

    def test_a_lost_rank_whose_commits_came_late(self):
        settings = {**test_spot.SETTINGS, "run/iterations": 3}
        places = self.folder / "places"
        # The third border of a batch, where the first one's commit has been posted and the second one's has not.
        rules = {
            "SPOTLIGHT_FAILPOINT": "denoise.step:kill:nth=9:ranks=2+3:times=1",
            "SPOTLIGHT_FAILPOINT_DIR": str(self.folder),
            "SPOTLIGHT_FAILPOINT_LOG": str(places),
        }
        self.run_guarded(settings, 6, env={**os.environ, **rules})
        self.assert_code(sr.FINISHED, sr.run([sr.INPUT, "-d", self.folder / "usual"], settings))
        self.assert_same_run(self.folder / "guarded", self.folder / "usual")
        self.assertIn("is lost", (self.folder / "guarded/spotlight.log").read_text(encoding="utf-8"))
        passed = {}
        for _, process, place in (line.split() for line in places.read_text(encoding="utf-8").splitlines()):
            if place.startswith(("denoise", "commit")):
                passed.setdefault(process, []).append(place)
        late = ",".join(("commit.begin", "denoise.step", "commit.posted"))
        self.assertTrue(any(late in ",".join(own) for own in passed.values()), "no commit came late")


if __name__ == "__main__":
    unittest.main()
