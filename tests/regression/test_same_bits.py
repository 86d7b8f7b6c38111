"""The same input gives the same bits, whatever the number of threads and ranks."""

import unittest

from spotlight_run import FINISHED, RunTest, history, learnt, train, weights

FULL = {"train__kl_beta": 0.01, "train__ema_decay": 0.9, "sampler__noise": "cps"}
GUIDED = {
    "lora__rank": 4,
    "sampler__guidance": 2.0,
    "sampler__negative_prompt": "a photo of a",
    "sampler__noise": "dance",
    "train__advantage_std": "global",
}


class SameBits(RunTest):
    def compare(self, gold, others, **settings):
        """others: {name: (ranks, more settings)}."""
        self.assert_code(FINISHED, train(self.folder / gold, **settings))
        for row in history(self.folder / gold)[:-1]:
            self.assertEqual(row["policy_ratio_first_max_dev"], 0.0, row)
            self.assertEqual(row["policy_ratio_first_mean"], 1.0, row)
            self.assertGreater(row["policy_pairs"], 0, row)
        for name, (ranks, more) in others.items():
            with self.subTest(name):
                result = train(self.folder / name, ranks=ranks, **{**settings, **more})
                self.assert_code(FINISHED, result)
                self.assert_same_run(self.folder / name, self.folder / gold)

    def test_default_on_all_numbers_of_ranks(self):
        others = {
            "threads-2": (0, {"device__threads": 2}),
            "recompute": (0, {"model__recompute": "true"}),
            "small-batches": (0, {"sampler__batch": 3}),
            "np-2": (2, {}),
            "np-4": (4, {}),
            "np-5": (5, {}),
        }
        self.compare("gold", others)

    def test_kl_average_and_cps(self):
        self.compare("gold", {"np-4": (4, {}), "recompute": (0, {"model__recompute": "true"})}, **FULL)

    def test_lora_guidance_dance_and_global_std(self):
        others = {"np-4": (4, {}), "np-2": (2, {}), "recompute": (0, {"model__recompute": "true"})}
        self.compare("gold", others, **GUIDED)

    def test_another_seed_gives_other_bits(self):
        self.assert_code(FINISHED, train(self.folder / "a", run__iterations=1))
        self.assert_code(FINISHED, train(self.folder / "b", run__iterations=1, run__seed=1))
        self.assertNotEqual(weights(self.folder / "a"), weights(self.folder / "b"))

    def test_two_trainers_agree_with_themselves(self):
        for name in "ab":
            result = train(self.folder / name, ranks=5, ranks__trainers=2, train__micro_batch=4)
            self.assert_code(FINISHED, result)
        self.assert_same_run(self.folder / "b", self.folder / "a")
        for row in history(self.folder / "a")[:-1]:
            self.assertEqual(row["policy_ratio_first_max_dev"], 0.0, row)
        # Their sums have another order than one trainer's, no other value.
        self.assert_code(FINISHED, train(self.folder / "one", train__micro_batch=4))
        two, one = learnt(self.folder / "a"), learnt(self.folder / "one")
        self.assertEqual(two[0]["reward_mean"], one[0]["reward_mean"])
        self.assertAlmostEqual(two[0]["optim_grad_norm"], one[0]["optim_grad_norm"], places=3)

    def test_deadline_cuts_exploration_and_counts_no_late_result(self):
        # Always all 128: a planner would not try what does not fit.
        settings = {"explore__budget": "deadline", "explore__planner": "fixed", "explore__grace": 0.0,
                    "explore__seeds": 64, "run__iterations": 6}  # fmt: skip
        for ranks in (0, 4):
            with self.subTest(ranks=ranks):
                directory = self.folder / str(ranks)
                result = train(directory, ranks=ranks, **settings)
                self.assert_code(FINISHED, result)
                for text in ("nothing is explored in a run of one process", "; no seeds explored;"):
                    self.assertEqual(text in result.out + result.err, ranks == 0, result)
                explored = [row["explore_images"] for row in history(directory)[:-2]]
                self.assertTrue(all(0 <= images <= 128 for images in explored), explored)
                if ranks > 0:
                    self.assertLess(min(explored), 128, "nothing was cut")


if __name__ == "__main__":
    unittest.main()
