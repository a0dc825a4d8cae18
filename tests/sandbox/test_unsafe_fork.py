"""The fork server: real scripts in real processes."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from wmrl_cli.sandbox.base import Ending, Job, Limits, RunResult, SubmissionState
from wmrl_cli.sandbox.local.unsafe_fork import ForkSandbox

LIMITS = Limits(wall_s=3.0, cpu_s=1.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "train.csv").write_text("a,b\n1,2\n3,4\n")
    return folder


@pytest.fixture(scope="module")
def run(data: Path):
    with ForkSandbox() as sandbox:

        def run_script(script: str, cancel: Event | None = None, **limits: float) -> RunResult:
            job = Job(job_id="x", script=script, data_dir=data, limits=Limits(**{**vars(LIMITS), **limits}), seed=7)
            return sandbox.run(job, cancel)

        yield run_script


def test_a_script_reads_its_data_and_leaves_a_submission(run):
    result = run(
        "import pandas as pd\npd.read_csv('input/train.csv').to_csv('submission.csv', index=False)\nprint('hi')"
    )
    assert (result.ending, result.exit_code, result.stdout) == (Ending.EXITED, 0, "hi\n")
    assert result.submission == b"a,b\n1,2\n3,4\n"
    assert result.enforcement["isolation"] == "none" and result.backend == "unsafe-fork"


def test_a_traceback_reads_like_pythons_own(run):
    result = run("x = 1\n{}['q']\n")
    assert result.ending is Ending.FAILED and result.exit_code == 1
    assert result.stderr.startswith('Traceback (most recent call last):\n  File "solution.py", line 2, in <module>\n')
    assert result.stderr.endswith("KeyError: 'q'\n")


def test_exit_codes_are_kept(run):
    assert run("import sys; sys.exit(3)").exit_code == 3
    assert run("raise SystemExit").ending is Ending.EXITED
    refused = run("import sys; sys.exit('no')")
    assert (refused.exit_code, refused.stderr) == (1, "no\n")


def test_processor_time_ends_a_busy_script_and_wall_time_an_idle_one(run):
    busy, idle = run("while True: pass"), run("import time; time.sleep(60)", wall_s=0.5)
    assert busy.ending is Ending.TIMEOUT and busy.cpu_s == pytest.approx(1.0, abs=0.4)
    assert idle.ending is Ending.TIMEOUT and idle.cpu_s < 0.5


def test_what_a_script_started_dies_with_it(run, tmp_path):
    mark = tmp_path / "mark"
    child = f"import time; time.sleep(1.0); open({str(mark)!r}, 'w')"
    assert run(f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {child!r}])").ending is Ending.EXITED
    time.sleep(1.6)
    assert not mark.exists()


def test_too_much_memory_is_told_apart(run):
    assert run("import numpy as np\nnp.ones(1 << 33)", memory_bytes=1 << 28).ending is Ending.OUT_OF_MEMORY


def test_what_a_script_prints_or_does_to_itself_is_no_evidence_of_a_limit(run):
    printed = run("import sys; sys.stderr.write('MemoryError'); sys.exit(1)")
    killed = run("import os; os.kill(os.getpid(), 9)")
    caught = run("try:\n    bytearray(1 << 33)\nexcept MemoryError:\n    print('less')", memory_bytes=1 << 28)
    assert printed.ending is Ending.FAILED
    assert (killed.ending, killed.signal) == (Ending.FAILED, 9)
    assert (caught.ending, caught.stdout) == (Ending.EXITED, "less\n")


def test_a_huge_file_ends_the_script(run):
    result = run("open('big', 'wb').write(bytes(1 << 21))", file_bytes=1 << 20)
    assert result.ending is Ending.RESOURCE_LIMIT


def test_long_output_keeps_head_and_tail(run):
    result = run("print('a' * 50_000); print('z' * 50_000)")
    assert result.stdout.startswith("aaa") and result.stdout.endswith("zzz\n")
    assert "bytes left out" in result.stdout and result.output_bytes == 100_002


def test_a_link_is_no_submission(run):
    result = run("import os; os.symlink('/etc/hostname', 'submission.csv')")
    assert (result.submission, result.submission_state) == (None, SubmissionState.REFUSED)
    assert run("pass").submission_state is SubmissionState.MISSING


def test_scripts_do_not_see_each_other(run):
    assert run("import pandas; pandas.spoilt = 1; open('left', 'w')").ending is Ending.EXITED
    result = run(
        "import os, pandas\nassert not hasattr(pandas, 'spoilt')\nassert sorted(os.listdir()) == "
        "['.stderr', '.stdout', 'input', 'solution.py'], os.listdir()"
    )
    assert result.ending is Ending.EXITED, result.stderr


def test_one_seed_draws_the_same_numbers(run):
    script = "import numpy as np; print(np.random.rand())"
    assert run(script).stdout == run(script).stdout != ""


def test_a_cancelled_job_never_starts(run):
    cancel = Event()
    cancel.set()
    assert run("pass", cancel).ending is Ending.CANCELLED


def test_two_threads_share_it(run):
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda n: run(f"print({n})"), range(60)))
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(60)]
