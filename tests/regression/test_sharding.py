"""Trainers that share out optimizer state, or weights as well, train the same; checkpoints fit any number of them."""

import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, RunTest, train

# 16 pairs in two updates of 8, four to a pass of three trainers: 4 + 4 + 0, so that one of them skips.
THREE = {"ranks__trainers": 3, "train__micro_batch": 4, "run__iterations": 2, "lora__rank": 0}


class Sharding(RunTest):
    def train(self, name, ranks, **changed):
        self.assert_code(FINISHED, train(self.folder / name, ranks=ranks, **{**THREE, **changed}))

    def compare(self, **changed):
        """Whole working copies on each trainer against gathered ones."""
        self.train("whole", 4, **changed)
        self.train("gathered", 4, train__shard_weights="true", **changed)
        self.assert_same_run(self.folder / "gathered", self.folder / "whole")
        first, last = sr.history(self.folder / "whole")[0], sr.history(self.folder / "whole")[-2]
        self.assertEqual(first["policy_ratio_first_max_dev"], 0.0)
        self.assertEqual(last["policy_ratio_first_max_dev"], 0.0, "what is trained is what was sampled")
        self.assertGreater(first["optim_grad_norm"], 0)

    def test_weights_shared_out(self):
        self.compare()

    def test_bf16(self):
        self.compare(model__precision="bf16")

    def test_distance_from_the_base_and_average(self):
        self.compare(train__kl_beta=0.05, train__ema_decay=0.9)

    def test_unlike_passes_and_clipped_pairs(self):
        # 16 pairs in 3 updates of 5, 5 and 6 pairs, two to a pass; large steps, so that many are clipped later on.
        guided = {"sampler__guidance": 2.0, "sampler__negative_prompt": "a photo of a"}
        self.compare(train__micro_batch=2, train__updates=3, train__lr=0.01, **guided)
        row = sr.history(self.folder / "whole")[0]
        self.assertGreater(row["policy_clip_frac_high"] + row["policy_clip_frac_low"], 0.1)

    def test_lora_over_trainers(self):
        # Three trainers sum in another order than one, and nothing else differs.
        settings = {"lora__rank": 4, "train__lr": 1e-3, "train__kl_beta": 0.05, "run__iterations": 1}
        self.train("three", 4, **settings)
        self.train("again", 5, **settings)
        self.assert_same_run(self.folder / "again", self.folder / "three")
        self.train("one", 0, ranks__trainers=1, **settings)
        three, one = sr.learnt(self.folder / "three")[0], sr.learnt(self.folder / "one")[0]
        self.assertEqual(three["policy_pairs"], one["policy_pairs"])
        self.assertEqual(three["reward_mean"], one["reward_mean"])
        self.assertAlmostEqual(three["policy_kl"], one["policy_kl"], delta=1e-3 * one["policy_kl"])
        self.assertAlmostEqual(three["optim_grad_norm"], one["optim_grad_norm"], delta=1e-3 * one["optim_grad_norm"])

    def resumed(self, name, ranks, settings):
        """Copies a finished run and resumes it for no further iteration: its end is the checkpoint's state."""
        target = self.folder / f"{name}-{ranks}"
        sr.shutil.copytree(self.folder / name, target)
        sr.shutil.rmtree(target / "final")
        result = sr.run(["-r", "latest", "-d", target], settings, ranks)
        self.assert_code(FINISHED, result)
        return target

    def test_checkpoints_fit_any_number_of_trainers(self):
        cases = (("of-three", 4, 0, (0, 3)), ("of-one", 0, 0, (4,)), ("adapter-of-three", 4, 4, (0,)))
        for name, ranks, lora, others in cases:
            self.train(name, ranks, ranks__trainers=max(1, ranks - 1), train__ema_decay=0.9, lora__rank=lora)
            for other in others:
                with self.subTest(name, ranks=other):
                    target = self.resumed(name, other, {"ranks/trainers": max(1, other - 1)})
                    self.assertTrue(sr.weights(target))
                    self.assertEqual(sr.weights(target), sr.weights(self.folder / name))


if __name__ == "__main__":
    unittest.main()
