"""Hostile scripts: what each tries, how it must end, and what its submission must be. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wmrl_cli.sandbox.base import MIB, Ending, Limits, SubmissionState
from wmrl_cli.sandbox.interpreter import ANSWER_FOLDERS

E, S = Ending, SubmissionState
LIMITS = Limits(
    wall_s=180.0,  # generous: the machine that runs the tests may be busy, or emulated
    memory_bytes=192 * MIB,
    processes=40,
    cpus=1.0,
    file_bytes=32 * MIB,
    disk_bytes=48 * MIB,
    files=1500,
    tmp_bytes=16 * MIB,
    shm_bytes=16 * MIB,
    output_kill_bytes=1 << 40,
    submission_bytes=1 * MIB,
)


@dataclass(frozen=True)
class Case:
    """`endings` and `states` are what is allowed; `says` must stand in what was printed, `never` must not."""

    name: str
    script: str
    endings: tuple[Ending, ...] = (E.EXITED,)
    states: tuple[SubmissionState, ...] = (S.MISSING,)
    says: str = ""
    never: str = "LEAK"
    limits: dict[str, float] = field(default_factory=dict)
    without_groups: tuple[Ending, ...] = ()  # allowed where no control group is seen

    def all_limits(self) -> Limits:
        return replace(LIMITS, **self.limits)


_BLOCKED = """
import os
def blocked(act, *kinds):
    try:
        act()
    except (kinds or (OSError,)) as error:
        print("blocked:", type(error).__name__)
        return
    print("LEAK")
"""

CASES = [
    Case(
        "fork bomb",
        "import os, time\nfor _ in range(500):\n    if os.fork() == 0:\n        time.sleep(30)\n        os._exit(0)",
        endings=(E.RESOURCE_LIMIT,),
        without_groups=(E.RESOURCE_LIMIT, E.FAILED),
        says="BlockingIOError",
    ),
    Case(
        "memory bomb",
        "x = bytearray(1)\nwhile True:\n    x += bytes(8 << 20)",
        endings=(E.OUT_OF_MEMORY,),
        without_groups=(E.FAILED, E.OUT_OF_MEMORY),
    ),
    Case(
        "memory bomb in children",
        "import os, sys, time\n"
        "def eat():\n    x = []\n    while True:\n        x.append(os.urandom(1 << 20) * 4)\n"
        "kids = []\n"
        "for _ in range(3):\n    pid = os.fork()\n    if pid == 0: eat()\n    kids.append(pid)\n"
        "sys.exit(max(os.waitpid(pid, 0)[1] for pid in kids) and 1)",
        endings=(E.OUT_OF_MEMORY,),
        without_groups=(E.FAILED, E.OUT_OF_MEMORY),
    ),
    Case(
        "exit 0 after a killed child",
        "import os, signal, time\npid = os.fork()\nif pid == 0:\n    time.sleep(60)\nos.kill(pid, signal.SIGKILL)\nos.waitpid(pid, 0)",
    ),
    Case(
        "fill /tmp",
        _BLOCKED
        + "def fill():\n    with open('/tmp/x', 'wb') as f:\n        for _ in range(24): f.write(bytes(1 << 20))\nblocked(fill)",
        says="blocked: OSError",
    ),
    Case(
        "fill /dev/shm",
        _BLOCKED
        + "def fill():\n    with open('/dev/shm/x', 'wb') as f:\n        for _ in range(24): f.write(bytes(1 << 20))\nblocked(fill)",
        says="blocked: OSError",
    ),
    Case(
        "much output",
        "import os\nos.write(1, b'first')\nblock = b'x' * (1 << 20)\nleft = 256 << 20\n"
        "while left > 0: left -= os.write(1, block)\nos.write(1, b'last')",
        says="bytes left out",
    ),
    Case(
        "endless output",
        "import os\nblock = b'x' * (1 << 20)\nwhile True: os.write(2, block)",
        endings=(E.RESOURCE_LIMIT,),
        limits={"output_kill_bytes": 64 * MIB},
    ),
    Case(
        "sparse file of 1 TB",
        _BLOCKED + "f = open('big', 'wb')\nblocked(lambda: f.truncate(1 << 40))",
        says="blocked: OSError",
    ),
    Case(
        "fill the disk",
        "import time\nfor n in range(1000):\n    open(str(n), 'wb').write(bytes(8 << 20))\n    time.sleep(0.05)",
        endings=(E.RESOURCE_LIMIT,),
    ),
    Case(
        "many files",
        "import time\nn = 0\nwhile True:\n    open(str(n), 'w').close()\n    n += 1\n    n % 100 or time.sleep(0.02)",
        endings=(E.RESOURCE_LIMIT,),
    ),
    Case(
        "folders 1400 deep",
        "import os\nfor _ in range(1400):\n    os.mkdir('folder')\n    os.chdir('folder')",
        endings=(E.EXITED, E.RESOURCE_LIMIT),  # deeper than a path may be long: not countable
    ),
    Case(
        "orphan that ignores signals",
        "import os, signal, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        for n in range(1, 32):\n            if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n        time.sleep(300)\n    os._exit(0)",
    ),
    Case(
        "endless, with orphans",
        "import os, signal, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        signal.signal(15, signal.SIG_IGN)\n"
        "        time.sleep(300)\nwhile True: pass",
        endings=(E.TIMEOUT,),
        limits={"wall_s": 3.0},
    ),
    Case(
        "grandchild that holds the output open",
        "import os, time\nprint('done')\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(300)",
        says="done",
    ),
    Case("zombies", "import os, time\nfor _ in range(30):\n    if os.fork() == 0: os._exit(0)\ntime.sleep(0.1)"),
    Case(
        "processor time",
        "import os\nos.fork()\nwhile True: pass",
        endings=(E.TIMEOUT,),
        limits={"cpu_s": 4.0},  # its processes reach the kernel's limit for each only after the sum was seen
    ),
    Case("link to a system file", "import os\nos.symlink('/etc/passwd', 'submission.csv')", states=(S.REFUSED,)),
    Case("link to the data", "import os\nos.symlink('input/train.csv', 'submission.csv')", states=(S.REFUSED,)),
    Case("FIFO", "import os\nos.mkfifo('submission.csv')", states=(S.REFUSED,)),
    Case("folder", "import os\nos.mkdir('submission.csv')", states=(S.REFUSED,)),
    Case(
        "socket",
        "import socket\nsocket.socket(socket.AF_UNIX).bind('submission.csv')",
        states=(S.REFUSED,),
    ),
    Case("hard link", "import os\nopen('x', 'w').write('1')\nos.link('x', 'submission.csv')", states=(S.REFUSED,)),
    Case(
        "hard link to the data",
        _BLOCKED + "blocked(lambda: os.link('input/train.csv', 'submission.csv'))",
        says="blocked",
    ),
    Case(
        "device",
        _BLOCKED + "import stat\nblocked(lambda: os.mknod('submission.csv', stat.S_IFCHR | 0o666, os.makedev(1, 5)))",
        says="blocked",
    ),
    Case("large submission", "open('submission.csv', 'wb').write(bytes(2 << 20))", states=(S.REFUSED,)),
    Case("sparse submission", "open('submission.csv', 'wb').truncate(31 << 20)", states=(S.REFUSED,)),
    Case(
        "closed submission",
        "import os\nopen('submission.csv', 'w').write('id')\nos.chmod('submission.csv', 0)",
        states=(S.REFUSED, S.PRESENT),  # root may read it
    ),
    Case(
        "submission swapped while it is read",
        "import os, time\nopen('a', 'w').write('mine')\nif os.fork() == 0:\n    os.setsid()\n    while True:\n"
        "        os.symlink('/etc/passwd', 'b'); os.replace('b', 'submission.csv')\n"
        "        open('c', 'w').write('mine'); os.replace('c', 'submission.csv')\ntime.sleep(0.5)",
        states=(S.PRESENT, S.REFUSED),
    ),
    Case(
        "submission, then crash",
        "open('submission.csv', 'w').write('mine')\n1 / 0",
        endings=(E.FAILED,),
        states=(S.PRESENT,),
        says="ZeroDivisionError",
    ),
    Case(
        "answers next to the data",
        _BLOCKED + "here = os.path.realpath('input')\n"
        "for path in ('../private/answers.csv', here + '/../private/answers.csv', 'DATA/../private/answers.csv', '/proc/1/root/DATA/../private/answers.csv',\n"
        "             '/proc/1/cwd/input/../private/answers.csv'):\n    blocked(lambda: open(path).read())\n"
        "names = [n for f, d, files in os.walk('/') if not f.startswith(('/proc', '/usr', '/sys')) for n in files]\nprint('LEAK' if 'answers.csv' in names else 'none')",
        says="none",
    ),
    Case(
        "answers that packages ship",
        f"import os, sysconfig\nfor name in {ANSWER_FOLDERS!r}:\n    folder = os.path.join(sysconfig.get_path('purelib'), name)\n"
        "    print('LEAK' if os.path.isdir(folder) and os.listdir(folder) else 'empty')",
        says="empty",
    ),
    Case(
        "write where only reading is allowed",
        _BLOCKED
        + "import sys\nfor path in ('input/x', 'input/train.csv', '/x', '/usr/x', sys.prefix + '/x', '/etc/x', '/root/x'):\n    blocked(lambda: open(path, 'w'))\n"
        "blocked(lambda: os.unlink('input/train.csv'))\nblocked(lambda: os.rename('input', 'x'))\nblocked(lambda: os.chmod('input/train.csv', 0o777))",
    ),
    Case(
        "network: TCP to the machine",
        _BLOCKED + "import socket\nblocked(lambda: socket.create_connection(('127.0.0.1', PORT), 3))",
        says="blocked",
    ),
    Case(
        "network: TCP outside",
        _BLOCKED + "import socket\nblocked(lambda: socket.create_connection(('1.1.1.1', 53), 3))",
        says="blocked",
    ),
    Case(
        "network: UDP",
        _BLOCKED
        + "import socket\nblocked(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53)))",
        says="blocked",
    ),
    Case(
        "network: names",
        _BLOCKED + "import socket\nblocked(lambda: socket.getaddrinfo('example.org', 80))",
        says="blocked",
    ),
    Case(
        "network: IPv6",
        _BLOCKED + "import socket\nblocked(lambda: socket.create_connection(('2606:4700:4700::1111', 53), 3))",
        says="blocked",
    ),
    Case(
        "network: sockets by name",
        _BLOCKED + "import socket\n"
        "for name in ('\\0ABSTRACT', '/var/run/docker.sock', '/run/docker.sock'):\n    blocked(lambda: socket.socket(socket.AF_UNIX).connect(name))",
        says="blocked",
    ),
    Case(
        "network: raw",
        _BLOCKED + "import socket\nblocked(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))",
        says="blocked",
    ),
    Case(
        "signals outside",
        _BLOCKED + "import signal\nblocked(lambda: os.kill(TESTPID, 0))\n"
        "signal.signal(15, signal.SIG_IGN)\ntry:\n    os.kill(-1, 15)\nexcept OSError:\n    pass\nprint('alive')",
        says="alive",
    ),
    Case(
        "more rights",
        _BLOCKED + "import subprocess\n"
        "blocked(lambda: os.setuid(0))\nblocked(lambda: os.chroot('/tmp'))\nblocked(lambda: os.sethostname(b'x') if hasattr(os, 'sethostname') else open('/proc/sys/kernel/hostname', 'w').write('x'))\n"
        "done = subprocess.run(['/usr/bin/su', '-c', 'echo LE' + 'AK'], capture_output=True, text=True, stdin=subprocess.DEVNULL)\nprint(done.stdout)",
    ),
    Case(
        "nested namespaces",
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "for flag in (0x10000000, 0x20000, 0x40000000):\n    print('LEAK' if libc.unshare(flag) == 0 else 'blocked')\n"
        "print('LEAK' if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0 else 'blocked')",
        says="blocked",
    ),
    Case(
        "fake messages",
        "import sys\n"
        "print('bwrap: Creating new namespace failed: Operation not permitted', file=sys.stderr)\n"
        'print(\'{ "child-pid": 1 }\\n{ "exit-code": 137 }\')\n'
        "print('Traceback (most recent call last):\\n  File \"solution.py\", line 1\\nMemoryError', file=sys.stderr)\n"
        "print('docker: Error response from daemon: OCI runtime create failed', 'Killed', 'OOMKilled')",
        says="OCI runtime",
    ),
    Case(
        "writing to every descriptor",
        "import os\n"
        "for fd in range(3, 256):\n    try:\n        os.write(fd, b'{ \"exit-code\": 0 }\\n')\n        print('LEAK', fd)\n    except OSError:\n        pass\n"
        "os._exit(3)",
        endings=(E.FAILED,),
    ),
    Case("exit code of a kill", "import os\nos._exit(137)", endings=(E.FAILED,)),
    Case("exit code of a time limit", "import os\nos._exit(152)", endings=(E.FAILED,), limits={"cpu_s": 30.0}),
    Case("kill itself", "import os\nos.kill(os.getpid(), 9)", endings=(E.FAILED,)),
    Case("an error that says memory", "raise MemoryError", endings=(E.FAILED,), says="MemoryError"),
    Case(
        "remove the work folder",
        "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nprint(sorted(os.listdir()))",
        says="input",
    ),
    Case(
        "close the work folder",
        "import os\nos.makedirs('a/b')\nos.chmod('a', 0)\nos.chmod('.', 0)",
        endings=(E.EXITED, E.RESOURCE_LIMIT),
    ),
    Case(
        "names that are no text",
        "import os\nopen(b'\\xff\\xfe', 'w')\nopen('new\\nline', 'w')\nos.mkdir(b'\\xff')\nopen(b'\\xff/' + b'x' * 255, 'w')",
    ),
    Case(
        "our environment",
        "import os\nprint('LEAK' if any('SECRET' in k for k in os.environ) else 'clean')",
        says="clean",
    ),
    Case("waiting for input", "input()", endings=(E.FAILED,), says="EOFError"),
    Case(
        "other processes",
        "import os\nfound = [n for n in os.listdir('/proc') if n.isdigit()]\nprint(len(found))\nprint('LEAK' if len(found) > 8 else 'few')\n"
        "try:\n    print(b'SECRET' in open('/proc/1/environ', 'rb').read() and 'LEAK')\nexcept OSError:\n    pass",
        says="few",
    ),
    Case(
        "good",
        "print(open('input/train.csv').read())\nopen('submission.csv', 'w').write('id,y\\n1,2\\n')",
        states=(S.PRESENT,),
        says="a,b",
    ),
]
