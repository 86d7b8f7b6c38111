"""Options that answer and stop: without a launcher, with their exit codes."""

import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, INPUT, TINY, USAGE, RunTest, run


class CommandLine(RunTest):
    def answer(self, *arguments, code=FINISHED):
        result = run(arguments)
        self.assert_code(code, result)
        return result

    def test_version(self):
        self.assertRegex(self.answer("--version").out, r"^spotlight \d+\.\d+\.\d+ ")

    def test_help_is_one_screen(self):
        out = self.answer("--help").out
        self.assertIn("-r", out)
        self.assertIn("Exit codes", out)
        self.assertLess(out.count("\n"), 40)

    def test_show_config(self):
        out = self.answer("--show-config").out
        for name in ("compiler", "MPI", "Kokkos", "HDF5"):
            self.assertIn(name.lower(), out.lower())

    def test_describe(self):
        self.assertIn("clip_range", self.answer("--describe", "train").out)
        self.assertNotIn("noise_level", self.answer("--describe", "train").out)
        self.assertIn("noise_level", self.answer("--describe").out)
        self.assertIn("did you mean train", self.answer("--describe", "trian", code=USAGE).err)

    def test_list_rewards(self):
        self.assertIn("geneval_exact", self.answer("--list", "rewards").out)
        self.assertIn("rewards", self.answer("--list", "models", code=USAGE).err)

    def test_no_argument(self):
        result = self.answer(code=USAGE)
        self.assertIn("usage: spotlight INPUT.ini", result.err)

    def test_unknown_option(self):
        self.assertIn("did you mean --dry-run", self.answer("--dryrun", INPUT, code=USAGE).err)

    def test_check(self):
        for ranks in (0, 3):
            result = run([INPUT, "--check", "-d", self.folder / "run"], {}, ranks)
            self.assert_code(FINISHED, result)
            self.assertEqual(result.out.count("all settings are allowed"), 1, str(result))
            self.assertIn("1052 prompts", result.out)
        self.assertFalse((self.folder / "run").exists())

    def test_dry_run(self):
        for ranks in (0, 3):
            result = run([INPUT, "--dry-run", "-d", self.folder / "run"], TINY, ranks)
            self.assert_code(FINISHED, result)
            for text in ("2 prompts x 4 images = 8 images", "16 pairs", "explorer", "iterations in one process"):
                self.assertIn(text, result.out)
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    unittest.main()
