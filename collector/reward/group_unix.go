//go:build unix

package reward

import (
	"os/exec"
	"syscall"
)

// ownGroup gives the program its own process group, so that its children can be killed with it
// and a terminal interrupt does not reach it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the program and all processes in its group.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the program can have exited
	_ = cmd.Process.Kill()
}
