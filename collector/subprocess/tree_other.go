//go:build !linux

package subprocess

import (
	"errors"
	"os/exec"
	"syscall"
	"time"
)

const canSupervise = false

// KillMarked does nothing on this platform, because it cannot read the environment of other
// processes.
func KillMarked(string, time.Duration) (left int, err error) { return 0, nil }

// Main does nothing on this platform.
func Main([]string) (code int, ok bool) { return 0, false }

func isTooLong(err error) bool { return errors.Is(err, syscall.Errno(7)) } // E2BIG

func supervisorArgs(_, args []string) []string { return args }

type control struct{}

func newControl(*exec.Cmd) (*control, error) { return nil, nil }

func (*control) started() {}

func (*control) end() {}

func (*control) close() {}

func (*control) result([]string, error, *Result) (proven bool, err error) { return false, nil }
