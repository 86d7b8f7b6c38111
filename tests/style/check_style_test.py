"""Tests of the style rules: each rule accepts a good tree and names the line of a bad one."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import check_style

GOOD_HEADER = "// Adds two numbers.\n#pragma once\n"


class StyleTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("src/base/error.hpp", GOOD_HEADER)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def expect_clean(self, rule, *more):
        self.assertEqual(list(check_style.RULES[rule](self.root, *more)), [])

    def expect_one(self, rule, *parts):
        found = list(check_style.RULES[rule](self.root))
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_rooms_in_the_table_may_be_included(self):
        self.write("src/driver/loop.cpp", '#include "comm/world.hpp"\n#include "io/h5.hpp"\n#include <chrono>\n')
        self.write("src/comm/world.cpp", '#include <mpi.h>\n#include "base/error.hpp"\n')
        self.write("io/h5.cpp", '#include <hdf5.h>\n#include <nlohmann/json.hpp>\n#include "io/h5.hpp"\n')
        self.write("kernels/norm_kokkos.cpp", "#include <Kokkos_Core.hpp>\n")
        self.expect_clean("includes")

    def test_upward_include_is_found(self):
        self.write("src/model/dit.cpp", '#include "base/error.hpp"\n#include "config/config.hpp"\n')
        self.expect_one("includes", "src/model/dit.cpp:2", "base, kernels")

    def test_base_includes_nothing(self):
        self.write("src/base/tensor.cpp", '#include "kernels/linear.hpp"\n')
        self.expect_one("includes", "src/base/tensor.cpp:1", "nothing of ours")

    def test_third_party_header_outside_its_room(self):
        for name, header in [("src/driver/a.cpp", "mpi.h"), ("src/driver/a.cpp", "zmq.hpp"), ("src/main.cpp", "hdf5.h"),
                             ("src/reward/a.cpp", "png.h"), ("src/config/a.cpp", "nlohmann/json.hpp"),
                             ("src/main.cpp", "Kokkos_Core.hpp"), ("src/model/a.cpp", "oneapi/dnnl/dnnl.hpp"),
                             ("src/base/a.cpp", "CLI/CLI.hpp")]:
            with self.subTest(header):
                path = self.write(name, f"#include <{header}>\n")
                self.expect_one("includes", f"{name}:1", header)
                path.unlink()

    def test_rooms_that_decide_have_no_clock(self):
        self.write("src/plan/bandit.cpp", "#include <vector>\n#include <chrono>\n")
        self.expect_one("includes", "src/plan/bandit.cpp:2", "<chrono>")

    def test_include_without_folder_and_unknown_folder(self):
        path = self.write("src/train/a.cpp", '#include "grpo.hpp"\n')
        self.expect_one("includes", "src/train/a.cpp:1", "folder")
        path.unlink()
        self.write("src/misc/a.cpp", "\n")
        self.expect_one("includes", "'misc'")

    def test_length(self):
        self.write("io/a.cpp", "// line\n" * 600)
        self.expect_clean("length")
        self.write("io/a.cpp", "// line\n" * 601)
        self.expect_one("length", "io/a.cpp", "601 lines")

    def test_words(self):
        self.write("tests/data/note.py", "TO" "DO")  # data is not source
        self.expect_clean("words")
        for name, text in [("io/a.cpp", "// TO" "DO later\n"), ("tests/io/a_test.cpp", "// FIX" "ME\n"),
                           ("scripts/a.sh", "cd /wo" "rk/main\n"), ("src/train/a.hpp", "class RankMana" "ger {};\n"),
                           ("src/train/io_ut" "ils.cpp", "\n")]:
            with self.subTest(text):
                path = self.write(name, text)
                self.expect_one("words", f"{name}:1")
                path.unlink()

    def test_contract(self):
        self.write("src/base/error.cpp", '#include "base/error.hpp"\n')  # its header speaks for it
        self.write("kernels/norm.hpp", GOOD_HEADER)
        self.write("kernels/norm_kokkos.cpp", '#include "kernels/norm.hpp"\n')
        self.write("scripts/a.sh", "#!/usr/bin/env bash\n# Runs it.\n")
        self.expect_clean("contract")
        for name, text in [("src/comm/a.hpp", "#pragma once\n"), ("src/main.cpp", "int main() {}\n"),
                           ("scripts/b.sh", "#!/usr/bin/env bash\nset -e\n"), ("io/rule.hpp", "// --\n#pragma once\n")]:
            with self.subTest(name):
                path = self.write(name, text)
                self.expect_one("contract", f"{name}:1")
                path.unlink()

    @unittest.skipIf(shutil.which("clang-format") is None, "clang-format is not installed")
    def test_format(self):
        self.write(".clang-format", "BasedOnStyle: Google\nColumnLimit: 120\n")
        self.write("io/a.cpp", "int main() { return 0; }\n")
        self.expect_clean("format")
        self.write("io/a.cpp", "int main()  { return 0; }\n")
        self.expect_one("format", "io/a.cpp:1")

    def test_inputs(self):
        binary = self.write("spotlight", '#!/bin/sh\ngrep -q good "$1" && [ "$2" = --check ]\n')
        os.chmod(binary, binary.stat().st_mode | stat.S_IXUSR)
        self.assertEqual(list(check_style.check_inputs(self.root, str(binary))), ["inputs: no .ini file"])
        self.write("inputs/a.ini", "good\n")
        self.expect_clean("inputs", str(binary))
        self.write("inputs/b.ini", "bad\n")
        found = list(check_style.check_inputs(self.root, str(binary)))
        self.assertEqual(len(found), 1)
        self.assertIn("inputs/b.ini: --check ends with 1", found[0])

    def test_exit_code(self):
        script = pathlib.Path(check_style.__file__)
        for text, code in [("", 0), ("// TO" "DO\n", 1)]:
            self.write("src/base/b.cpp", text)
            result = subprocess.run([sys.executable, str(script), str(self.root), "words"], capture_output=True,
                                    text=True, check=False)
            self.assertEqual(result.returncode, code, result.stdout)


if __name__ == "__main__":
    unittest.main()
