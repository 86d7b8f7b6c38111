"""Ranks that share passes give one process's bits, and degrees that do not fit are refused."""

import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, INPUT, TINY, RunTest, run, train

NORM = "optim_grad_norm"  # its sum has another order on another number of trainers: hence no clip below
LORA = {
    "run/iterations": 2,
    "lora/rank": 4,
    "lora/alpha": 8,
    "sampler/guidance": 3.0,
    "sampler/negative_prompt": "a photo of a red circle",
    "train/grad_norm": 0,
}
WHOLE = {"lora/rank": 0}
SHARED = {"ranks/trainers": 2, "ranks/trainer_sp": 2, "ranks/explorer_sp": 2}  # 3 ranks and 2 for each explorer


def keywords(settings):
    return {key.replace("/", "__"): value for key, value in settings.items()}


class SequenceParallel(RunTest):
    def train(self, name, ranks, *changed):
        settings = dict(LORA)
        for more in changed:
            settings.update(more)
        result = train(self.folder / name, ranks=ranks, **keywords(settings))
        self.assert_code(FINISHED, result)
        return result

    def assert_same(self, name, gold):
        """The same bits, but for the last ones of the norm."""
        ours, theirs = sr.learnt(self.folder / name), sr.learnt(self.folder / gold)
        for row, other in zip(ours, theirs):
            if NORM in row:
                self.assertAlmostEqual(row.pop(NORM), other[NORM], delta=1e-6 * other.pop(NORM))
        self.assertEqual(ours, theirs)
        self.assertTrue(sr.weights(self.folder / gold))
        self.assertEqual(sr.weights(self.folder / name), sr.weights(self.folder / gold))

    def test_same_bits_as_one_process(self):
        self.train("one", 0)
        layouts = {
            "groups-of-two": (7, SHARED),
            "group-of-four": (6, {"ranks/explorer_sp": 4}),
            "trainers-alone": (5, {"ranks/trainers": 4, "ranks/trainer_sp": 4}),
            "recompute": (5, {**SHARED, "model/recompute": "true"}),
        }
        for name, (ranks, more) in layouts.items():
            with self.subTest(name):
                result = self.train(name, ranks, more)
                self.assertIn("share a pass", result.out)
                self.assert_same(name, "one")

    def test_all_weights(self):
        several = {**WHOLE, "train/micro_batch": 3}  # an update is three passes
        self.train("one", 0, several)
        layouts = {
            "group-of-two": (5, SHARED),
            "group-of-four": (5, {"ranks/trainers": 4, "ranks/trainer_sp": 4, "model/recompute": "true"}),
        }
        for name, (ranks, more) in layouts.items():
            with self.subTest(name):
                self.train(name, ranks, several, more)
                self.assert_same(name, "one")

    def test_many_rows_in_several_passes(self):
        # 3 pairs x 2 branches x 64 tokens: a layer's gradient is a sum of several pieces.
        large = {"sampler/height": 128, "sampler/width": 128, "train/micro_batch": 3, "train/updates": 1}
        large.update({"run/iterations": 1, "explore/seeds": 0, "eval/every": 0, "eval/steps": 1})
        self.train("one", 0, large)
        self.train("group", 3, large, {"ranks/trainers": 2, "ranks/trainer_sp": 2})
        self.assert_same("group", "one")

    def test_groups_that_train_all_weights(self):
        several = {**WHOLE, "train/micro_batch": 3, "train/kl_beta": 0.02, "model/precision": "bf16"}
        pairs = {"ranks/trainers": 4, "ranks/trainer_sp": 2}
        self.train("data", 3, several, {"ranks/trainers": 2})
        self.train("pairs", 5, several, pairs)
        self.assert_same("pairs", "data")
        self.train("gathered", 5, several, pairs, {"train/shard_weights": "true"})
        self.assert_same("gathered", "data")

    def test_bf16(self):
        self.train("one", 0, {"model/precision": "bf16"})
        self.train("shared", 7, {"model/precision": "bf16"}, SHARED)
        self.assert_same("shared", "one")
        self.train("fp32", 0)
        self.assertNotEqual(sr.weights(self.folder / "fp32"), sr.weights(self.folder / "one"))

    def test_explorers_do_not_change_bits_of_clipped_gradients(self):
        clipped = {**SHARED, "train/grad_norm": 1.0, "train/kl_beta": 0.02, "train/ema_decay": 0.9}
        self.train("two", 5, clipped)
        self.train("four-alone", 7, clipped, {"ranks/explorer_sp": 1})
        self.train("one-group", 7, clipped, {"ranks/explorer_sp": 4})
        self.train("none", 3, clipped)
        for name in ("four-alone", "one-group", "none"):
            self.assert_same_run(self.folder / name, self.folder / "two")
        for row in sr.history(self.folder / "two")[:-1]:
            self.assertEqual(row["policy_ratio_first_max_dev"], 0.0, row)
            self.assertEqual(row["policy_pairs"], 16, row)

    def test_groups_of_trainers_side_by_side(self):
        four = {"ranks/trainers": 4, "train/micro_batch": 3, "train/kl_beta": 0.02}
        self.train("pairs", 5, four, {"ranks/trainer_sp": 2})
        self.train("data", 3, four, {"ranks/trainers": 2})
        # The same passes by two groups as by two trainers: the same sums.
        self.assert_same("pairs", "data")

    def refused(self, ranks, settings, *texts):
        merged = {**TINY, **LORA, **settings}
        self.assert_refused(run([INPUT, "-d", self.folder / "run"], merged, ranks), *texts)

    def test_degrees_that_do_not_fit(self):
        heads = ("must divide the 4 attention heads", "1, 2, 4")
        three = {"ranks/trainers": 3}
        self.refused(5, {"ranks/explorer_sp": 3}, "ranks/explorer_sp = 3", *heads)
        self.refused(4, {**three, "ranks/trainer_sp": 3}, "ranks/trainer_sp = 3", *heads)
        self.refused(4, {**three, "ranks/trainer_sp": 2}, "ranks/trainer_sp (command line) = 2", "must divide")
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    unittest.main()
