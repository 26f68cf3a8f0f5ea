"""Python runs this when it starts, if this folder is in PYTHONPATH: modules of this project then find no more in the
standard library than on Windows. Other packages find all, since they ask which system it is and have code for each.
"""

import builtins
from types import ModuleType

NO_MODULES = (
    *("crypt", "curses", "fcntl", "grp", "nis", "ossaudiodev", "posix", "pty", "pwd", "readline", "resource"),
    *("spwd", "syslog", "termios", "tty"),
)
POSIX = {
    "os": (
        "O_ACCMODE O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK "
        "O_PATH O_RSYNC O_SYNC O_TMPFILE chown chroot confstr ctermid eventfd fchdir fchown fdatasync fork forkpty "
        "fpathconf fstatvfs get_blocking getegid geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp "
        "getpriority getrandom getresgid getresuid getsid getuid getxattr initgroups killpg lchown listxattr lockf "
        "major makedev memfd_create minor mkfifo mknod nice openpty pathconf pipe2 posix_fadvise posix_fallocate "
        "posix_spawn posix_spawnp pread preadv pwrite pwritev readv register_at_fork removexattr sched_getaffinity "
        "sched_getparam sched_getscheduler sched_setaffinity sched_yield sendfile setegid seteuid setgid setgroups "
        "setpgid setpriority setregid setreuid setsid setuid setxattr splice statvfs sync sysconf tcgetpgrp tcsetpgrp "
        "ttyname uname wait wait3 wait4 waitid writev"
    ).split(),
    "signal": (
        "SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIG_BLOCK "
        "SIG_SETMASK SIG_UNBLOCK alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending "
        "sigtimedwait sigwait sigwaitinfo"
    ).split(),
    "time": ["tzset", "clock_gettime", "clock_gettime_ns", "clock_settime", "CLOCK_MONOTONIC", "CLOCK_REALTIME"],
    "socket": ["AF_UNIX", "sethostname"],
}
imports = builtins.__import__


class OnWindows(ModuleType):
    """A module without some of its names."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> object:
        if name in POSIX[self.__name__]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on Windows")
        return getattr(self._module, name)


def as_on_windows(name, globals=None, locals=None, fromlist=(), level=0):
    """``__import__`` of this project's modules on Windows, and of others as it is."""
    if level or not str((globals or {}).get("__name__")).startswith("v6_"):
        return imports(name, globals, locals, fromlist, level)
    if name.partition(".")[0] in NO_MODULES:
        raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
    found = imports(name, globals, locals, fromlist, level)
    return OnWindows(found) if name in POSIX else found


builtins.__import__ = as_on_windows
