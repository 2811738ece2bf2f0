//go:build linux

// The published module of this release has this package's files for macOS and Windows only: Go's
// module archives of it lack signal_linux.go. Our replacement, used by `go build -overlay`.

package osspecific

import (
	"os"
	"syscall"
	"time"

	"github.com/argoproj/argo-workflows/v3/util/errors"
)

// Term is the signal by which the executor ends a step.
var Term = syscall.SIGTERM

// pollInterval is the pause between two looks for ended processes.
const pollInterval = 100 * time.Millisecond

// CanIgnoreSignal tells which signals the executor doesn't forward: those that the kernel and Go's
// runtime send to the executor itself.
func CanIgnoreSignal(s os.Signal) bool {
	switch s {
	case syscall.SIGCHLD, syscall.SIGURG:
		return true
	}
	return false
}

// Setpgid starts the step's command in a process group of its own, so that Kill reaches its children.
func Setpgid(a *syscall.SysProcAttr) {
	a.Setpgid = true
}

// Kill sends a signal to the process group of pid, or to pid alone if it has ended its group.
func Kill(pid int, s syscall.Signal) error {
	target := pid
	if group, err := syscall.Getpgid(pid); err == nil {
		target = -group
	}
	return syscall.Kill(target, s)
}

// Wait reaps children, as the first process of a container must, until this one ends. Its exit code
// is returned as an ExitErr: 128 and the number of a signal that ended it.
func Wait(process *os.Process) error {
	pid := process.Pid
	if err := process.Release(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		switch ended, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case ended == pid && status.Exited():
			return errors.NewExitErr(status.ExitStatus())
		case ended == pid && status.Signaled():
			return errors.NewExitErr(128 + int(status.Signal()))
		case ended == 0:
			time.Sleep(pollInterval)
		}
	}
}
