//go:build unix

package reward

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the head of a process group of its own, so that what it
// starts can be ended with it, and an interrupt from the terminal does not reach it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends the program and all that it started in its group.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = cmd.Process.Kill()
}
